"""Exported models: layer by format, the table of docs/guide.md.

Run all of it, some minutes, with `python -m pytest -m slow tests/test_formats.py`.
"""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

import keras_attention
from keras_attention import (
    AttentionPooling,
    AttentionRNN,
    BahdanauAttention,
    BiDAFAttentionFlow,
    HierarchicalAttention,
    LuongAttention,
    MemoryHop,
    MemoryNetwork,
)

# Of the converters, about what they use themselves.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")

B, T = 2, 6


def two(layer):
    return lambda steps: (layer(), [(steps, 5), (steps, 7)])


def masked(query, ids):
    """A mask on its own way, from an embedding."""
    return BahdanauAttention(9)(query, layers.Embedding(11, 7, mask_zero=True)(ids))


# Each a function of the number of steps, None if unknown: the layer and shapes of its inputs; those
# without a last axis of features are ids.
CASES = {
    "BahdanauAttention": two(lambda: BahdanauAttention(9)),
    "BahdanauAttention, mask": lambda steps: (masked, [(steps, 5), (steps,)]),
    "BahdanauAttention, sparsemax": two(lambda: BahdanauAttention(9, normalizer="sparsemax")),
    "LuongAttention, general": two(LuongAttention),
    "LuongAttention, concat": two(lambda: LuongAttention("concat")),
    "LuongAttention, location": two(lambda: LuongAttention("location", max_length=T)),
    "LuongAttention, local-m": two(lambda: LuongAttention(alignment="local-m", window=1)),
    "LuongAttention, local-p": two(lambda: LuongAttention(alignment="local-p", window=1)),
    "BiDAFAttentionFlow": lambda steps: (BiDAFAttentionFlow(), [(steps, 5), (steps, 5)]),
    "AttentionPooling": lambda steps: (AttentionPooling(9), [(steps, 5)]),
    "HierarchicalAttention": lambda steps: (HierarchicalAttention(9), [(steps, steps, 5)]),
    "MemoryHop": lambda steps: (MemoryHop(), [(5,), (steps, 5)]),
    "MemoryNetwork": lambda steps: (MemoryNetwork(11, 5, hops=2), [(steps, steps), (steps,)]),
    "AttentionRNN": lambda steps: (
        AttentionRNN(layers.GRUCell(5), BahdanauAttention(9)),
        [(steps, 5), (steps, 7)],
    ),
}
OF_IDS = {("BahdanauAttention, mask", 1), ("MemoryNetwork", 0), ("MemoryNetwork", 1)}
LAYERS = {name.split(",")[0] for name in CASES}


def make_model(case, steps):
    """A functional model, and a batch for it."""
    keras.utils.set_random_seed(3)
    layer, shapes = CASES[case](steps)
    rng, inputs, arrays = np.random.default_rng(5), [], []
    for number, shape in enumerate(shapes):
        sizes = (B, *(n or T for n in shape))
        ids = (case, number) in OF_IDS
        inputs.append(keras.Input(shape, dtype="int32" if ids else "float32", name=f"x{number}"))
        made = rng.integers(1, 11, sizes) if ids else rng.normal(size=sizes)
        if ids:
            made[0, ..., -2:] = 0
        arrays.append(made.astype("int32" if ids else "float32"))
    return keras.Model(inputs, layer(*inputs)), arrays


def run_saved_model(model, arrays, folder):
    model.export(str(folder / "model"), verbose=False)
    loaded = tf.saved_model.load(str(folder / "model"))
    return loaded.serve(arrays)


def run_onnx(model, arrays, folder):
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    pytest.importorskip("tf2onnx", reason="tf2onnx is not installed")
    model.export(str(folder / "model.onnx"), format="onnx", verbose=False)
    session = runtime.InferenceSession(str(folder / "model.onnx"))
    return session.run(None, {f"x{n}": x for n, x in enumerate(arrays)})[0]


def run_litert(model, arrays, folder):
    interpreter = pytest.importorskip(
        "ai_edge_litert.interpreter", reason="ai-edge-litert is not installed"
    )
    model.export(str(folder / "model.tflite"), format="litert", verbose=False)
    signature = interpreter.Interpreter(str(folder / "model.tflite")).get_signature_runner()
    return next(iter(signature(**{f"x{n}": x for n, x in enumerate(arrays)}).values()))


# What runs a model, and the number of steps that it is made for.
FORMATS = {
    "SavedModel": (run_saved_model, None),
    "ONNX": (run_onnx, None),
    "LiteRT": (run_litert, T),
}


def assert_exports(case, kind, folder):
    run, steps = FORMATS[kind]
    model, arrays = make_model(case, steps)
    expected = keras.ops.convert_to_numpy(model(arrays))
    assert np.abs(expected).max() > 1e-3
    found = np.asarray(run(model, arrays, folder))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


def test_no_layer_is_missing():
    public = [getattr(keras_attention, name) for name in keras_attention.__all__]
    of_keras = [x for x in public if isinstance(x, type) and issubclass(x, keras.layers.Layer)]
    assert {x.__name__ for x in of_keras} == LAYERS


@pytest.mark.parametrize("kind", ["ONNX", "LiteRT"])
def test_one_export(kind, tmp_path):
    assert_exports("BahdanauAttention, mask", kind, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("kind", FORMATS)
def test_every_export(kind, case, tmp_path):
    if (kind, case) == ("LiteRT", "AttentionRNN"):
        # Its loop needs operations of TensorFlow beside LiteRT's own.
        with pytest.raises(RuntimeError, match=r"Select TensorFlow op\(s\)"):
            assert_exports(case, kind, tmp_path)
    else:
        assert_exports(case, kind, tmp_path)
