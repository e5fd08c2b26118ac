"""Hierarchical attention with any encoders against loops of the paper."""

import keras
import numpy as np
import pytest
from keras import layers, ops

from keras_attention import AttentionPooling, HierarchicalAttention
from tests import helpers, oracles
from tests.backends import BACKEND, dtypes
from tests.helpers import assert_all_close, assert_close, assert_gradients, numpy
from tests.layers.papers import run

B, S, W, D, U, V = 3, 5, 7, 2, 11, 13


def gru(units, dtype):
    # There is no orthogonal initializer for half precision.
    options = {"recurrent_initializer": "glorot_uniform", "dtype": dtype}
    return layers.GRU(units, return_sequences=True, **options)


def bidirectional(units, dtype):
    return layers.Bidirectional(gru(units, dtype), dtype=dtype)


def functional(units, dtype, size):
    inputs = keras.Input((None, size), dtype=keras.DTypePolicy(dtype).compute_dtype)
    hidden = layers.Dense(units, "tanh", dtype=dtype)(inputs)
    return keras.Model(inputs, gru(units, dtype)(hidden))


# A function from units, dtype and number of features to an encoder.
ENCODERS = {
    "gru": lambda units, dtype, size: gru(units, dtype),
    "bidirectional": lambda units, dtype, size: bidirectional(units, dtype),
    "dense": lambda units, dtype, size: layers.Dense(units, "tanh", dtype=dtype),
    "conv": lambda units, dtype, size: layers.Conv1D(units, 3, 1, "same", dtype=dtype),
    "functional": functional,
    "sequential": lambda units, dtype, size: keras.Sequential(
        [bidirectional(units, dtype), layers.Dense(units, "tanh", dtype=dtype)]
    ),
}
every_encoder = pytest.mark.parametrize("kind", ENCODERS)

# Gaps, padding in front and behind; of the first document the second sentence and the last are
# empty; of the second all but one word; of the third nothing is left.
MASK = np.ones((B, S, W), bool)
MASK[0, 0, :3] = MASK[0, 2, 4] = MASK[0, 3, 2:] = False
MASK[0, [1, 4]] = False
MASK[1] = False
MASK[1, 2, 3] = True
MASK[2] = False


def made(kind=None, dtype="float64", word=True, sentence=True, **options):
    encoders, size = {}, (6 if kind == "bidirectional" else 3) if word else D
    if kind is not None and word:
        encoders["word_encoder"] = ENCODERS[kind](3, dtype, D)
    if kind is not None and sentence:
        encoders["sentence_encoder"] = ENCODERS[kind](2, dtype, size)
    return HierarchicalAttention(U, V, **encoders, dtype=dtype, **options)


def built(kind=None, scale=0.5, **kwargs):
    layer = made(kind, **kwargs)
    layer.build((None, None, None, D))
    return helpers.randomize(layer, scale=scale)


def documents(dtype="float64", seed=1):
    return helpers.normal(seed, B, S, W, D, dtype=dtype)


def oracle_of(encoder, arrays):
    if isinstance(encoder, keras.Sequential):
        (encoder,) = encoder.layers
    if isinstance(encoder, layers.Dense):
        return oracles.dense(*arrays)
    if isinstance(encoder, layers.GRU):
        return oracles.recurrent(oracles.gru(*arrays), encoder.units)
    units = encoder.forward_layer.units
    ways = [oracles.recurrent(oracles.gru(*way), units) for way in (arrays[:3], arrays[3:])]
    return oracles.both_ways(*ways)


def paper(layer, inputs, weights=None, mask=None):
    arrays = weights or helpers.weight_arrays(layer)
    known = dict(zip(map(id, layer.trainable_weights), arrays, strict=True))
    pools, encoders = [], []
    for level in ("word", "sentence"):
        pool, encoder = (getattr(layer, f"{level}_{x}") for x in ("attention", "encoder"))
        pools.append({w.name: known[id(w)] for w in pool.trainable_weights})
        own = [known[id(w)] for w in encoder.trainable_weights] if encoder else None
        encoders.append(encoder and oracle_of(encoder, own))
    return oracles.hierarchical_attention(*pools, inputs, *encoders, layer.normalizer, mask)


@pytest.mark.parametrize("normalizer", ["softmax", "sparsemax"])
@pytest.mark.parametrize(("kind", "dtype", "levels"), [
    *((kind, "float64", {}) for kind in (None, "dense", "gru", "bidirectional")),
    *((kind, x, {}) for kind in (None, "dense") for x in ("float32", "bfloat16", "float16")),
    *(("bidirectional", "float64", {level: False}) for level in ("word", "sentence")),
])  # fmt: skip
@pytest.mark.each_value
def test_equals_the_paper(normalizer, kind, dtype, levels):
    double = dtype == "float64"
    options = {"normalizer": normalizer, "scale": 1.0 if double else 0.5, **levels}
    layer = built(kind, dtype=dtype, **options)
    for mask in (None, MASK):
        inputs = documents(dtype) / (1 if double else 2)
        result = run(layer, inputs, mask=mask)
        assert dtypes(*result) == [dtype] * 3
        # Two attentions, one after the other, and an encoder before each: half a unit for a layer.
        before = 1 if kind is None else 2
        assert_all_close(result, paper(layer, inputs, mask=mask), dtype, before=before)
        assert_close(layer(inputs, mask=mask), numpy(result[0]), dtype)


@pytest.mark.parametrize(("kind", "normalizer", "jit"), [
    ("gru", "softmax", False), ("dense", "sparsemax", False), (None, "softmax", True),
])  # fmt: skip
def test_gradients_are_those_of_the_paper(kind, normalizer, jit):
    layer = built(kind, normalizer=normalizer)

    def oracle(inputs, weights):
        return paper(layer, *inputs, weights=weights, mask=MASK[:2])

    inputs = [documents()[:2]]
    assert_gradients(layer, lambda x: run(layer, x, mask=MASK[:2]), inputs, oracle, jit=jit)


LONGER = {"documents": (0, [0, 1, B]), "sentences": (1, [0, 2, S]), "words": (2, [0, 4, W])}


@every_encoder
@pytest.mark.parametrize("axis", LONGER)
@pytest.mark.each_value
def test_masking_is_truncating_whatever_the_padding_holds(kind, axis):
    axis, places = LONGER[axis]
    if kind == "conv" and axis > 0:
        # A convolution sees padding in the middle as a gap.
        places = [places[0], places[-1]]
    layer, call = built(kind), lambda x, mask: run(layer, x, mask=mask)
    helpers.assert_masking_is_truncating(layer, call, [documents()], [0], places, axis)


@pytest.mark.parametrize("kind", [None, "bidirectional", "conv", "functional"])
def test_nothing_valid_means_zero(kind):
    """The first document has an empty sentence, the second nothing but empty ones."""
    layer = built(kind, dtype="mixed_float16")
    inputs, mask = documents("bfloat16"), np.ones((B, S, W), bool)
    mask[0, 2], mask[1] = False, False
    inputs = ops.cast(np.where(mask[..., None], inputs, np.nan), layer.compute_dtype)
    outputs, found = helpers.gradients(layer, lambda x: run(layer, x, mask=mask), [inputs])
    outputs, found = [numpy(x) for x in outputs], [numpy(x) for x in found]
    assert all(np.isfinite(x).all() for x in (*outputs, *found))
    assert not any(x[1].any() for x in outputs)
    _, words, sentences = outputs
    assert np.array_equal(words[0] > 0, mask[0])
    assert np.array_equal(sentences[0] > 0, mask[0].any(axis=1))
    assert not found[0][~mask].any()
    assert all(x.any() for x in (outputs[0][0], *(y[2] for y in outputs), *found))


@pytest.mark.parametrize("kind", [None, "conv"])
@pytest.mark.parametrize("shape", [(B, S, 0), (B, 0, W), (0, S, W)])
def test_no_words_no_sentences_and_no_documents(kind, shape):
    if kind == "conv" and BACKEND == "torch" and shape[2] * shape[1] == 0:
        pytest.skip("PyTorch has no convolution over no steps")
    layer = built(kind)
    for mask in (None, np.ones(shape, bool)):
        result = run(layer, np.ones((*shape, D)), mask=mask)
        size = D if kind is None else 2
        assert [tuple(x.shape) for x in result] == [(shape[0], size), shape, shape[:2]]
        assert all(np.isfinite(numpy(x)).all() for x in result)


class Seen(layers.Layer):  # an encoder that returns its inputs and takes no mask
    calls, mask = 0, None

    def call(self, inputs):
        self.calls, self.inputs = self.calls + 1, inputs
        return inputs


class SeenMask(Seen):  # the same encoder with a mask
    def call(self, inputs, mask=None):
        self.mask = mask
        return super().call(inputs)


@pytest.mark.parametrize("kind", [Seen, SeenMask])
@pytest.mark.parametrize("mask", [None, MASK], ids=["whole", "masked"])
def test_all_sentences_are_encoded_in_one_call_with_zeros_for_padding(kind, mask):
    word, sentence = kind(), kind()
    layer = HierarchicalAttention(U, word_encoder=word, sentence_encoder=sentence)
    layer.build((None, None, None, D))
    word.calls = sentence.calls = 0
    inputs, valid = documents("float32"), np.ones_like(MASK) if mask is None else mask
    layer(np.where(valid[..., None], inputs, np.nan), mask=mask)
    for encoder, shape in ((word, (B * S, W, D)), (sentence, (B, S, D))):
        assert (encoder.calls, tuple(encoder.inputs.shape)) == (1, shape)
    expected = np.where(valid[..., None], inputs, 0).reshape(B * S, W, D)
    assert np.array_equal(word.inputs, expected.astype("float32"))
    assert not numpy(sentence.inputs)[~valid.any(axis=2)].any()
    for encoder, own in ((word, valid.reshape(B * S, W)), (sentence, valid.any(axis=2))):
        # An empty row has one step, which cuDNN demands.
        first = (np.arange(own.shape[1]) == 0) & ~own.any(axis=1, keepdims=True)
        expected = None if kind is Seen or mask is None else own | first
        assert np.array_equal(encoder.mask, expected)


@pytest.mark.parametrize("kind", ["conv", "gru", "ending in one"])
def test_an_encoder_does_not_warn_of_its_mask(kind):
    """From Keras 3.16 on a last recurrent layer would, but the attention itself gets the mask."""
    encoder = ENCODERS.get(kind, ENCODERS["bidirectional"])(3, "float32", D)
    if kind not in ENCODERS:
        encoder = keras.Sequential([layers.Dense(4), encoder])
    HierarchicalAttention(U, word_encoder=encoder)(documents("float32"), mask=MASK)


def test_a_mask_lost_inside_an_encoder_warns():
    """The convolution drops the mask, so the recurrent layer reads the padding, as in any model."""
    convolution = layers.Conv1D(3, 3, padding="same")
    encoder = keras.Sequential([keras.Input((None, D)), convolution, gru(3, "float32")])
    layer = HierarchicalAttention(U, word_encoder=encoder)
    with pytest.warns(UserWarning, match=f"{convolution.name}.*does not support masking"):
        layer(documents("float32"), mask=MASK)


@keras.saving.register_keras_serializable(package="test_hierarchical")
class SparseWords(HierarchicalAttention):  # has another pooling for its words
    def make_pooling(self, name, units, seed):
        if name == "word_attention":
            return AttentionPooling(3, normalizer="sparsemax", name=name)
        return super().make_pooling(name, units, seed)


def test_a_subclass_with_its_own_pooling(tmp_path):
    inputs = keras.Input((None, None, D))
    model = keras.Model(inputs, run(SparseWords(U, V), inputs))
    model.save(tmp_path / "model.keras")
    for layer in (model.layers[-1], keras.saving.load_model(tmp_path / "model.keras").layers[-1]):
        pools = layer.word_attention, layer.sentence_attention
        assert [(x.units, x.normalizer) for x in pools] == [(3, "sparsemax"), (V, "softmax")]


def test_options_reach_both_attentions():
    options = {"normalizer": "sparsemax", "dropout": 0.3, "dtype": "mixed_float16"}
    layer = HierarchicalAttention(U, V, seed=7, **options)
    # With one seed both would drop the same weights.
    for pool, own in ((layer.word_attention, (U, 7)), (layer.sentence_attention, (V, 8))):
        assert (pool.units, pool.seed) == own
        assert (pool.normalizer, pool.dropout) == ("sparsemax", 0.3)
        assert pool.dtype_policy == layer.dtype_policy
    assert HierarchicalAttention(U).sentence_attention.units == U


def test_dropout_is_for_training_and_the_weights_are_those_before_it():
    # Without an encoder dropout changes nothing but the vectors of the sentences.
    layer, twin = (built(dropout=0.4, seed=3, dtype="mixed_float16") for _ in range(2))
    quiet, words, _ = (numpy(x) for x in run(layer, documents(), mask=MASK))
    assert np.array_equal(numpy(layer(documents(), mask=MASK, training=False)), quiet)
    calls = [run(x, documents(), mask=MASK, training=True) for x in (layer, layer, twin)]
    first, second, repeated = (numpy(x[0]) for x in calls)
    assert not np.isclose(first[:2], quiet[:2]).all()
    assert not np.isclose(first, second).all()
    assert np.array_equal(repeated, first)
    assert np.array_equal(numpy(calls[0][1]), words)
    total = numpy(calls[0][2]).sum(axis=1)
    assert_close(total, MASK.any(axis=(1, 2)).astype(float), "float16")


LEVELS = "word", "sentence"


def han(level, encoder):
    return HierarchicalAttention(U, name="han", **{f"{level}_encoder": encoder})


@pytest.mark.parametrize("level", LEVELS)
def test_encoders_know_whether_this_is_training(level):
    layer = han(level, layers.SpatialDropout1D(0.5, seed=1))
    quiet, same, other = (numpy(layer(documents(), training=x)) for x in (None, False, True))
    assert np.array_equal(same, quiet)
    assert not np.isclose(other, quiet).all()


BAD_ENCODERS = {
    "no time axis": (lambda: layers.GRU(3), "of shape ({0}, 3)"),
    "states": (
        lambda: layers.GRU(3, return_sequences=True, return_state=True), "), float32 of shape ("),
    "shorter": (lambda: layers.Conv1D(D, 2), "of shape ({0}, {1}, 2)"),
    "one more axis": (lambda: layers.Reshape((-1, 1, 2)), "of shape ({0}, "),
    "a dictionary": (lambda: layers.Lambda(lambda x: {"encoded": x}), "received {{'encoded'"),
}  # fmt: skip


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("way", ["eager", "symbolic", "build"])
@pytest.mark.parametrize(("make", "fragment"), BAD_ENCODERS.values(), ids=BAD_ENCODERS)
@pytest.mark.each_value
def test_encoders_that_do_not_return_a_vector_for_every_step(level, way, make, fragment):
    layer = han(level, make())
    calls = {
        "eager": lambda: layer(documents()),
        "symbolic": lambda: layer(keras.Input(batch_shape=(B, S, W, D))),
        "build": lambda: layer.build((B, S, W, D)),
    }
    fragment = fragment.format(*((None, W - 1) if level == "word" else (B, S - 1)))
    message = f"han: `{level}_encoder` must return values of shape (", "return_sequences=True"
    helpers.assert_refused(calls[way], *message, fragment)


ENCODER = "_encoder` must be None, or a layer that returns a vector", "return_sequences=True"
test_wrong_encoders = helpers.refusals(
    *((lambda level=level, x=x: han(level, x),
       f"han: `{level}", *ENCODER, f"received {'the class GRU' if x is layers.GRU else repr(x)}")
      for level in LEVELS for x in (layers.GRU, len, [layers.Dense(2)], False)),
    # One that shortens is found when the layer is built, even for unknown sizes.
    *((lambda level=level: han(level, layers.Conv1D(D, 2))(keras.Input((None, None, D))),
       f"han: `{level}_encoder` must return", f"(None, 6, {D})") for level in LEVELS),
)  # fmt: skip


def test_a_mask_that_an_encoder_makes_stays_its_own():
    encoder = keras.Sequential([layers.Masking(), layers.GRU(3, return_sequences=True)])
    inputs = documents("float32")
    inputs[0, 1] = 0
    _, words, sentences = run(HierarchicalAttention(U, word_encoder=encoder), inputs)
    assert numpy(words)[0, 1].all()
    assert numpy(sentences).all()


@pytest.mark.parametrize("prepared", [False, True])
@pytest.mark.parametrize(("kind", "size"), [("bidirectional", 4), ("sequential", 2)])
@pytest.mark.each_value
def test_asking_for_the_shape_changes_nothing(kind, size, prepared):
    layer = (built if prepared else made)(kind, dtype="float32")
    before = len(layer.weights)
    for shape in ((None, None, None), (B, S, W), (B, S + 2, W + 2)):
        assert layer.compute_output_shape((*shape, D)) == (shape[0], size)
    assert (layer.built, len(layer.weights)) == (prepared, before)
