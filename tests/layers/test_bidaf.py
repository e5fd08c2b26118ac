"""The attention flow of BiDAF against loops of the paper."""

import numpy as np
import pytest
from keras import ops

from keras_attention import BiDAFAttentionFlow
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
from tests.oracles import attention_flow, trilinear_scores

T, J, D = 7, 3, 5
OPTIONS = {
    "both": {},
    "context to query": {"query_to_context": False},
    "query to context": {"context_to_query": False},
    "sparse": {"normalizer": "sparsemax"},
    "sparse context to query": {"query_to_context": False, "normalizer": "sparsemax"},
    "sparse query to context": {"context_to_query": False, "normalizer": "sparsemax"},
}
every_option = pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)

# A short text and padding in front; a question with a gap, and one with padding behind.
CONTEXT_MASK = np.stack([lengths_mask([5], T)[0], np.arange(T) >= 1])
QUERY_MASK = np.array([[True, False, True], [True, True, False]])
MASKS = {"context_mask": CONTEXT_MASK, "query_mask": QUERY_MASK}


def built(options, scale=0.5, **kwargs):
    layer = BiDAFAttentionFlow(**options, **kwargs)
    layer.build((None, None, D), (None, None, D))
    return randomize(layer, scale=scale)


def tensors(length=J):
    return normal([1, 0], B, T, D), normal([1, 1], B, length, D)


def flat(returned):
    merged, weights = returned
    return [merged, *weights]


def run(layer, *inputs, **kwargs):
    """G and the weights in one list."""
    return flat(layer(*inputs, return_attention_scores=True, **kwargs))


def paper(layer, options, *inputs, weights=None, **masks):
    names = [weight.name for weight in layer.trainable_weights]
    named = dict(zip(names, weights or weight_arrays(layer), strict=True))
    return flat(attention_flow(named, *inputs, **options, **masks))


@every_option
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("masks", [{}, MASKS], ids=["whole", "masked"])
def test_equals_the_paper(options, dtype, masks):
    layer = built(options, scale=1.0, dtype=dtype)
    inputs = normal(1, B, T, D, dtype=dtype), normal(2, B, J, D, dtype=dtype)
    result = run(layer, *inputs, **masks)
    assert dtypes(*result) == [dtype] * len(result)
    assert_all_close(result, paper(layer, options, *inputs, **masks), dtype)


@every_option
def test_gradients_are_those_of_the_paper(options):
    layer = built(options, dtype="float64")

    def oracle(inputs, weights):
        return paper(layer, options, *inputs, weights=weights, **MASKS)

    assert_gradients(layer, lambda *x: run(layer, *x, **MASKS), tensors(), oracle)


@pytest.mark.parametrize("name", MASKS)
def test_one_mask_alone(name):
    for options in OPTIONS.values():
        layer, inputs, masks = built(options, dtype="float64"), tensors(), {name: MASKS[name]}
        result = run(layer, *inputs, **masks)
        assert_all_close(result, paper(layer, options, *inputs, **masks))


def padded(x, front, fill):
    """Two more steps."""
    extra = np.full((len(x), 2, *x.shape[2:]), fill, x.dtype)
    return np.concatenate([extra, x] if front else [x, extra], axis=1)


def test_nan_in_a_valid_query_propagates_in_both_directions():
    context, query = tensors()
    query[0, 2] = np.nan  # valid
    merged, a, b = (numpy(x) for x in run(built({}, dtype="float64"), context, query, **MASKS))
    assert np.isnan(a[0][CONTEXT_MASK[0]]).any(axis=-1).all()
    assert np.isnan(b[0]).any()
    assert all(np.isfinite(x[1]).all() for x in (merged, a, b))


@every_option
@pytest.mark.parametrize("name", ["context", "query"])
@pytest.mark.parametrize("front", [False, True])
@pytest.mark.parametrize("fill", [0.0, np.inf, np.nan])
@pytest.mark.each_value
def test_masking_is_truncating_whatever_the_padding_holds(options, name, front, fill):
    layer = built(options, dtype="float64")
    context, query = tensors()
    mask = padded(np.ones((B, T if name == "context" else J), bool), front, False)
    words = mask[0]
    # The axes of G, a and b that hold the masked steps.
    axes = [1, 1, 1] if name == "context" else [None, 2, None]

    def long(context, query, kept=words):
        outputs = zip(run(layer, context, query, **{f"{name}_mask": mask}), axes, strict=False)
        return [x if axis is None else selected(x, kept, axis) for x, axis in outputs]

    outputs, expected = gradients(layer, lambda *x: run(layer, *x), (context, query))
    if name == "context":
        inputs = padded(context, front, fill), query
    else:
        inputs = context, padded(query, front, fill)
    masked, found = gradients(layer, long, inputs)
    hidden = zip(long(*inputs, ~words), axes, strict=False)
    hidden = [numpy(x) for x, axis in hidden if axis is not None]
    assert hidden
    assert not any(x.any() for x in hidden)
    assert_all_close(masked, outputs)
    spoiled = ["context", "query"].index(name)
    for n, (x, y) in enumerate(zip(found, expected, strict=True)):
        if n == spoiled:
            assert not numpy(x)[:, ~words].any()
            x = selected(x, words, 1)
        assert_close(x, numpy(y))


@every_option
def test_the_order_of_the_query_does_not_matter(options):
    layer, (context, query) = built(options, dtype="float64"), tensors()
    order = np.array([2, 0, 1])
    before = run(layer, context, query, **MASKS)
    moved = {**MASKS, "query_mask": QUERY_MASK[:, order]}
    after = run(layer, context, query[:, order], **moved)
    expected = [before[0], numpy(before[1])[:, :, order], *before[2:]]
    assert_all_close(after, expected)


@every_option
def test_the_order_of_the_context_goes_into_the_rows(options):
    layer, (context, query) = built(options, dtype="float64"), tensors()
    order = np.random.default_rng(7).permutation(T)
    before = run(layer, context, query, **MASKS)
    moved = {**MASKS, "context_mask": CONTEXT_MASK[:, order]}
    after = run(layer, context[:, order], query, **moved)
    assert_all_close(after, [numpy(x)[:, order] for x in before])


@pytest.mark.parametrize("fill", [0.0, 3.0])
def test_padding_never_wins_the_maximum(fill):
    """b comes from the valid scores, although the scores of the padding are far larger."""
    layer = built({}, dtype="float64")
    for weight in layer.trainable_weights:
        weight.assign(-np.abs(numpy(weight)))
    layer.context_vector.assign(np.zeros(D))
    # Padding of 3 is less negative than the words; of 0 it scores 0.
    context, query = np.abs(tensors()[0]), 10.0 + np.abs(tensors()[1])
    long = padded(query, False, fill)
    mask = padded(np.ones((B, J), bool), False, False)
    vector = np.concatenate(weight_arrays(layer))
    every = np.array([trilinear_scores(h, u, vector) for h, u in zip(context, long, strict=True)])
    assert every[:, :, :J].max() < -5
    assert (every[:, :, :J].max(axis=2) < every[:, :, J:].min(axis=2)).all()

    _, _, b = run(layer, context, long, query_mask=mask)
    assert_close(b, paper(layer, {}, context, query)[2])
    wrong = np.exp(every.max(axis=2))
    assert np.abs(numpy(b) - wrong / wrong.sum(axis=1, keepdims=True)).max() > 0.05


@every_option
@pytest.mark.parametrize("dtype", [*TOLERANCES, "mixed_bfloat16", "mixed_float16"])
@pytest.mark.parametrize("jit", [False, True], ids=["eager", "jit"])
@pytest.mark.each_value
def test_nothing_valid_means_zero(options, dtype, jit):
    """The first sample has no context, the second no query, the third has both."""
    layer = built(options, dtype=dtype)
    context, query = (normal(n, 3, steps, D, dtype="bfloat16") for n, steps in ((1, T), (2, J)))
    context_mask, query_mask = np.ones((3, T), bool), np.ones((3, J), bool)
    context_mask[0], query_mask[1] = False, False
    inputs = [ops.cast(x, layer.compute_dtype) for x in (context, query)]

    def call(*inputs):
        return run(layer, *inputs, context_mask=context_mask, query_mask=query_mask)

    outputs, found = gradients(layer, call, inputs, jit)
    (merged, *weights), found = [numpy(x) for x in outputs], [numpy(x) for x in found]
    assert all(np.isfinite(x).all() for x in (merged, *found))
    assert not merged[0].any()
    assert np.array_equal(merged[1, :, :D], context[1])
    assert not merged[1, :, D:].any()
    assert merged[2].all()
    for x in weights:
        assert not x[:2].any()
        assert x[2].any()
    assert not found[0][0].any()
    assert not found[1][:2].any()


@every_option
def test_a_query_of_one_step(options):
    """a is one, and b still chooses."""
    layer, inputs = built(options, dtype="float64"), tensors(length=1)
    result = run(layer, *inputs)
    assert_all_close(result, paper(layer, options, *inputs))
    assert_close(result[1], np.ones((B, T, 1)))
    masks = {"context_mask": CONTEXT_MASK, "query_mask": np.array([[True], [False]])}
    masked = run(layer, *inputs, **masks)
    assert_all_close(masked, paper(layer, options, *inputs, **masks))
    assert_close(masked[1], (CONTEXT_MASK & masks["query_mask"])[..., None].astype("float64"))


@every_option
def test_a_context_of_one_step(options):
    layer, (context, query) = built(options, dtype="float64"), tensors()
    inputs = context[:, :1], query
    result = run(layer, *inputs, query_mask=QUERY_MASK)
    assert_all_close(result, paper(layer, options, *inputs, query_mask=QUERY_MASK))


@every_option
@pytest.mark.parametrize(("samples", "steps", "length"), [(B, T, 0), (B, 0, J), (0, T, J)])
def test_no_steps_and_no_samples(options, samples, steps, length):
    layer, (context, query) = built(options, dtype="float64"), tensors()
    inputs = context[:samples, :steps], query[:samples, :length]
    masks = {
        "context_mask": CONTEXT_MASK[:samples, :steps],
        "query_mask": QUERY_MASK[:samples, :length],
    }
    outputs, found = gradients(layer, lambda *x: run(layer, *x, **masks), inputs)
    parts = 4 if "query_to_context" not in options else 3
    shapes = [(samples, steps, parts * D), (samples, steps, length), (samples, steps)]
    assert [tuple(x.shape) for x in outputs] == shapes[: len(outputs)]
    if samples:
        assert_all_close(outputs, paper(layer, options, *inputs, **masks))
    assert all(np.isfinite(numpy(x)).all() for x in found)


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({}, ["context_vector", "query_vector", "product_vector"]),
        ({"context_to_query": False}, ["context_vector", "query_vector", "product_vector"]),
        ({"query_to_context": False}, ["query_vector", "product_vector"]),
    ],
)
def test_weights(options, names):
    layer = BiDAFAttentionFlow(**options)
    layer.build((B, T, D), (B, J, D))
    assert [weight.name for weight in layer.weights] == names
    assert all(getattr(layer, name).shape == (D,) for name in names)
    assert (layer.context_vector is None) == ("context_vector" not in names)


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16", "mixed_float16"])
def test_dropout_is_for_training_and_the_weights_are_those_before_it(dtype):
    layer, inputs = built({"dropout": 0.4, "seed": 3}, dtype=dtype), tensors()
    quiet, *weights = [numpy(x) for x in run(layer, *inputs)]
    first, *same = [numpy(x) for x in run(layer, *inputs, training=True)]
    second, *same_again = [numpy(x) for x in run(layer, *inputs, training=True)]
    assert not np.isclose(first, quiet).all()
    assert not np.isclose(first, second).all()
    for x, y, z in zip(weights, same, same_again, strict=True):
        assert np.array_equal(x, y)
        assert np.array_equal(x, z)
        assert_close(x.sum(-1), np.ones(x.shape[:-1]), dtype)
    twin = built({"dropout": 0.4, "seed": 3}, dtype=dtype)
    assert np.array_equal(numpy(twin(*inputs, training=True)), first)
    assert np.array_equal(numpy(twin(*inputs, training=True)), second)


def test_dropout_drops_weights_of_both_directions_and_keeps_their_expectation():
    """With unit vectors G shows which weights were read, and their scale."""
    size, samples = T, 211
    layer = BiDAFAttentionFlow(dropout=0.4, seed=3)
    context, query = (np.tile(np.eye(size)[:n], (samples, 1, 1)) for n in (size, J))
    merged, a, b = (numpy(x) for x in run(layer, context, query, training=True))
    attended, summary = merged[..., size : size + J], merged[..., 3 * size :]
    # h_t is the unit vector t, and so h_t * h~ is b_t at t.
    for read, weights in ((attended, a), (np.diagonal(summary, axis1=1, axis2=2), b)):
        ratio = read / weights
        dropped = ratio == 0
        np.testing.assert_allclose(ratio[~dropped], 1 / 0.6, rtol=1e-4)
        # Three standard deviations of the mean of so many draws.
        assert abs(dropped.mean() - 0.4) < 3 * np.sqrt(0.24 / dropped.size)


@every_option
def test_compute_output_shape(options):
    layer, parts = BiDAFAttentionFlow(**options), 4 if "query_to_context" not in options else 3
    assert layer.compute_output_shape((B, T, D), (B, J, D)) == (B, T, parts * D)
    shape = layer.compute_output_shape((None, None, D), (None, None, D))
    assert shape == (None, None, parts * D)
    assert layer(*tensors()).shape == (B, T, parts * D)
    assert_refused(
        lambda: layer.compute_output_shape((B, T, D)),
        "`query` must be floating-point, of shape (2, steps, 5); received None",
    )


def test_one_direction_is_needed():
    assert_refused(
        lambda: BiDAFAttentionFlow(query_to_context=False, context_to_query=False, name="flow"),
        "flow: `query_to_context` or `context_to_query` must be True; received False for both.",
    )


GOOD = {"context": (B, T, D), "query": (B, J, D)}
FLOATS = "must be floating-point, of shape"
BAD_CALLS = {
    "no query": (
        {"context": (B, T, D)},
        (f"`query` {FLOATS} (2, steps, 5)", "received None"),
    ),
    "context of rank 2": (
        {**GOOD, "context": (B, D)},
        (f"`context` {FLOATS} (batch, steps, ", "of shape (2, 5)"),
    ),
    "context of rank 4": (
        {**GOOD, "context": (B, T, 1, D)},
        (f"`context` {FLOATS} (batch, steps, ", "of shape (2, 7, 1, 5)"),
    ),
    "query of rank 2": (
        {**GOOD, "query": (B, D)},
        (f"`query` {FLOATS} (2, steps, 5)", "of shape (2, 5)"),
    ),
    "query of rank 4": (
        {**GOOD, "query": (B, J, 1, D)},
        (f"`query` {FLOATS} (2, steps, 5)", "of shape (2, 3, 1, 5)"),
    ),
    "two widths": (
        {**GOOD, "query": (B, J, 2)},
        (f"`query` {FLOATS} (2, 3, 5)", "5 features; received float32 of shape (2, 3, 2)"),
    ),
    "two batch sizes": (
        {**GOOD, "query": (3, J, D)},
        (f"`query` {FLOATS} (2, steps, 5)", "`context` has batch size 2", "of shape (3, 3, 5)"),
    ),
    "context_mask of numbers": (
        {**GOOD, "context_mask": (B, T, "float32")},
        ("`context_mask` must be boolean", "received float32"),
    ),
    "query_mask of integers": (
        {**GOOD, "query_mask": (B, J, "int32")},
        ("`query_mask` must be boolean", "received int32", 'cast(query_mask, "bool")'),
    ),
    "context_mask of the length of the query": (
        {**GOOD, "context_mask": (B, J)},
        ("`context_mask` must be boolean, of shape (2, 7)", "of shape (2, 3)"),
    ),
    "query_mask of the length of the context": (
        {**GOOD, "query_mask": (B, T)},
        ("`query_mask` must be boolean, of shape (2, 3)", "of shape (2, 7)"),
    ),
    "query_mask of rank 3": (
        {**GOOD, "query_mask": (B, T, J)},
        ("`query_mask` must be boolean, of shape (2, 3)", "of shape (2, 7, 3)"),
    ),
}


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("prepared", [False, True])
class TestBadCalls:
    def layer(self, prepared):
        return built({}) if prepared else BiDAFAttentionFlow()

    @pytest.mark.parametrize(("shapes", "fragments"), BAD_CALLS.values(), ids=BAD_CALLS)
    def test_bad_calls(self, shapes, fragments, prepared, symbolic):
        layer, inputs = self.layer(prepared), arguments(shapes, symbolic)
        context = inputs.pop("context")
        assert_refused(lambda: layer(context, **inputs), layer.name, *fragments)

    @pytest.mark.parametrize("kind", [list, tuple])
    def test_a_list_of_tensors(self, kind, prepared, symbolic):
        layer, inputs = self.layer(prepared), arguments(GOOD, symbolic)
        assert_refused(lambda: layer(kind(inputs.values())), layer.name, "layer(context, query)")

    def test_a_list_as_query(self, prepared, symbolic):
        layer, inputs = self.layer(prepared), arguments(GOOD, symbolic)
        context, query = inputs.values()
        assert_refused(
            lambda: layer(context, [query] * 2), f"`query` {FLOATS} (2, steps, 5)", "received [f"
        )


@pytest.mark.parametrize("symbolic", [False, True])
def test_another_width_than_the_layer_was_built_for(symbolic):
    inputs = arguments({"context": (B, T, 2), "query": (B, J, 2)}, symbolic)
    assert_refused(
        lambda: built({})(**inputs),
        "built for `context` of 5 features; received float32 of shape (2, 7, 2)",
    )


@pytest.mark.parametrize("name", GOOD)
def test_features_must_be_known(name):
    inputs = arguments({**GOOD, name: (*GOOD[name][:-1], None)}, symbolic=True)
    assert_refused(
        lambda: BiDAFAttentionFlow()(**inputs),
        f"`{name}` {FLOATS}",
        "None). Give the features to keras.Input.",
    )


def test_half_precision_scores_are_summed_in_float32():
    """The better of two words wins, even if the scores differ only in the fourth digit."""
    layer = built({}, dtype="float16")
    for name, value in (("context_vector", 0), ("query_vector", 1), ("product_vector", 0)):
        getattr(layer, name).assign(np.full(D, value, "float16"))
    query = np.full((1, 2, D), 100.0)
    query[0, 1, 0] += 0.0625
    context = np.ones((1, T, D))
    _, a, _ = run(layer, context, query)
    weights = np.array([1, np.exp(0.0625)]) / (1 + np.exp(0.0625))
    assert_close(a, np.tile(weights, (1, T, 1)), "float16")


def test_an_empty_query_without_a_mask_is_read_as_nothing():
    layer = BiDAFAttentionFlow()
    merged, (a, b) = layer(np.ones((2, 7, 5)), np.ones((2, 0, 5)), return_attention_scores=True)
    assert a.shape == (2, 7, 0)
    assert not numpy(b).any()
    assert numpy(merged)[..., :5].all()
    assert not numpy(merged)[..., 5:].any()


@pytest.mark.parametrize("built", [False, True])
def test_lists_are_refused(built):
    context, query = np.ones((3, 7, 5)), np.ones((3, 2, 5))
    for wrong in ((context, [query] * 3), ([context] * 3, query), ([context, query],)):
        layer = BiDAFAttentionFlow()
        if built:
            layer(context, query)
        assert_refused(lambda wrong=wrong, layer=layer: layer(*wrong), FLOATS, "received [f")


def test_a_fresh_layer_compares_by_the_dot_product():
    layer = BiDAFAttentionFlow()
    layer.build((None, None, 300), (None, None, 300))
    assert (numpy(layer.product_vector) == 1).all()
    for vector in (layer.context_vector, layer.query_vector):
        assert 0 < np.abs(numpy(vector)).max() <= 0.1 + 1e-6
