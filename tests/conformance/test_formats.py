"""Exported models: layer by format, the table of docs/howto/export.md.

Run all of it, some minutes, with
`python -m pytest -m "slow or exhaustive" tests/conformance/test_formats.py`.
"""

import inspect
import itertools

import keras
import numpy as np
import pytest
from keras import layers

from keras_attention import AttentionRNN
from tests import ROOT, fast
from tests.conformance.layers import CASES, slow_or_exhaustive

# The converters use what is deprecated in other packages.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")

EXPORTED = [
    pytest.param(n, marks=slow_or_exhaustive(case)) for n, case in CASES.items() if case.exported
]
# Numbers of samples and of additional steps. A model of unknown steps runs with both.
SIZES = [(2, 0), (3, 5)]


def make_model(name, steps_known=False, unroll=False, hidden=False, samples=None):
    """A functional model, and batches for it.

    With `hidden` it takes every mask that its layer takes, behind which the batches hold NaN.
    """
    keras.utils.set_random_seed(3)
    case, layer = CASES[name], CASES[name].make(unroll=unroll)
    shapes = zip(case.arguments, case.shapes(samples, known=steps_known), strict=True)
    inputs = [
        keras.Input(batch_shape=shape, dtype=argument.dtype, name=f"x{n}")
        for n, (argument, shape) in enumerate(shapes)
    ]
    if steps_known and getattr(layer, "has_state", False):
        # Its own loop cannot be unrolled, that of a decoder can.
        layer = AttentionRNN(layers.GRUCell(5), layer, unroll=unroll)
    tensors, masks = case.named(inputs).values(), [None] * len(inputs)
    for number in maskable(case) if hidden else ():
        shape = inputs[number].shape[:-1]
        masks[number] = keras.Input(batch_shape=shape, dtype="bool", name=f"x{len(inputs)}")
        inputs.append(masks[number])
    given = case.masks(masks)
    if isinstance(layer, AttentionRNN):
        names = {"query_mask": "sequences_mask", "value_mask": "memory_mask"}
        given = {names.get(name, name): mask for name, mask in given.items()}
    model = keras.Model(inputs, layer(*tensors, **given))
    batches, rng = [], np.random.default_rng(5)
    for count, more in SIZES[: 1 if steps_known else None]:
        arrays = case.tensors(count, more)
        for ids in (x for x in arrays if x.dtype == "int32"):
            ids[0, ..., -2:] = 0
        batches.append(arrays + (hide(case, arrays, rng) if hidden else []))
    return model, batches


def maskable(case):
    floats = [n for n, x in enumerate(case.arguments) if x.steps and x.size]
    return [n for n in floats if case.mask_of(case.arguments[n].name)]


def hide(case, arrays, rng):
    """Writes NaN where the masks are False, which it returns."""
    masks = {case.arguments[n].name: rng.random(arrays[n].shape[:-1]) < 0.7 for n in maskable(case)}
    for mask in masks.values():
        mask[..., 0], mask[..., -1] = True, False
    for argument, array in zip(case.arguments, arrays, strict=True):
        mask = masks.get("value" if argument.name == "key" else argument.name)
        if mask is not None:
            array[~mask] = np.nan
    return list(masks.values())


def run_saved_model(model, batches, folder):
    import tensorflow as tf

    model.export(str(folder / "model"), verbose=False)
    loaded = tf.saved_model.load(str(folder / "model"))
    return [loaded.serve(arrays) for arrays in batches]


def run_onnx(model, batches, folder):
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    pytest.importorskip("tf2onnx", reason="tf2onnx is not installed")
    model.export(str(folder / "model.onnx"), format="onnx", verbose=False)
    session = runtime.InferenceSession(str(folder / "model.onnx"))
    return [session.run(None, named(arrays))[0] for arrays in batches]


def run_litert(model, batches, folder):
    reason = "ai-edge-litert is not installed"
    interpreter = pytest.importorskip("ai_edge_litert.interpreter", reason=reason)
    model.export(str(folder / "model.tflite"), format="litert", verbose=False)
    signature = interpreter.Interpreter(str(folder / "model.tflite")).get_signature_runner()
    return [next(iter(signature(**named(arrays)).values())) for arrays in batches]


def named(arrays):
    return {f"x{number}": array for number, array in enumerate(arrays)}


# The function that runs a model, and the options of that model: LiteRT has no loops.
FORMATS = {
    "SavedModel": (run_saved_model, {}),
    "ONNX": (run_onnx, {}),
    "LiteRT": (run_litert, {"steps_known": True, "unroll": True}),
}


# Each with the masks of the layer, and NaN behind them, and without.
FORMS = [*itertools.product(FORMATS, [True, False])]


def assert_exports(name, kind, folder, **options):
    run, needed = FORMATS[kind]
    model, batches = make_model(name, **needed, **options)
    # The model that was trained has loops.
    trained, _ = make_model(name, **{**needed, "unroll": False}, **options)
    model.set_weights(trained.get_weights())
    model(batches[0])  # Keras exports to ONNX only a model that was called
    expected = [keras.ops.convert_to_numpy(trained(arrays)) for arrays in batches]
    for found, wanted in zip(run(model, batches, folder), expected, strict=True):
        assert np.abs(wanted).max() > 1e-3  # not with NaN
        np.testing.assert_allclose(np.asarray(found), wanted, rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", fast(FORMATS, ["ONNX"], slow=2))
def test_a_mask_is_exported(kind, tmp_path):
    assert_exports("luong general", kind, tmp_path, hidden=True)


@pytest.mark.parametrize("name", EXPORTED)
@pytest.mark.parametrize("form", fast(FORMS, [("ONNX", True), ("LiteRT", False)], slow=0), ids=str)
def test_every_export(form, name, tmp_path):
    kind, hidden = form
    assert_exports(name, kind, tmp_path, hidden=hidden and bool(maskable(CASES[name])))


@pytest.mark.slow
def test_a_search_in_numpy_writes_what_generate_does(tmp_path, capsys):
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    pytest.importorskip("tf2onnx", reason="tf2onnx is not installed")
    from examples import search_onnx

    assert len(inspect.getsource(search_onnx.beam_search).splitlines()) <= 60
    search_onnx.main(["--model", str(ROOT / "models/dates.keras"), "--output", str(tmp_path)])
    assert "1000 of 1000 outputs equal" in capsys.readouterr().out
