"""Hierarchical attention with any encoders against loops of the paper."""

import warnings

import keras
import numpy as np
import pytest
from keras import layers, ops

from keras_attention import AttentionPooling, HierarchicalAttention
from tests import fast, oracles
from tests.backends import BACKEND, dtypes, only_on
from tests.helpers import (
    TOLERANCES,
    assert_all_close,
    assert_close,
    assert_gradients,
    assert_masking_is_truncating,
    assert_refused,
    gradients,
    normal,
    numpy,
    randomize,
    weight_arrays,
)

B, S, W, D, U, V = 3, 5, 7, 2, 11, 13


def gru(units, dtype):
    # There is no orthogonal initializer for half precision.
    return layers.GRU(
        units, return_sequences=True, recurrent_initializer="glorot_uniform", dtype=dtype
    )


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
    "conv": lambda units, dtype, size: layers.Conv1D(
        units, 3, padding="same", activation="tanh", dtype=dtype
    ),
    "functional": functional,
    "sequential": lambda units, dtype, size: keras.Sequential(
        [bidirectional(units, dtype), layers.Dense(units, "tanh", dtype=dtype)]
    ),
}
every_encoder = pytest.mark.parametrize("kind", ENCODERS)
# For tests that take seconds a kind.
FEW = (None, "conv")
few_encoders = pytest.mark.parametrize("kind", fast([None, *ENCODERS], FEW))
every_normalizer = pytest.mark.parametrize("normalizer", ["softmax", "sparsemax"])

# Gaps, padding in front and behind; of the first document the second sentence and the last are
# empty; of the second all but one word; of the third nothing is left.
MASK = np.ones((B, S, W), bool)
MASK[0, 0, :3] = MASK[0, 2, 4] = MASK[0, 3, 2:] = False
MASK[0, [1, 4]] = False
MASK[1] = False
MASK[1, 2, 3] = True
MASK[2] = False


def made(kind=None, dtype="float64", word=True, sentence=True, **options):
    """A layer with encoders of the kind at both levels, or at one of them."""
    encoders = {}
    if kind is not None and word:
        encoders["word_encoder"] = ENCODERS[kind](3, dtype, D)
    if kind is not None and sentence:
        size = D
        if word:
            size = 6 if kind == "bidirectional" else 3
        encoders["sentence_encoder"] = ENCODERS[kind](2, dtype, size)
    return HierarchicalAttention(U, V, **encoders, dtype=dtype, **options)


def built(kind=None, scale=0.5, **kwargs):
    layer = made(kind, **kwargs)
    layer.build((None, None, None, D))
    return randomize(layer, scale=scale)


def documents(dtype="float64", seed=1):
    return normal(seed, B, S, W, D, dtype=dtype)


def run(layer, inputs, **kwargs):
    """The documents, the weights of the words and those of the sentences, in a list."""
    document, (words, sentences) = layer(inputs, return_attention_scores=True, **kwargs)
    return [document, words, sentences]


def oracle_of(encoder, arrays):
    if encoder is None:
        return None
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
    arrays = weights or weight_arrays(layer)
    known = {id(w): x for w, x in zip(layer.trainable_weights, arrays, strict=True)}

    def of(part):
        return [known[id(w)] for w in part.trainable_weights] if part is not None else []

    pools = [
        dict(zip([w.name for w in pool.trainable_weights], of(pool), strict=True))
        for pool in (layer.word_attention, layer.sentence_attention)
    ]
    encoders = [oracle_of(x, of(x)) for x in (layer.word_encoder, layer.sentence_encoder)]
    found = oracles.hierarchical_attention(*pools, inputs, *encoders, layer.normalizer, mask)
    return list(found)


@every_normalizer
@pytest.mark.parametrize(
    ("kind", "dtype"),
    [
        *((kind, "float64") for kind in (None, "dense", "gru", "bidirectional")),
        *((kind, x) for kind in (None, "dense") for x in ("float32", "bfloat16", "float16")),
    ],
)
@pytest.mark.each_value
def test_equals_the_paper(normalizer, kind, dtype):
    double = dtype == "float64"
    layer = built(kind, dtype=dtype, normalizer=normalizer, scale=1.0 if double else 0.5)
    for mask in (None, MASK):
        inputs = documents(dtype) / (1 if double else 2)
        result = run(layer, inputs, mask=mask)
        assert dtypes(*result) == [dtype] * 3
        # Two attentions, one after the other.
        assert_all_close(result, paper(layer, inputs, mask=mask), dtype, before=1)
        assert_close(layer(inputs, mask=mask), numpy(result[0]), dtype)


@pytest.mark.parametrize("level", ["word", "sentence"])
def test_one_encoder_alone(level):
    layer = built("bidirectional", word=level == "word", sentence=level == "sentence")
    assert (layer.word_encoder is None) == (level == "sentence")
    assert (layer.sentence_encoder is None) == (level == "word")
    result = run(layer, documents(), mask=MASK)
    assert_all_close(result, paper(layer, documents(), mask=MASK))


@only_on("tensorflow", "jax", reason="Keras fails to unroll a backward layer with a mask")
@pytest.mark.parametrize("nested", [False, True])
def test_unrolled_encoders(nested):
    def encoder(units):
        rnn = layers.GRU(units, return_sequences=True, unroll=True, dtype="float64")
        both = layers.Bidirectional(rnn, dtype="float64")
        return keras.Sequential([both]) if nested else both

    layer = HierarchicalAttention(U, V, encoder(3), encoder(2), dtype="float64")
    layer.build((None, S, W, D))
    result = run(randomize(layer), documents(), mask=MASK)
    assert_all_close(result, paper(layer, documents(), mask=MASK))


@pytest.mark.parametrize(
    ("kind", "normalizer", "jit"),
    [
        *((kind, name, False) for kind in (None, "gru") for name in ("softmax", "sparsemax")),
        ("dense", "softmax", False),
        (None, "softmax", True),
        pytest.param("dense", "sparsemax", True, marks=pytest.mark.slow),
    ],
)
def test_gradients_are_those_of_the_paper(kind, normalizer, jit):
    layer = built(kind, normalizer=normalizer)

    def oracle(inputs, weights):
        return paper(layer, *inputs, weights=weights, mask=MASK[:2])

    def call(inputs):
        return run(layer, inputs, mask=MASK[:2])

    assert_gradients(layer, call, [documents()[:2]], oracle, jit=jit)


LONGER = {"documents": (0, [0, 1, B]), "sentences": (1, [0, 2, S]), "words": (2, [0, 4, W])}


@every_encoder
@pytest.mark.parametrize("axis", LONGER)
@pytest.mark.each_value
def test_masking_is_truncating_whatever_the_padding_holds(kind, axis):
    """Padding stands in front, in the middle and behind."""
    axis, places = LONGER[axis]
    if kind == "conv" and axis > 0:
        # A convolution sees padding in the middle as a gap.
        places = [places[0], places[-1]]
    layer = built(kind)

    def call(inputs, mask):
        return run(layer, inputs, mask=mask)

    assert_masking_is_truncating(layer, call, [documents()], [0], places, axis)


def test_values_in_gaps_of_a_convolution_do_not_matter():
    layer, results = built("conv"), []
    for fill in (0.0, 3.0, np.inf, np.nan):
        inputs = np.where(MASK[..., None], documents(), fill)
        outputs, found = gradients(layer, lambda x: run(layer, x, mask=MASK), [inputs])
        assert not numpy(found[0])[~MASK].any()
        results.append([*outputs, *found])
    for other in results[1:]:
        assert_all_close(other, results[0], times=0.5)


@pytest.mark.parametrize(
    ("kind", "dtype", "jit"),
    [
        *((kind, "mixed_float16", False) for kind in (None, *ENCODERS)),
        *((None, dtype, False) for dtype in (*TOLERANCES, "mixed_bfloat16")),
        # The conformance tests compile recurrent encoders.
        (None, "mixed_float16", True),
        pytest.param("conv", "mixed_bfloat16", True, marks=pytest.mark.slow),
    ],
)
def test_nothing_valid_means_zero(kind, dtype, jit):
    """The first document has an empty sentence, the second nothing but empty ones."""
    layer = built(kind, dtype=dtype)
    inputs, mask = documents("bfloat16"), np.ones((B, S, W), bool)
    mask[0, 2], mask[1] = False, False
    inputs = ops.cast(np.where(mask[..., None], inputs, np.nan), layer.compute_dtype)
    outputs, found = gradients(layer, lambda x: run(layer, x, mask=mask), [inputs], jit)
    outputs, found = [numpy(x) for x in outputs], [numpy(x) for x in found]
    assert all(np.isfinite(x).all() for x in (*outputs, *found))
    assert not any(x[1].any() for x in outputs)
    _, words, sentences = outputs
    assert np.array_equal(words[0] > 0, mask[0])
    assert np.array_equal(sentences[0] > 0, mask[0].any(axis=1))
    assert not found[0][~mask].any()
    assert all(x.any() for x in (outputs[0][0], *(y[2] for y in outputs), *found))


@pytest.mark.parametrize(
    ("axis", "encoders"), [(0, {}), (1, {"sentence": False}), (2, {"word": False})]
)
def test_an_order_that_no_encoder_reads_goes_into_the_weights_alone(axis, encoders):
    layer, x = built("bidirectional", **encoders), documents()
    order = np.random.default_rng(7).permutation(x.shape[axis])
    before = [numpy(y) for y in run(layer, x, mask=MASK)]
    moved = run(layer, np.take(x, order, axis), mask=np.take(MASK, order, axis))
    moving = before[:3] if axis == 0 else before[1 : 4 - axis]
    expected = [np.take(y, order, axis) if any(y is m for m in moving) else y for y in before]
    assert_all_close(moved, expected)


@pytest.mark.parametrize("kind", [None, "dense", "conv"])
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


class Seen(layers.Layer):
    """An encoder that returns its inputs and takes no mask."""

    calls, mask = 0, None

    def call(self, inputs):
        self.calls += 1
        self.inputs = inputs
        return inputs


class SeenMask(Seen):
    """The same encoder with a mask."""

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
        if kind is Seen or mask is None:
            assert encoder.mask is None
        else:
            # An empty row has one step, which cuDNN demands.
            first = (np.arange(own.shape[1]) == 0) & ~own.any(axis=1, keepdims=True)
            assert first.any()
            assert np.array_equal(encoder.mask, own | first)


@pytest.mark.parametrize("kind", ["conv", "gru", "bidirectional", "ending in one"])
def test_an_encoder_does_not_warn_of_its_mask(kind):
    """From Keras 3.16 on a last recurrent layer would, but the attention itself gets the mask."""
    encoder = ENCODERS.get(kind, ENCODERS["bidirectional"])(3, "float32", D)
    if kind not in ENCODERS:
        encoder = keras.Sequential([layers.Dense(4), encoder])
    layer = HierarchicalAttention(U, word_encoder=encoder)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        layer(documents("float32"), mask=MASK)


def test_a_mask_lost_inside_an_encoder_warns():
    """The convolution drops the mask, so the recurrent layer reads the padding, as in any model."""
    convolution = layers.Conv1D(3, 3, padding="same")
    encoder = keras.Sequential([keras.Input((None, D)), convolution, gru(3, "float32")])
    layer = HierarchicalAttention(U, word_encoder=encoder)
    with pytest.warns(UserWarning, match=f"{convolution.name}.*does not support masking"):
        layer(documents("float32"), mask=MASK)


@keras.saving.register_keras_serializable(package="test_hierarchical")
class Mean(layers.Layer):
    def build(self, inputs_shape):
        self.gain = self.add_weight((inputs_shape[-1],), name="gain")

    def call(self, inputs, mask=None, return_attention_scores=False, training=None):
        valid = ops.cast(mask, inputs.dtype)
        weights = valid / ops.maximum(ops.sum(valid, axis=1, keepdims=True), 1)
        read = self.gain * ops.einsum("bt,btd->bd", weights, inputs)
        return (read, weights) if return_attention_scores else read

    def compute_mask(self, inputs, mask=None):
        return None


@keras.saving.register_keras_serializable(package="test_hierarchical")
class MeanOfWords(HierarchicalAttention):
    """Words are averaged, sentences attended to."""

    def make_pooling(self, name, units, seed):
        if name == "word_attention":
            return Mean(name=name, dtype=self.dtype_policy)
        return super().make_pooling(name, units, seed)


def test_a_subclass_with_its_own_pooling(tmp_path):
    layer = MeanOfWords(U, V, sentence_encoder=bidirectional(2, "float32"))
    ids = keras.Input((None, None), dtype="int32")
    embedding = layers.Embedding(9, D, mask_zero=True)
    model = randomize(keras.Model(ids, run(layer, embedding(ids))))
    assert type(layer.word_attention) is Mean
    assert type(layer.sentence_attention) is AttentionPooling
    assert layer.sentence_attention.units == V
    words = np.where(MASK, np.random.default_rng(3).integers(1, 9, MASK.shape), 0)
    before = model.predict_on_batch(words)
    number = MASK.sum(axis=2, keepdims=True)
    assert_close(before[1], MASK / np.maximum(number, 1), "float32")
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert type(loaded.layers[-1]) is MeanOfWords
    for x, y in zip(loaded.predict_on_batch(words), before, strict=True):
        assert np.array_equal(x, y)


def test_options_reach_both_attentions():
    layer = HierarchicalAttention(
        U, V, normalizer="sparsemax", dropout=0.3, seed=7, dtype="mixed_float16"
    )
    for pool, units in ((layer.word_attention, U), (layer.sentence_attention, V)):
        assert pool.units == units
        assert (pool.normalizer, pool.dropout) == ("sparsemax", 0.3)
        assert pool.dtype_policy == layer.dtype_policy
    # Otherwise both would drop the same weights.
    assert (layer.word_attention.seed, layer.sentence_attention.seed) == (7, 8)
    assert HierarchicalAttention(U).sentence_attention.units == U


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16", "mixed_float16"])
def test_dropout_is_for_training_and_the_weights_are_those_before_it(dtype):
    # Without an encoder dropout changes nothing but the vectors of the sentences.
    layer, twin = (built(dropout=0.4, seed=3, dtype=dtype) for _ in range(2))
    quiet, words, sentences = (numpy(x) for x in run(layer, documents(), mask=MASK))
    assert np.array_equal(numpy(layer(documents(), mask=MASK, training=False)), quiet)
    calls = [run(x, documents(), mask=MASK, training=True) for x in (layer, layer, twin)]
    first, second, repeated = (numpy(x[0]) for x in calls)
    assert not np.isclose(first[:2], quiet[:2]).all()
    assert not np.isclose(first, second).all()
    assert np.array_equal(repeated, first)
    assert np.array_equal(numpy(calls[0][1]), words)
    for found in (sentences, numpy(calls[0][2])):
        assert_close(found.sum(axis=1), MASK.any(axis=(1, 2)).astype(float), dtype)


@pytest.mark.parametrize("level", ["word", "sentence"])
def test_each_attention_drops_its_weights(level):
    """One level has a single step, so that the weights dropped at the other level show."""
    samples = 211
    layer = HierarchicalAttention(U, dropout=0.4, seed=3)
    axis = 1 if level == "word" else 2
    units = np.tile(np.eye(S, dtype="float32"), (samples, 1, 1))
    document, words, sentences = (
        numpy(x) for x in run(layer, np.expand_dims(units, axis), training=True)
    )
    weights = words[:, 0] if level == "word" else sentences
    ratio = document / weights
    kept = ratio != 0
    # A vector that is read was kept twice, once at each level.
    np.testing.assert_allclose(ratio[kept], 1 / 0.36, rtol=1e-4)
    if level == "word":
        lost = ~kept.any(axis=1)
        assert 0.3 < lost.mean() < 0.55
        assert abs(kept[~lost].mean() - 0.6) < 0.08
    else:
        assert abs(kept.mean() - 0.36) < 3 * np.sqrt(0.36 * 0.64 / kept.size)


@pytest.mark.parametrize("level", ["word", "sentence"])
def test_encoders_know_whether_this_is_training(level):
    layer = HierarchicalAttention(U, **{f"{level}_encoder": layers.SpatialDropout1D(0.5, seed=1)})
    quiet = numpy(layer(documents("float32")))
    assert np.array_equal(numpy(layer(documents("float32"), training=False)), quiet)
    assert not np.isclose(numpy(layer(documents("float32"), training=True)), quiet).all()


class NoTime(layers.Layer):
    def call(self, inputs):
        return {"encoded": inputs}

    def compute_output_spec(self, inputs):
        return {"encoded": inputs}


def gru_of(**options):
    return lambda: layers.GRU(3, **options)


BAD_ENCODERS = {
    "no time axis": (gru_of(), "of shape ({0}, 3)"),
    "states": (gru_of(return_sequences=True, return_state=True), "), float32 of shape ("),
    "both ways without time": (lambda: layers.Bidirectional(layers.GRU(3)), "of shape ({0}, 6)"),
    "shorter": (lambda: layers.Conv1D(3, 2, padding="valid"), "of shape ({0}, {1}, 3)"),
    "flat": (layers.Flatten, "of shape ({0}, "),
    "longer": (lambda: layers.ZeroPadding1D(1), "of shape ({0}, "),
    "one more axis": (lambda: layers.Reshape((-1, 1, 2)), "of shape ({0}, "),
    "a dictionary": (NoTime, "received {{'encoded'"),
}


@pytest.mark.parametrize("level", ["word", "sentence"])
@pytest.mark.parametrize("way", ["eager", "symbolic", "build"])
@pytest.mark.parametrize(("make", "fragment"), BAD_ENCODERS.values(), ids=BAD_ENCODERS)
@pytest.mark.each_value
def test_encoders_that_do_not_return_a_vector_for_every_step(level, way, make, fragment):
    layer = HierarchicalAttention(U, name="han", **{f"{level}_encoder": make()})
    shape = (B, S, W, D)
    calls = {
        "eager": lambda: layer(np.ones(shape, "float32")),
        "symbolic": lambda: layer(keras.Input(batch_shape=shape)),
        "build": lambda: layer.build(shape),
    }
    steps = W if level == "word" else S
    assert_refused(
        calls[way],
        f"han: `{level}_encoder` must return values of shape (",
        fragment.format(None if level == "word" else B, steps - 1),
        "return_sequences=True",
    )


@pytest.mark.parametrize("level", ["word", "sentence"])
@pytest.mark.parametrize("encoder", [layers.GRU, "gru", len, 3, [layers.Dense(2)], False])
def test_encoders_are_layers(level, encoder):
    assert_refused(
        lambda: HierarchicalAttention(U, name="han", **{f"{level}_encoder": encoder}),
        f"han: `{level}_encoder` must be None, or a layer that returns a vector",
        "return_sequences=True",
        f"received {'the class GRU' if encoder is layers.GRU else repr(encoder)}",
    )


def test_a_mask_that_an_encoder_makes_stays_its_own():
    encoder = keras.Sequential([layers.Masking(), layers.GRU(3, return_sequences=True)])
    layer = HierarchicalAttention(U, word_encoder=encoder)
    inputs = documents("float32")
    inputs[0, 1] = 0
    _, (words, sentences) = layer(inputs, return_attention_scores=True)
    assert numpy(words)[0, 1].all()
    assert numpy(sentences).all()


@pytest.mark.parametrize("level", ["word", "sentence"])
def test_an_encoder_that_shortens_is_found_when_the_layer_is_built(level):
    layer = HierarchicalAttention(U, **{f"{level}_encoder": layers.Conv1D(D, 2)})
    assert_refused(
        lambda: layer(keras.Input((None, None, D))),
        f"`{level}_encoder` must return",
        f"(None, 6, {D})",
    )


@pytest.mark.parametrize("prepared", [False, True])
@pytest.mark.parametrize("kind", ["bidirectional", "sequential"])
def test_asking_for_the_shape_changes_nothing(kind, prepared):
    layer, size = (built if prepared else made)(kind, dtype="float32"), D
    size = {"bidirectional": 4, "sequential": 2}[kind]
    before = len(layer.weights)
    for batch, more in ((None, None), (B, 0), (B, 2)):
        sizes = [None if batch is None else x + more for x in (S, W)]
        assert layer.compute_output_shape((batch, *sizes, D)) == (batch, size)
    assert (layer.built, len(layer.weights)) == (prepared, before)
