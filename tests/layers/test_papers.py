"""Pooling, attention flow, target attention, hops and RETAIN against loops of their papers."""

import functools

import keras
import numpy as np
import pytest
from keras import ops

import keras_attention as ka
from tests import helpers
from tests.backends import dtypes, on_tensorflow, tensor
from tests.helpers import B, assert_all_close, assert_close, assert_drops, normal, numpy
from tests.layers.papers import FLOW_MASKS, GAPS, PAPERS, D, T, U, run
from tests.oracles import narm, redundancy

every_paper = pytest.mark.parametrize("name", PAPERS)
JIT = "pooling, rows", "flow, both", "target, none", "hop, no softmax"
LOOPED = [name for name, case in PAPERS.items() if not case.known]
MASKED = [(name, mask) for name in LOOPED for mask in PAPERS[name].masks]


@every_paper
@pytest.mark.parametrize("dtype", helpers.DTYPES)
@pytest.mark.each_value
def test_equals_the_paper(name, dtype):
    case = PAPERS[name]
    layer, inputs = case.built(dtype, scale=1.0 if name[0] in "pf" else 0.5), case.inputs(dtype)
    masks, tensors = case.all_masks(), [tensor(x, dtype) for x in inputs]
    for given in ({}, masks, *([{x: masks[x]} for x in masks] if len(masks) > 1 else ())):
        result = run(layer, *tensors, **given)
        assert dtypes(*result) == [dtype] * len(result)
        expected = case.paper(layer, inputs, **given)
        assert_all_close(result, expected, dtype, **case.tolerance)
        assert_close(layer(*tensors, **given), numpy(result[0]), dtype)


@pytest.mark.parametrize(("name", "jit"), [
    *((name, False) for name in PAPERS),
    *((name, True) for name in JIT),
    pytest.param("retain", True, marks=pytest.mark.slow),
])  # fmt: skip
def test_gradients_are_those_of_the_paper(name, jit):
    case = PAPERS[name]
    layer, masks = case.built(), case.all_masks()

    def oracle(inputs, weights):
        return case.paper(layer, inputs, weights, **masks)

    call = functools.partial(run, layer, **masks)
    helpers.assert_gradients(layer, call, case.inputs(), oracle, jit=jit)


@pytest.mark.parametrize(("name", "mask"), MASKED)
def test_masking_is_truncating_whatever_the_padding_holds(name, mask):
    case = PAPERS[name]
    layer, (_, hidden) = case.built(), case.masks[mask]
    steps = case.inputs()[hidden[0]].shape[1]

    def call(*inputs):
        return run(layer, *inputs[:-1], **{mask: inputs[-1]})

    helpers.assert_masking_is_truncating(layer, call, case.inputs(), hidden, [0, 2, steps])


@every_paper
@pytest.mark.parametrize(("dtype", "jit"), [("float64", False), ("mixed_float16", True)])
@pytest.mark.each_value
def test_where_nothing_is_valid_the_weights_are_zero(name, dtype, jit):
    """Sample n has no valid step of the mask n, where its inputs are NaN; the last has all."""
    case = PAPERS[name]
    batch = len(case.masks) + 1
    layer, inputs = case.built(dtype), case.inputs("bfloat16", batch)
    masks, clean = {}, [np.array(x) for x in inputs]
    for n, (mask, (_, hidden)) in enumerate(case.masks.items()):
        masks[mask] = np.ones((batch, inputs[hidden[0]].shape[1]), bool)
        masks[mask][n] = False
        for i in hidden:
            inputs[i][n] = np.nan

    def call(*x):
        return run(layer, *x, **masks)

    tensors = [ops.cast(x, layer.compute_dtype) for x in inputs]
    outputs, found = helpers.gradients(layer, call, tensors, jit and name in JIT)
    found = [numpy(x) for x in found]
    assert all(np.isfinite(x).all() for x in (*map(numpy, outputs), *found))
    for weights in outputs[1:]:
        assert not numpy(weights)[:-1].any()
        assert numpy(weights)[-1].any()
    for n, (_, hidden) in enumerate(case.masks.values()):
        assert not any(found[i][n].any() for i in hidden)
    if dtype == "float64":
        assert_all_close(outputs, case.paper(layer, clean, **masks))


@pytest.mark.parametrize("name", LOOPED)
def test_no_steps_and_no_samples(name):
    case = PAPERS[name]
    layer, given = case.built(), case.inputs()
    full = [tuple(x.shape) for x in run(layer, *given)]
    for mask, (_, hidden) in case.masks.items():
        steps = given[hidden[0]].shape[1]
        for batch, length, masked in ((B, 0, False), (B, 0, True), (0, steps, True)):
            inputs = [x[:batch, :length] if n in hidden else x[:batch] for n, x in enumerate(given)]
            masks = {mask: np.ones((batch, length), bool)} if masked else {}
            outputs, found = helpers.gradients(
                layer, lambda *x, m=masks: run(layer, *x, **m), inputs
            )
            wanted = [(batch, *(length if n == steps else n for n in x[1:])) for x in full]
            assert [tuple(x.shape) for x in outputs] == wanted
            assert all(np.isfinite(numpy(x)).all() for x in found)
            if batch:
                assert_all_close(outputs, case.paper(layer, inputs, **masks))


@pytest.mark.parametrize("name", ["pooling, softmax", "flow, both", "target, softmax", "hop"])
@pytest.mark.parametrize("dtype", ["float32", "mixed_float16"])
@pytest.mark.each_value
def test_dropout_is_for_training_and_the_weights_are_those_before_it(name, dtype):
    make = functools.partial(PAPERS[name].built, dtype, dropout=0.4, seed=3)
    inputs = [tensor(x, "float32") for x in PAPERS[name].inputs()]
    helpers.assert_dropout_is_for_training(make, inputs)


SOFTMAX, ROWS = PAPERS["pooling, softmax"], PAPERS["pooling, rows"]


@pytest.mark.parametrize("masks", [{}, {"mask": np.stack([GAPS[0], GAPS[0] & False])}])
def test_the_penalty_is_that_of_the_paper(masks):
    """Its gradient too; an empty bag adds nothing."""
    layer = ROWS.built()

    def oracle(inputs, weights):
        _, align = ROWS.paper(layer, inputs, weights, **masks)
        return [np.array(0.7 * redundancy(align))]

    def call(x):
        layer(x, **masks)
        return layer.losses

    helpers.assert_gradients(layer, call, ROWS.inputs(), oracle)


@pytest.mark.parametrize(("penalty", "bags", "losses"), [(0.0, B, []), (0.7, 0, [0.0])])
def test_nothing_to_penalize(penalty, bags, losses):
    layer = ROWS.built(penalty=penalty)
    layer(normal(1, bags, T, D))
    assert [float(numpy(x)) for x in layer.losses] == losses


def test_dropout_drops_weights_and_keeps_their_expectation():
    """Unit vectors show which weights were read, and their scale."""
    layer = ka.AttentionPooling(U, dropout=0.4, seed=3)
    inputs = np.tile(np.eye(T, dtype="float32"), (211, 1, 1))
    assert_drops(*run(layer, inputs, training=True))


@pytest.mark.parametrize(("steps", "vector"), [
    ([[8.0, 0.0], [8.0, 0.5]], [4096.0, 1.0]),  # The difference is lost in a sum of halves,
    ([[0.5, 0.0], [0.5 + 2**-11, 0.0]], [1024.0, 0.0]),  # and in a half that holds a tanh.
])  # fmt: skip
def test_half_precision_scores_are_calculated_in_float32(steps, vector):
    """The better of two steps wins, even if the scores differ only in the fourth digit."""
    layer = ka.AttentionPooling(2, dtype="float16")
    layer.build((None, None, 2))
    layer.kernel.assign(np.eye(2, dtype="float16"))
    layer.query_vector.assign(np.array(vector, "float16"))
    inputs = np.array([steps], "float16")
    _, weights = run(layer, inputs)
    assert 0.55 < numpy(weights)[0, 1] < 0.65
    assert_close(weights, SOFTMAX.paper(layer, [inputs.astype("float64")])[1], "float16")


J = 3
BOTH = PAPERS["flow, both"]


def test_nan_in_a_valid_query_propagates_in_both_directions():
    context, query = BOTH.inputs()
    query[0, 2] = np.nan  # valid
    merged, a, b = (numpy(x) for x in run(BOTH.built(), context, query, **BOTH.all_masks()))
    assert np.isnan(a[0][FLOW_MASKS["context_mask"][0][0]]).any(axis=-1).all()
    assert np.isnan(b[0]).any()
    assert all(np.isfinite(x[1]).all() for x in (merged, a, b))


def test_dropout_drops_weights_of_both_directions_and_keeps_their_expectation():
    """With unit vectors G shows which weights were read, and their scale."""
    layer = ka.BiDAFAttentionFlow(dropout=0.4, seed=3)
    context, query = (np.tile(np.eye(T)[:n], (211, 1, 1)) for n in (T, J))
    merged, a, b = (numpy(x) for x in run(layer, context, query, training=True))
    assert_drops(merged[..., T : T + J], a)
    # h_t is the unit vector t, and so h_t * h~ is b_t at t.
    assert_drops(np.diagonal(merged[..., 3 * T :], axis1=1, axis2=2), b)


test_refusals = helpers.refusals(
    (lambda: ka.BiDAFAttentionFlow(query_to_context=False, context_to_query=False, name="flow"),
     "flow: `query_to_context` or `context_to_query` must be True; received False for both."),
)  # fmt: skip


def test_half_precision_scores_are_summed_in_float32():
    """The better of two words wins, even if the scores differ only in the fourth digit."""
    layer = BOTH.built("float16")
    for weight in layer.trainable_weights:
        weight.assign(np.full(D, weight.name == "query_vector", "float16"))
    query = np.full((1, 2, D), 100.0)
    query[0, 1, 0] += 0.0625
    _, a, _ = run(layer, np.ones((1, T, D)), query)
    weights = np.array([1, np.exp(0.0625)]) / (1 + np.exp(0.0625))
    assert_close(a, np.tile(weights, (1, T, 1)), "float16")


def test_a_fresh_layer_compares_by_the_dot_product():
    layer = ka.BiDAFAttentionFlow()
    layer.build((None, None, 300), (None, None, 300))
    assert (numpy(layer.product_vector) == 1).all()
    for vector in (layer.context_vector, layer.query_vector):
        assert 0 < np.abs(numpy(vector)).max() <= 0.1 + 1e-6


NONE = PAPERS["target, none"]


def test_the_session_encoder_of_narm():
    """NARM's score is that of the layer without the difference and the product."""
    layer, states = ka.TargetAttention(U, dtype="float64"), normal(5, B, T, D)
    layer.build((None, D), (None, None, D))
    a1, a2, vector = normal(6, D, U), normal(7, D, U), numpy(layer.score_vector)
    layer.kernel.assign(np.concatenate([a1, a2, np.zeros((2 * D, U))]))
    last = [max(np.flatnonzero(row)) for row in GAPS]
    query = states[np.arange(B), last]
    encoded = np.concatenate([query, numpy(layer(query, states, value_mask=GAPS))], axis=-1)
    expected = [narm(a1, a2, vector, states[b], GAPS[b]) for b in range(B)]
    assert_close(encoded, np.array(expected))


WRONG = NONE.inputs()[:2]
test_the_values_alone_must_fit_the_query_if_they_are_the_keys = helpers.refusals(
    (lambda: NONE.built()(*WRONG), "5", "13"),
    (lambda: ka.TargetAttention(U)(*WRONG), "because `query` has 5 features", "13)"),
)


S = 3  # queries


@pytest.mark.parametrize("name", [name for name in PAPERS if name.startswith("hop")])
def test_several_queries_are_each_a_hop(name):
    case = PAPERS[name]
    hop, (_, *memories) = case.built(), case.inputs()
    queries = normal(2, B, S, D) / 4
    allowed = np.random.default_rng(5).random((B, S, T)) < 0.6
    asked = np.array([[True, True, False], [True, False, True]])
    masks = {"query_mask": asked, "attention_mask": allowed, "value_mask": GAPS}
    result = run(hop, queries, *memories, **masks)
    for t in range(S):
        mask = GAPS & allowed[:, t] & asked[:, t, None]
        state, weights = case.paper(hop, [queries[:, t], *memories], value_mask=mask)
        state = np.where(asked[:, t, None], state, 0)
        assert_all_close([x[:, t] for x in result], [state, weights])


@on_tensorflow
def test_linear_is_put_back_in_compiled_functions():
    import tensorflow as tf

    case, traces = PAPERS["hop, linear update, no softmax"], []
    hop, inputs = case.built(), case.inputs()

    @tf.function(jit_compile=True)
    def function(*tensors):
        traces.append(1)
        return run(hop, *tensors, value_mask=GAPS)

    (switch,) = hop.non_trainable_weights
    assert (switch.name, switch.dtype) == ("linear", "bool")
    assert ka.MemoryHop().linear is False
    for linear in (False, True, False):
        hop.linear = linear
        assert hop.linear is linear
        expected = case.paper(hop, inputs, value_mask=GAPS)
        assert_all_close(function(*map(tensor, inputs)), expected)
    assert len(traces) == 1


@pytest.mark.slow
def test_a_decoder_trains_with_the_switch_of_today():
    """On JAX, `fit` takes the weights out of the layers, and compiles once."""
    decoder = ka.AttentionRNN(keras.layers.GRUCell(D), ka.MemoryHop())
    inputs = keras.Input((S, D)), keras.Input((T, D))
    model = keras.Model(inputs, decoder(*inputs))
    model.compile(keras.optimizers.SGD(0.0), "mse")
    x = [normal(n, 2, *one.shape[1:], dtype="float32") for n, one in enumerate(inputs)]
    losses = []
    for linear in (False, True, False):
        decoder.attention.linear = linear
        losses += model.fit(x, np.zeros((2, S, D)), verbose=0).history["loss"]
        assert losses[-1] == pytest.approx(np.square(numpy(model(x))).mean(), rel=1e-5)
    assert losses[0] == pytest.approx(losses[2], rel=1e-5) != pytest.approx(losses[1], rel=0.01)
