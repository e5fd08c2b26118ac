"""Exports from PyTorch and JAX, and to OpenVINO: the second table of docs/howto/export.md.

`KERAS_BACKEND=torch python -m pytest -m "slow or exhaustive" tests/conformance/test_other_formats.py`
needs onnxscript, openvino and litert-torch; on TensorFlow it needs openvino, on JAX jax2onnx.
"""

import keras
import numpy as np
import pytest

from tests.backends import BACKEND
from tests.conformance.layers import CASES

# The converters use what is deprecated in other packages.
pytestmark = pytest.mark.filterwarnings("ignore")


def installed(name):
    return pytest.importorskip(name, reason=f"{name} is not installed")


def run_torch(model, batches, folder):
    import torch

    auto = torch.export.Dim.AUTO
    sizes = [{n: auto for n, size in enumerate(x.shape) if size is None} for x in model.inputs]
    path, dynamic = folder / "model.pt2", {"dynamic_shapes": [(sizes,)]} if any(sizes) else {}
    model.export(path, "torch", verbose=False, input_signature=[model.inputs], **dynamic)
    module = torch.export.load(path).module()
    return [module([torch.tensor(x) for x in arrays]).detach() for arrays in batches]


def run_onnx(model, batches, folder):
    installed({"torch": "onnxscript", "jax": "jax2onnx"}[BACKEND])
    path = str(folder / "model.onnx")
    model.export(path, "onnx", verbose=False, input_signature=[model.inputs])
    session = installed("onnxruntime").InferenceSession(path)
    names = [entry.name for entry in session.get_inputs()]
    return [session.run(None, dict(zip(names, x, strict=True)))[0] for x in batches]


def run_openvino(model, batches, folder):
    core, path = installed("openvino").Core(), str(folder / "model.xml")
    model.export(path, "openvino", verbose=False, input_signature=[model.inputs])
    run = core.compile_model(path, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return [run(arrays)[0] for arrays in batches]


def run_litert(model, batches, folder):
    installed("litert_torch")
    interpreter, path = installed("ai_edge_litert.interpreter"), str(folder / "model.tflite")
    model.export(path, "litert", verbose=False, input_signature=[model.inputs])
    signature = interpreter.Interpreter(path).get_signature_runner()
    names = sorted(signature.get_input_details())
    found = [signature(**dict(zip(names, arrays, strict=True))) for arrays in batches]
    return [next(iter(outputs.values())) for outputs in found]


def make_model(name, steps_known):
    keras.utils.set_random_seed(3)
    case = CASES[name]
    samples = 2 if steps_known else None
    shapes = zip(case.arguments, case.shapes(samples, known=steps_known), strict=True)
    inputs = [
        keras.Input(batch_shape=shape, dtype=argument.dtype, name=f"x{n}")
        for n, (argument, shape) in enumerate(shapes)
    ]
    layer = case.make(unroll=steps_known)
    model = keras.Model(inputs, layer(*case.named(inputs).values()))
    return model, [case.tensors(2)] + ([] if steps_known else [case.tensors(3, 5)])


# The function that runs a model, and whether its sizes must be known.
FORMATS = {
    "tensorflow": {"OpenVINO": (run_openvino, False)},
    "jax": {"ONNX": (run_onnx, True)},
    "torch": {
        ".pt2": (run_torch, False),
        "ONNX": (run_onnx, True),
        "OpenVINO": (run_openvino, True),
        "LiteRT": (run_litert, True),
    },
}[BACKEND]
LAYERS = "bahdanau", "pooling", "hierarchical", "decoder"
# What the libraries say of the rest.
FAILS = {
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("kind", FORMATS)
def test_an_export(kind, name, tmp_path):
    run, known = FORMATS[kind]
    model, batches = make_model(name, known or name == "decoder")
    expected = [keras.ops.convert_to_numpy(model(arrays)) for arrays in batches]
    if (BACKEND, kind, name) in FAILS:
        with pytest.raises(Exception, match=FAILS[BACKEND, kind, name]):
            run(model, batches, tmp_path)
        return
    for found, wanted in zip(run(model, batches, tmp_path), expected, strict=True):
        np.testing.assert_allclose(np.asarray(found), wanted, rtol=0, atol=1e-5)
