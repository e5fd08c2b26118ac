"""Exports from PyTorch and JAX, and to OpenVINO: the second table of docs/howto/export.md.

`KERAS_BACKEND=torch python -m pytest -m "slow or exhaustive" tests/conformance/test_other_formats.py`
needs onnxscript and openvino, on JAX jax2onnx.
"""

import pytest

# The converters use what is deprecated in other packages.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


def installed(name):
    return pytest.importorskip(name, reason=f"{name} is not installed")


def run_torch(model, batches, folder):
    import torch

    sizes = [
        ({n: torch.export.Dim.AUTO for n, x in enumerate(i.shape) if x is None})
        for i in model.inputs
    ]
    path, signature = str(folder / "model.pt2"), [model.inputs]
    dynamic = {"dynamic_shapes": [(sizes,)]} if any(sizes) else {}
    model.export(path, format="torch", input_signature=signature, verbose=False, **dynamic)
    module = torch.export.load(path).module()
    return [module(list(map(torch.tensor, arrays))).detach() for arrays in batches]
