"""Exports from PyTorch, and to OpenVINO: the second table of docs/howto/export.md.

`KERAS_BACKEND=torch python -m pytest -m slow tests/conformance/test_other_formats.py` needs
onnxscript, openvino and litert-torch; on TensorFlow it needs openvino.
"""

import keras
import numpy as np
import pytest

from tests.backends import BACKEND
from tests.conformance.test_formats import make_model

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
    installed("onnxscript")
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


ANY, FIXED = False, True  # numbers of samples and steps
LAYERS = "bahdanau", "pooling", "hierarchical"
# For each function that exports and runs a model, layers and their sizes.
CELLS = {
    "tensorflow": {run_openvino: dict.fromkeys(LAYERS, ANY)},
    "torch": {
        run_torch: {**dict.fromkeys(LAYERS, ANY), "decoder": FIXED},
        run_onnx: dict.fromkeys((*LAYERS, "decoder"), FIXED),
        run_openvino: dict.fromkeys(LAYERS, FIXED),
        run_litert: {"bahdanau": FIXED},
    },
}.get(BACKEND, {})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("run", "name", "known"), [(run, *x) for run, cells in CELLS.items() for x in cells.items()]
)
def test_an_export(run, name, known, tmp_path):
    model, batches = make_model(name, known, unroll=known, samples=2 if known else None)
    expected = [keras.ops.convert_to_numpy(model(arrays)) for arrays in batches]
    for found, wanted in zip(run(model, batches, tmp_path), expected, strict=True):
        np.testing.assert_allclose(np.asarray(found), wanted, rtol=0, atol=1e-5)
