"""Exports from PyTorch and JAX, and to OpenVINO: the second table of docs/howto/export.md.

`KERAS_BACKEND=torch python -m pytest -m slow tests/conformance/test_other_formats.py` needs
onnxscript, openvino and litert-torch; on TensorFlow it needs openvino, on JAX jax2onnx.
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


ANY, FIXED = False, True  # numbers of samples and steps
SCORING, POOLING, HIERARCHICAL = "bahdanau", "pooling", "hierarchical"
# For each format the function that runs a model, and layers: their sizes, and what stops them.
TABLE = {
    "tensorflow": {
        "OpenVINO": (run_openvino, {x: (ANY, "") for x in (SCORING, POOLING, HIERARCHICAL)}),
    },
    "jax": {
        "ONNX": (
            run_onnx,
            {
                SCORING: (ANY, "jnp.max with 'initial' is not supported"),
                POOLING: (ANY, "reshape with symbolic dimensions"),
                HIERARCHICAL: (ANY, "reshape with symbolic dimensions"),
            },
        ),
    },
    "torch": {
        ".pt2": (
            run_torch,
            {x: (ANY, "") for x in (SCORING, POOLING, HIERARCHICAL)} | {"decoder": (FIXED, "")},
        ),
        "ONNX": (
            run_onnx,
            {x: (FIXED, "") for x in (SCORING, POOLING, HIERARCHICAL, "decoder")},
        ),
        "OpenVINO": (
            run_openvino,
            {x: (FIXED, "") for x in (SCORING, POOLING, HIERARCHICAL)}
            | {"decoder": (FIXED, "It needs a known number of steps")},
        ),
        "LiteRT": (run_litert, {SCORING: (FIXED, ""), "decoder": (FIXED, "Abstract tracer value")}),
    },
}[BACKEND]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind, (_, cells) in TABLE.items() for name in cells]
)
def test_an_export(kind, name, tmp_path):
    run, cells = TABLE[kind]
    known, stops = cells[name]
    model, batches = make_model(name, known)
    expected = [keras.ops.convert_to_numpy(model(arrays)) for arrays in batches]
    if stops:
        with pytest.raises(Exception, match=stops):
            run(model, batches, tmp_path)
        return
    for found, wanted in zip(run(model, batches, tmp_path), expected, strict=True):
        np.testing.assert_allclose(np.asarray(found), wanted, rtol=0, atol=1e-5)
