"""Attention pooling against loops of the paper."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention import AttentionPooling
from tests.backends import dtypes
from tests.helpers import (
    DTYPES,
    TOLERANCES,
    B,
    arguments,
    assert_all_close,
    assert_close,
    assert_gradients,
    assert_refused,
    gradients,
    lengths_mask,
    normal,
    numpy,
    randomize,
    selected,
    weight_arrays,
)
from tests.oracles import attention_pooling, redundancy

T, D, U = 7, 5, 11
FORMS = {
    "softmax": {},
    "sparsemax": {"normalizer": "sparsemax"},
    "gated": {"gated": True, "normalizer": "normalized_sigmoid", "temperature": 0.3},
    "rows": {"gated": True, "rows": 3, "penalty": 0.7},
}
every_form = pytest.mark.parametrize("options", FORMS.values(), ids=FORMS)

# Padding in front, and a gap and padding behind.
MASK = np.stack([np.arange(T) >= 1, lengths_mask([5], T)[0] & (np.arange(T) != 2)])
masked_or_not = pytest.mark.parametrize("mask", [None, MASK], ids=["whole", "masked"])


def built(scale=0.5, **kwargs):
    layer = AttentionPooling(U, **kwargs)
    layer.build((None, None, D))
    return randomize(layer, scale=scale)


def run(layer, inputs, **kwargs):
    return list(layer(inputs, return_attention_scores=True, **kwargs))


def paper(layer, inputs, weights=None, mask=None):
    names = [weight.name for weight in layer.trainable_weights]
    named = dict(zip(names, weights or weight_arrays(layer), strict=True))
    return attention_pooling(named, inputs, layer.normalizer, mask, layer.temperature)


@every_form
@masked_or_not
@pytest.mark.parametrize("dtype", DTYPES)
def test_equals_the_paper(options, mask, dtype):
    layer = built(scale=1.0, **options, dtype=dtype)
    inputs = normal(1, B, T, D, dtype=dtype)
    result = run(layer, inputs, mask=mask)
    assert dtypes(*result) == [dtype, dtype]
    assert_all_close(result, paper(layer, inputs, mask=mask), dtype)
    assert_close(layer(inputs, mask=mask), numpy(result[0]), dtype)


@every_form
@masked_or_not
@pytest.mark.parametrize("jit", [False, True], ids=["eager", "jit"])
@pytest.mark.each_value
def test_gradients_are_those_of_the_paper(options, mask, jit):
    layer = built(**options, dtype="float64")

    def oracle(inputs, weights):
        return paper(layer, *inputs, weights=weights, mask=mask)

    inputs = [normal(1, B, T, D)]
    assert_gradients(layer, lambda x: run(layer, x, mask=mask), inputs, oracle, jit=jit)


@every_form
@pytest.mark.parametrize("place", [0, 3, T], ids=["front", "middle", "behind"])
@pytest.mark.parametrize("fill", [0.0, np.inf, np.nan])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.each_value
def test_masking_is_truncating_whatever_the_padding_holds(options, place, fill, dtype):
    layer, inputs = built(**options, dtype=dtype), normal(1, B, T, D, dtype=dtype)
    places = [place, place]
    long = np.insert(inputs, places, fill, axis=1)
    words = np.insert(np.ones(T, bool), places, False)
    outputs, expected = gradients(layer, lambda x: run(layer, x), [ops.cast(inputs, dtype)])

    def masked(x, kept=words):
        pooled, weights = run(layer, x, mask=np.tile(words, (B, 1)))
        return [pooled, selected(weights, kept, len(weights.shape) - 1)]

    found_outputs, found = gradients(layer, masked, [ops.cast(long, dtype)])
    _, hidden = masked(ops.cast(long, dtype), ~words)
    assert hidden.shape[-1] == 2
    assert not numpy(hidden).any()
    assert_all_close(found_outputs, outputs, dtype)
    assert not numpy(found[0])[:, ~words].any()
    found[0] = selected(found[0], words, 1)
    assert_all_close(found, expected, dtype)


@every_form
def test_the_order_of_the_steps_goes_into_the_weights_alone(options):
    layer, inputs = built(**options, dtype="float64"), normal(1, B, T, D)
    order = np.random.default_rng(7).permutation(T)
    pooled, weights = run(layer, inputs, mask=MASK)
    moved = run(layer, inputs[:, order], mask=MASK[:, order])
    assert_all_close(moved, [pooled, numpy(weights)[..., order]])


@every_form
@pytest.mark.parametrize(
    ("dtype", "jit"),
    [
        *((dtype, False) for dtype in (*TOLERANCES, "mixed_bfloat16", "mixed_float16")),
        # The conformance tests compile the other dtypes.
        ("float32", True),
        ("mixed_float16", True),
    ],
)
@pytest.mark.parametrize("fill", [1.0, np.nan])
@pytest.mark.each_value
def test_nothing_valid_means_zero(options, dtype, jit, fill):
    layer = built(**options, dtype=dtype)
    inputs = normal(1, 3, T, D, dtype="bfloat16")
    mask = np.ones((3, T), bool)
    inputs[0], mask[0] = fill, False
    inputs = ops.cast(inputs, layer.compute_dtype)
    outputs, found = gradients(layer, lambda x: run(layer, x, mask=mask), [inputs], jit)
    for x in outputs:
        assert not numpy(x)[0].any()
        assert numpy(x)[1:].any(axis=-1).all()
    found = [numpy(x) for x in found]
    assert all(np.isfinite(x).all() for x in (*map(numpy, outputs), *found))
    assert not found[0][0].any()
    assert all(x.any() for x in found)


@pytest.mark.parametrize("mask", [None, np.stack([MASK[0], MASK[0] & False])])
@pytest.mark.parametrize("jit", [False, True], ids=["eager", "jit"])
@pytest.mark.each_value
def test_the_penalty_is_that_of_the_paper(mask, jit):
    """Its gradient too; an empty bag adds nothing."""
    layer = built(**FORMS["rows"], dtype="float64")

    def oracle(inputs, weights):
        _, align = paper(layer, *inputs, weights=weights, mask=mask)
        return [np.array(0.7 * redundancy(align))]

    def call(x):
        layer(x, mask=mask)
        return layer.losses

    assert_gradients(layer, call, [normal(1, B, T, D)], oracle, jit=jit)


def test_without_a_penalty_there_is_no_loss():
    layer = built(rows=3)
    layer(normal(1, B, T, D))
    assert layer.losses == []


def test_the_penalty_of_no_bag_is_zero():
    layer = built(**FORMS["rows"])
    layer(normal(1, 0, T, D))
    assert [float(numpy(x)) for x in layer.losses] == [0.0]


def test_rows_are_queries_of_their_own():
    """Each row is what a layer with this query alone reads: one row for each class, as in CLAM."""
    layer, inputs = built(gated=True, rows=3, dtype="float64"), normal(1, B, T, D)
    pooled, weights = run(layer, inputs, mask=MASK)
    for r in range(3):
        single = built(gated=True, dtype="float64")
        arrays = weight_arrays(layer)
        single.set_weights([x[r] if x.shape == (3, U) else x for x in arrays])
        rows = [numpy(pooled)[:, r], numpy(weights)[:, r]]
        assert_all_close(run(single, inputs, mask=MASK), rows)


def test_a_temperature_divides_the_scores():
    cold, inputs = built(temperature=1e-4), normal(1, B, T, D)
    warm = built(temperature=1e4)
    assert_close(run(cold, inputs)[1], np.eye(T)[numpy(run(cold, inputs)[1]).argmax(1)], "float32")
    assert np.ptp(numpy(run(warm, inputs)[1])) < 1e-3


def test_one_step_is_read_as_it_is():
    layer, inputs = built(dtype="float64"), normal(1, B, 1, D)
    assert_all_close(run(layer, inputs), [inputs[:, 0], np.ones((B, 1))])


@pytest.mark.parametrize(("samples", "steps"), [(B, 0), (0, T)])
@pytest.mark.parametrize("masked", [False, True])
def test_no_steps_and_no_samples(samples, steps, masked):
    layer, inputs = built(dtype="float64"), normal(1, samples, steps, D)
    mask = np.ones((samples, steps), bool) if masked else None
    outputs, found = gradients(layer, lambda x: run(layer, x, mask=mask), [inputs])
    assert_all_close(outputs, [np.zeros((samples, D)), np.zeros((samples, steps))])
    assert not any(numpy(x).any() for x in found)


def test_weights():
    layer = AttentionPooling(U)
    layer.build((B, T, D))
    assert {w.name: w.shape for w in layer.weights} == {
        "kernel": (D, U),
        "bias": (U,),
        "query_vector": (U,),
    }
    assert not numpy(layer.bias).any()
    assert numpy(layer.kernel).all()
    assert numpy(layer.query_vector).all()
    layer = AttentionPooling(U, gated=True, rows=3)
    layer.build((B, T, D))
    assert {w.name: w.shape for w in layer.weights} == {
        "kernel": (D, U),
        "bias": (U,),
        "gate_kernel": (D, U),
        "gate_bias": (U,),
        "query_vector": (3, U),
    }
    assert not numpy(layer.gate_bias).any()
    assert numpy(layer.gate_kernel).all()


def test_the_layer_and_the_built_layer_agree():
    """Built by a call, on arrays or on symbols, a layer has the weights that build makes."""
    called, symbolic = AttentionPooling(U), AttentionPooling(U)
    called(np.ones((B, T, D), "float32"))
    assert symbolic(keras.Input((None, D))).shape == (None, D)
    shapes = [w.shape for w in built().weights]
    assert [w.shape for w in called.weights] == [w.shape for w in symbolic.weights] == shapes


def test_compute_output_shape():
    layer = AttentionPooling(U)
    assert layer.compute_output_shape((B, T, D)) == (B, D)
    assert layer.compute_output_shape((None, None, D)) == (None, D)
    pooled, weights = layer(keras.Input((None, D)), return_attention_scores=True)
    assert pooled.shape == (None, D)
    assert weights.shape == (None, None)
    assert_refused(lambda: layer.compute_output_shape((B, D)), RANK)
    layer = AttentionPooling(U, rows=3)
    assert layer.compute_output_shape((None, None, D)) == (None, 3, D)
    pooled, weights = layer(keras.Input((None, D)), return_attention_scores=True)
    assert pooled.shape == (None, 3, D)
    assert weights.shape == (None, 3, None)


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16", "mixed_float16"])
def test_dropout_is_for_training_and_the_weights_are_those_before_it(dtype):
    layer, inputs = built(dropout=0.4, seed=3, dtype=dtype), normal(1, B, T, D)
    quiet, weights = (numpy(x) for x in run(layer, inputs))
    assert np.array_equal(numpy(layer(inputs, training=False)), quiet)
    first, same = (numpy(x) for x in run(layer, inputs, training=True))
    second = numpy(layer(inputs, training=True))
    assert not np.isclose(first, quiet).all()
    assert not np.isclose(first, second).all()
    assert np.array_equal(weights, same)
    twin = built(dropout=0.4, seed=3, dtype=dtype)
    assert np.array_equal(numpy(twin(inputs, training=True)), first)
    assert np.array_equal(numpy(twin(inputs, training=True)), second)


def test_dropout_drops_weights_and_keeps_their_expectation():
    """Unit vectors show which weights were read, and their scale."""
    samples = 211
    layer = AttentionPooling(U, dropout=0.4, seed=3)
    inputs = np.tile(np.eye(T, dtype="float32"), (samples, 1, 1))
    read, weights = (numpy(x) for x in run(layer, inputs, training=True))
    ratio = read / weights
    dropped = ratio == 0
    np.testing.assert_allclose(ratio[~dropped], 1 / 0.6, rtol=1e-4)
    # Three standard deviations of the mean of so many draws.
    assert abs(dropped.mean() - 0.4) < 3 * np.sqrt(0.24 / dropped.size)


@pytest.mark.parametrize(
    ("steps", "vector"),
    [
        # The difference is lost in a sum of halves,
        ([[8.0, 0.0], [8.0, 0.5]], [4096.0, 1.0]),
        # and in a half that holds a tanh.
        ([[0.5, 0.0], [0.5 + 2**-11, 0.0]], [1024.0, 0.0]),
    ],
)
def test_half_precision_scores_are_calculated_in_float32(steps, vector):
    """The better of two steps wins, even if the scores differ only in the fourth digit."""
    layer = AttentionPooling(2, dtype="float16")
    layer.build((None, None, 2))
    layer.kernel.assign(np.eye(2, dtype="float16"))
    layer.query_vector.assign(np.array(vector, "float16"))
    inputs = np.array([steps], "float16")
    _, weights = run(layer, inputs)
    assert 0.55 < numpy(weights)[0, 1] < 0.65
    assert_close(weights, paper(layer, inputs.astype("float64"))[1], "float16")


def test_the_mask_comes_from_an_embedding():
    words = np.array([[3, 4, 1, 0, 0], [2, 0, 5, 6, 0]])
    embedding = keras.layers.Embedding(9, D, mask_zero=True)
    layer = built()
    ids = keras.Input((None,), dtype="int32")
    pooled, weights = layer(embedding(ids), return_attention_scores=True)
    outputs = keras.Model(ids, [pooled, weights]).predict_on_batch(words)
    expected = paper(layer, numpy(embedding(words)), mask=words != 0)
    assert_all_close(outputs, expected, "float32")
    assert_all_close(run(layer, embedding(words)), expected, "float32")


KNOWN = "None). Give the features to keras.Input."
RANK = "`inputs` must be floating-point, of shape (batch, steps, "
GOOD = {"inputs": (B, T, D)}
BAD_CALLS = {
    "rank 2": ({"inputs": (B, D)}, (RANK, "of shape (2, 5)")),
    "rank 4": ({"inputs": (B, 3, T, D)}, (RANK, "of shape (2, 3, 7, 5)")),
    "mask of numbers": (
        {**GOOD, "mask": (B, T, "float32")},
        ("`mask` must be boolean", "received float32", 'cast(mask, "bool")'),
    ),
    "mask of integers": (
        {**GOOD, "mask": (B, T, "int32")},
        ("`mask` must be boolean", "received int32"),
    ),
    "mask of another length": (
        {**GOOD, "mask": (B, 3)},
        ("`mask` must be boolean, of shape (2, 7)", "of shape (2, 3)"),
    ),
    "mask of another batch": (
        {**GOOD, "mask": (3, T)},
        ("`mask` must be boolean, of shape (2, 7)", "of shape (3, 7)"),
    ),
    "mask of rank 3": (
        {**GOOD, "mask": (B, T, D)},
        ("`mask` must be boolean, of shape (2, 7)", "of shape (2, 7, 5)"),
    ),
    "mask of rank 1": (
        {**GOOD, "mask": (T,)},
        ("`mask` must be boolean, of shape (2, 7)", "of shape (7,)"),
    ),
}


@pytest.mark.parametrize("symbolic", [False, True], ids=["eager", "symbolic"])
@pytest.mark.parametrize("prepared", [False, True], ids=["new", "built"])
class TestBadCalls:
    def layer(self, prepared):
        return built() if prepared else AttentionPooling(U)

    @pytest.mark.parametrize(("shapes", "fragments"), BAD_CALLS.values(), ids=BAD_CALLS)
    def test_bad_calls(self, shapes, fragments, prepared, symbolic):
        layer, inputs = self.layer(prepared), arguments(shapes, symbolic)
        assert_refused(lambda: layer(**inputs), layer.name, *fragments)

    @pytest.mark.parametrize("kind", [list, tuple])
    @pytest.mark.parametrize("number", [1, 2, 3])
    def test_several_tensors(self, kind, number, prepared, symbolic):
        layer, inputs = self.layer(prepared), arguments(GOOD, symbolic)
        call = RANK, "received [" if kind is list else "received (", "Call layer(inputs)"
        assert_refused(lambda: layer(kind([*inputs.values()] * number)), layer.name, *call)


@pytest.mark.parametrize("symbolic", [False, True])
def test_another_width_than_the_layer_was_built_for(symbolic):
    inputs = arguments({"inputs": (B, T, 3)}, symbolic)
    assert_refused(
        lambda: built()(**inputs),
        "built for `inputs` of 5 features; received float32 of shape (2, 7, 3)",
    )


def test_features_must_be_known():
    assert_refused(lambda: AttentionPooling(U)(keras.Input((T, None))), KNOWN, "(None, 7, None)")
    assert_refused(lambda: AttentionPooling(U).build((B, T, None)), KNOWN, "(2, 7, None)")


@pytest.mark.parametrize("units", [0, -1, 2.0, True, None, "7", (3,)])
def test_units_are_a_positive_integer(units):
    assert_refused(
        lambda: AttentionPooling(units, name="words"),
        "words: `units` must be a positive integer",
        f"received {units!r}",
    )


@pytest.mark.parametrize(
    ("options", "fragment"),
    [
        ({"normalizer": "sigmoid"}, "`normalizer` must be one of 'softmax', 'sparsemax'"),
        ({"dropout": 1.0}, "`dropout` must be a number in [0, 1)"),
        ({"gated": 1}, "`gated` must be True or False"),
        ({"rows": 0}, "`rows` must be a positive integer"),
        ({"temperature": 0}, "`temperature` must be a number of at least 1e-06"),
        ({"penalty": -1.0}, "`penalty` must be a number of at least 0"),
    ],
)
def test_bad_options(options, fragment):
    assert_refused(lambda: AttentionPooling(U, **options), fragment)
