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

# Samples and steps, of which a model of any number of steps is run with both.
SIZES = [(2, 6), (3, 4)]
T = max(steps for _, steps in SIZES)


def two(layer):
    return lambda steps: (layer(), [(steps, 5), (steps, 7)])


def encoder(steps):
    # A loop needs operations that LiteRT does not have.
    return layers.Bidirectional(layers.GRU(3, return_sequences=True, unroll=bool(steps)))


def masked(query, ids):
    """A mask on its own way, from an embedding."""
    return BahdanauAttention(9)(query, layers.Embedding(11, 7, mask_zero=True)(ids))


# Each a function of the number of steps, None if unknown: the layer and shapes of its inputs; those
# without a last axis of features are ids.
CASES = {
    "BahdanauAttention": two(lambda: BahdanauAttention(9)),
    "BahdanauAttention, mask": lambda steps: (masked, [(steps, 5), (steps,)]),
    "BahdanauAttention, sparsemax": two(lambda: BahdanauAttention(9, normalizer="sparsemax")),
    "LuongAttention, dot": lambda steps: (LuongAttention("dot"), [(steps, 5), (steps, 5)]),
    "LuongAttention, general": two(LuongAttention),
    "LuongAttention, concat": two(lambda: LuongAttention("concat")),
    "LuongAttention, location": two(lambda: LuongAttention("location", max_length=T)),
    "LuongAttention, local-m": two(lambda: LuongAttention(alignment="local-m", half_width=1)),
    "LuongAttention, local-p": two(lambda: LuongAttention(alignment="local-p", half_width=1)),
    "BiDAFAttentionFlow": lambda steps: (BiDAFAttentionFlow(), [(steps, 5), (steps, 5)]),
    "AttentionPooling": lambda steps: (AttentionPooling(9), [(steps, 5)]),
    "HierarchicalAttention": lambda steps: (HierarchicalAttention(9), [(steps, steps, 5)]),
    "HierarchicalAttention, encoders": lambda steps: (
        HierarchicalAttention(9, word_encoder=encoder(steps), sentence_encoder=encoder(steps)),
        [(steps, steps, 5)],
    ),
    "MemoryHop": lambda steps: (MemoryHop(), [(5,), (steps, 5)]),
    "MemoryNetwork": lambda steps: (MemoryNetwork(11, 5, hops=2), [(steps, steps), (steps,)]),
    "AttentionRNN": lambda steps: (
        AttentionRNN(layers.GRUCell(5), BahdanauAttention(9), unroll=bool(steps)),
        [(steps, 5), (steps, 7)],
    ),
    "AttentionRNN, input feeding": lambda steps: (
        AttentionRNN(
            layers.LSTMCell(5), LuongAttention(units=3), input_feeding=True, unroll=bool(steps)
        ),
        [(steps, 5), (steps, 7)],
    ),
}
OF_IDS = {("BahdanauAttention, mask", 1), ("MemoryNetwork", 0), ("MemoryNetwork", 1)}
LAYERS = {name.split(",")[0] for name in CASES}


def make_model(case, steps):
    """A functional model, and batches for it."""
    keras.utils.set_random_seed(3)
    layer, shapes = CASES[case](steps)
    dtypes = ["int32" if (case, n) in OF_IDS else "float32" for n in range(len(shapes))]
    inputs = [
        keras.Input(shape, dtype=dtype, name=f"x{number}")
        for number, (shape, dtype) in enumerate(zip(shapes, dtypes, strict=True))
    ]
    rng, batches = np.random.default_rng(5), []
    for samples, length in SIZES[: 1 if steps else None]:
        batches.append([])
        for shape, dtype in zip(shapes, dtypes, strict=True):
            sizes = (samples, *(n or length for n in shape))
            made = rng.integers(1, 11, sizes) if dtype == "int32" else rng.normal(size=sizes)
            if dtype == "int32":
                made[0, ..., -2:] = 0
            batches[-1].append(made.astype(dtype))
    return keras.Model(inputs, layer(*inputs)), batches


def run_saved_model(model, batches, folder):
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
    interpreter = pytest.importorskip(
        "ai_edge_litert.interpreter", reason="ai-edge-litert is not installed"
    )
    model.export(str(folder / "model.tflite"), format="litert", verbose=False)
    signature = interpreter.Interpreter(str(folder / "model.tflite")).get_signature_runner()
    return [next(iter(signature(**named(arrays)).values())) for arrays in batches]


def named(arrays):
    return {f"x{number}": array for number, array in enumerate(arrays)}


# What runs a model, and the number of steps that it is made for.
FORMATS = {
    "SavedModel": (run_saved_model, None),
    "ONNX": (run_onnx, None),
    "LiteRT": (run_litert, T),
}


def assert_exports(case, kind, folder):
    run, steps = FORMATS[kind]
    model, batches = make_model(case, steps)
    # Before the export: Keras's to ONNX refuses a model that was never called.
    expected = [keras.ops.convert_to_numpy(model(arrays)) for arrays in batches]
    for found, wanted in zip(run(model, batches, folder), expected, strict=True):
        assert np.abs(wanted).max() > 1e-3
        np.testing.assert_allclose(np.asarray(found), wanted, rtol=0, atol=1e-5)


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
    assert_exports(case, kind, tmp_path)


@pytest.mark.slow
def test_a_loop_needs_more_than_litert(tmp_path):
    decoder = AttentionRNN(layers.GRUCell(5), BahdanauAttention(9))
    inputs = [keras.Input((T, 5), name="x0"), keras.Input((T, 7), name="x1")]
    model = keras.Model(inputs, decoder(*inputs))
    batches = [[np.ones((2, T, 5), "float32"), np.ones((2, T, 7), "float32")]]
    with pytest.raises(RuntimeError, match=r"Select TensorFlow op\(s\)"):
        run_litert(model, batches, tmp_path)
