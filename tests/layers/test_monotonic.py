"""Worked examples, limits and noise of monotonic and stepwise monotonic attention."""

import itertools

import numpy as np
import pytest
from keras import layers, ops

from keras_attention import AttentionRNN, MonotonicAttention, StepwiseMonotonicAttention
from tests import fast
from tests.backends import on_tensorflow, tensor
from tests.helpers import assert_all_close, assert_close, gradients, normal, numpy, randomize
from tests.layers.papers import run
from tests.oracles import sigmoid

KINDS = {"monotonic": MonotonicAttention, "stepwise": StepwiseMonotonicAttention}
HARD = {"monotonic": {"mode": "hard"}, "stepwise": {"hard": True}}
every_kind = pytest.mark.parametrize("kind", KINDS)


def by_probability(kind="monotonic", **options):
    """A layer whose p is the sigmoid of the query times the key, both numbers."""

    class Given(KINDS[kind]):
        def project_query(self, query):
            return query

        def project_key(self, key):
            return key

        def score(self, query, key, state):
            return query * ops.transpose(key, (0, 2, 1))

    return Given(1, **{"dtype": "float64", "noise": 0, **options})


@pytest.mark.parametrize("mode", ["parallel", "recursive"])
def test_the_worked_example(mode):
    """p = [.5, .5, .5] after [1, 0, 0] gives [.5, .25, .125]."""
    _, weights = run(by_probability(mode=mode), np.zeros((1, 1, 1)), np.zeros((1, 3, 1)))
    assert numpy(weights).tolist() == [[[0.5, 0.25, 0.125]]]


def by_paths(p, valid, keep_last):
    """The sum of the probabilities of all paths, in which each step stays or moves on."""
    steps, places = len(p), np.flatnonzero(valid)
    weights = np.zeros(p.shape)
    if keep_last:
        p = np.where(np.arange(p.shape[1]) == places[-1], 1.0, p)
    for last in range(steps):
        for moves in itertools.product([0, 1], repeat=last + 1):
            at, chance = 0, 1.0
            for i, move in enumerate(moves):
                if at == len(places):
                    chance = 0.0  # it has left, and goes nowhere
                    break
                stay = p[i, places[at]]
                chance *= 1 - stay if move else stay
                at += move
            if at < len(places):
                weights[last, places[at]] += chance
    return weights


@pytest.mark.parametrize("valid", [None, [1, 1, 1, 1, 1], [0, 1, 0, 1, 1], [1, 1, 0, 0, 0]])
@pytest.mark.parametrize("keep_last", [False, True])
@pytest.mark.parametrize("training", [False, True])
def test_stepwise_weights_are_sums_over_all_paths(valid, keep_last, training):
    query, value = normal(1, 2, 7, 1), normal(2, 2, 5, 1)
    mask = None if valid is None else tensor(np.tile(np.array(valid, bool), (2, 1)))
    layer = by_probability("stepwise", keep_last=keep_last)
    _, weights = run(layer, query, value, value_mask=mask, training=training)
    valid = np.array(valid or [1] * 5, bool)
    pairs = zip(query, value, strict=True)
    expected = [by_paths(sigmoid(q * v.T), valid, keep_last) for q, v in pairs]
    assert_close(weights, np.array(expected))
    if keep_last:
        assert_close(ops.sum(weights, -1), np.ones((2, 7)))


def test_a_mask_that_ends_before_the_weight_loses_it_whatever_keep_last_says():
    mask = np.ones((1, 4, 4), bool)
    mask[0, 2, 2:] = False
    for keep_last in (False, True):
        layer, moves = by_probability("stepwise", keep_last=keep_last), np.full((1, 4, 1), -50.0)
        _, weights = run(layer, moves, np.ones((1, 4, 1)), attention_mask=tensor(mask))
        assert_close(numpy(weights)[0].sum(axis=1), [1, 1, 0, 0])


@pytest.mark.parametrize("chunk", [None, 3])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.each_value
def test_recursive_equals_parallel(chunk, dtype):
    query, value = normal(1, 3, 9, 5, dtype=dtype), normal(2, 3, 40, 7, dtype=dtype)
    mask, found = tensor(np.tile(np.arange(40) % 7 > 0, (3, 1))), []
    for mode in ("parallel", "recursive"):
        layer = MonotonicAttention(11, mode, chunk_size=chunk, initial_offset=-1.0, dtype=dtype)
        layer.build(query.shape, value.shape)
        randomize(layer, scale=1.0)

        def call(*inputs, layer=layer):
            return run(layer, *inputs, value_mask=mask)

        outputs, of_inputs = gradients(layer, call, [query, value])
        found.append([*outputs, *of_inputs])
    for x, y in zip(*found, strict=True):
        tolerance = 1e-10 if dtype == "float64" else 1e-5
        np.testing.assert_allclose(numpy(x), numpy(y), rtol=0, atol=tolerance)


def test_hard_is_the_limit_of_soft():
    query, value = np.ones((4, 6, 1)), np.sign(normal(2, 4, 30, 1)) * 200
    value[3] = -200  # nothing is ever read
    # Steps beyond the first move on only where p is zero at the last place.
    query = query * np.sign(normal(3, 4, 6, 1))
    soft, hard = (run(by_probability(mode=mode), query, value) for mode in ("parallel", "hard"))
    assert_all_close(soft, hard)
    weights = numpy(hard[1])
    assert set(np.unique(weights)) == {0.0, 1.0}
    assert not weights[3, query[3, :, 0] > 0].any()
    places = [row.argmax(-1)[row.any(-1)] for row in weights]
    assert all((np.diff(x) >= 0).all() for x in places)
    assert max(x.max(initial=0) for x in places) > 3


def test_stepwise_hard_is_the_limit_of_soft():
    query, value = np.sign(normal(1, 3, 9, 1)), 200 * np.sign(normal(2, 3, 6, 1))
    mask = tensor(np.array([[1, 1, 1, 1, 1, 1], [0, 1, 0, 0, 1, 1], [1, 1, 1, 0, 0, 0]], bool))
    soft, hard = (
        run(by_probability("stepwise", hard=x), query, value, value_mask=mask)
        for x in (False, True)
    )
    assert_all_close(soft, hard)
    weights = numpy(hard[1])
    assert set(np.unique(weights)) == {0.0, 1.0}
    # Every memory step is read in its order, until one moves beyond the end.
    places = [row.argmax(-1)[row.any(-1)] for row in weights[::2]]
    assert all(set(np.diff(x)) <= {0, 1} for x in places)
    assert max(x.max(initial=0) for x in places) > 1


def test_what_moves_beyond_the_end_is_lost_unless_the_last_step_keeps_it():
    query, value = np.full((1, 4, 1), -200.0), np.ones((1, 2, 1))
    lost, kept = [[0, 1], [0, 0], [0, 0], [0, 0]], [[0, 1]] * 4
    cases = ({}, lost), ({"half_width": 1}, kept), ({"keep_last": True}, kept)
    for hard, (options, expected) in itertools.product((False, True), cases):
        _, weights = run(by_probability("stepwise", hard=hard, **options), query, value)
        assert_close(weights[0], np.array(expected, float))


@every_kind
def test_hard_trains_like_soft(kind):
    query, value = normal(1, 2, 3, 1), normal(2, 2, 9, 1)
    found = [by_probability(kind, **x)(query, value, training=True) for x in (HARD[kind], {})]
    assert_close(found[0], numpy(found[1]))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("jit", fast([False, True], [False]))
@pytest.mark.parametrize("spread", [1.0, 300.0])
@pytest.mark.each_value
def test_a_memory_of_ten_thousand_steps(dtype, jit, spread):
    query = ops.cast(spread * normal(1, 1, 3, 5), dtype)
    value = ops.cast(normal(2, 1, 10_000, 7), dtype)
    layer = MonotonicAttention(11, chunk_size=4, dtype=dtype)
    layer.build(query.shape, value.shape)
    outputs, found = gradients(layer, lambda *x: run(layer, *x), [query, value], jit)
    assert all(np.isfinite(numpy(x)).all() for x in (*outputs, *found))
    weights = numpy(outputs[1])
    assert weights.sum(-1).max() <= 1 + 1e-2
    assert weights.sum(-1).min() > 0.1


@every_kind
def test_noise_is_drawn_in_training_only(kind):
    query, value = normal(1, 2, 3, 5, dtype="float32"), normal(2, 2, 9, 7, dtype="float32")
    layer, twin = (KINDS[kind](11, seed=3, initial_offset=0.0) for _ in range(2))
    first, again = layer(query, value, training=True), layer(query, value, training=True)
    assert np.abs(numpy(first) - numpy(again)).max() > 1e-3
    assert_close(layer(query, value), numpy(layer(query, value)))
    twin.build(query.shape, value.shape)
    twin.set_weights(layer.get_weights())
    assert_close(twin(query, value, training=True), numpy(first), "float32")
    quiet = KINDS[kind](11, noise=0)
    assert_close(quiet(query, value, training=True), numpy(quiet(query, value)), "float32")


def test_initial_values():
    for options, gain in (({}, 11**-0.5), ({"initial_gain": 4.0}, 4)):
        layer = MonotonicAttention(11, **options)
        layer.build((1, 2, 3), (1, 5, 7))
        assert numpy(layer.offset_bias) == -4
        assert numpy(layer.base_attention.gain) == pytest.approx(gain)


@pytest.mark.parametrize("decoding", [False, True])
def test_a_mask_that_is_true_everywhere_changes_nothing(decoding):
    """A step that could read but stopped nowhere has read nothing for good."""
    layer = by_probability(mode="hard")
    query, value = np.array([[[9.0], [-9.0], [9.0]]]), np.ones((1, 2, 1))
    masks = [{}, {"query_mask": np.ones((1, 3), bool)}, {"attention_mask": np.ones((3, 2), bool)}]
    masks += [{"value_mask": np.ones((1, 2), bool)}, {"use_causal_mask": False}]
    layer.build(query.shape, value.shape)
    for options in masks:
        if not decoding:
            weights = run(layer, query, value, **options)[1]
        else:
            memory = layer.prepare(tensor(value), value_mask=options.pop("value_mask", None))
            weights = layer.attend(tensor(query), memory, **options).weights
        assert numpy(weights).tolist() == [[[1, 0], [0, 0], [0, 0]]], options


def test_a_stepwise_mask_that_is_true_everywhere_changes_nothing():
    inputs = normal(1, 2, 7, 1), normal(2, 2, 40, 1)
    layer, found = by_probability("stepwise"), []
    layer.build(*(x.shape for x in inputs))
    for mask in (None, tensor(np.ones((2, 40), bool))):
        outputs, of = gradients(layer, lambda *x, m=mask: run(layer, *x, value_mask=m), inputs)
        found.append([*outputs, *of])
    assert_all_close(*found)


def test_a_step_that_can_read_nothing_keeps_its_place():
    layer = by_probability(mode="hard")
    query, value = np.array([[[9.0], [9.0], [9.0]]]), np.ones((1, 2, 1))
    for mask in (
        {"query_mask": np.array([[True, False, True]])},
        {"attention_mask": np.array([[True] * 2, [False] * 2, [True] * 2])},
    ):
        _, weights = run(layer, query, value, **mask)
        assert numpy(weights).tolist() == [[[1, 0], [0, 0], [1, 0]]]


@on_tensorflow
@pytest.mark.parametrize("jit", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("known", fast(["memory", "mask"], ["mask"]))
@pytest.mark.each_value
def test_only_the_mask_or_the_memory_knows_its_batch_size(known, jit):
    import tensorflow as tf

    cell = layers.GRUCell(5, dtype="float64")
    attention = MonotonicAttention(3, "hard", noise=0, dtype="float64")
    layer = AttentionRNN(cell, attention, query="current", input_feeding=True)
    layer.build((None, None, 2), (None, None, 7))
    inputs = [tensor(normal(n, 1, 4, size)) for n, size in enumerate((2, 7))]
    inputs.append(tensor(np.array([[True, True, False, True]])))
    memory, mask = (1 if name == known else None for name in ("memory", "mask"))
    shapes = (None, None, 2), (memory, None, 7), (mask, None)
    specs = [tf.TensorSpec(x, y.dtype) for x, y in zip(shapes, inputs, strict=True)]

    def call(sequences, memory, mask):
        return layer(sequences, memory, memory_mask=mask, training=True)

    found = tf.function(call, specs, autograph=False, jit_compile=jit)(*inputs)
    assert_close(found, numpy(call(*inputs)))


@on_tensorflow
@pytest.mark.parametrize(("kind", "options"), [("monotonic", HARD), ("stepwise", {})])
def test_no_memory_in_a_graph_that_knows_no_size(kind, options):
    import tensorflow as tf

    layer = KINDS[kind](3, **options.get(kind, {"half_width": 2}))
    specs = [tf.TensorSpec((None, None, 2)), tf.TensorSpec((None, None, 4))]
    call = tf.function(layer.__call__, specs, autograph=False)
    output = call(np.ones((2, 3, 2), "float32"), np.ones((2, 0, 4), "float32"))
    assert numpy(output).tolist() == np.zeros((2, 3, 4)).tolist()


@pytest.mark.parametrize(("kind", "hard"), [("monotonic", 1), ("stepwise", 0), ("stepwise", 1)])
def test_nan_propagates_from_valid_steps_only(kind, hard):
    layer = KINDS[kind](3, **HARD[kind] if hard else {})
    # In hard mode, monotonic attention has read nothing for good after one NaN.
    query = np.ones((1, 1 if kind == "monotonic" else 2, 2), "float32")
    value = np.ones((1, 4, 4), "float32")
    key = np.array(value)
    key[0, 1] = np.nan
    layer.build(query.shape, value.shape)
    layer.offset_bias.assign(-9.0)  # nothing stops before
    assert np.isnan(numpy(layer(query, value, key))).all()
    mask = tensor(np.array([[True, False, True, True]]))
    assert np.isfinite(numpy(layer(query, value, key, value_mask=mask))).all()


@pytest.mark.parametrize("half_width", [None, 3])
def test_the_temperature_divides_scores_at_inference(half_width):
    query, value = normal(1, 2, 3, 5, dtype="float32"), normal(2, 2, 9, 7, dtype="float32")
    options = {"noise": 0, "initial_offset": 0.3, "half_width": half_width}
    cold = StepwiseMonotonicAttention(11, temperature=0.2, initial_gain=1.0, **options)
    plain = StepwiseMonotonicAttention(11, initial_gain=5.0, **options)
    for layer in (cold, plain):
        layer.build(query.shape, value.shape)
    for name in ("query_kernel", "key_kernel", "score_vector"):
        getattr(plain.base_attention, name).assign(getattr(cold.base_attention, name))
    plain.offset_bias.assign(0.3 / 0.2)
    assert_close(cold(query, value), numpy(plain(query, value)), "float32")
    plain.base_attention.gain.assign(1.0)
    plain.offset_bias.assign(0.3)
    found = cold(query, value, training=True)
    assert_close(found, numpy(plain(query, value, training=True)), "float32")


def test_near_zero_the_temperature_is_the_hard_mode():
    inputs = normal(1, 2, 7, 1), normal(2, 2, 5, 1)
    hard, cold = (by_probability("stepwise", **x) for x in ({"hard": True}, {"temperature": 1e-6}))
    assert_close(run(cold, *inputs)[1], numpy(run(hard, *inputs)[1]))
