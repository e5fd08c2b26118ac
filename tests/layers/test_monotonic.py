"""Worked examples, limits and noise of monotonic and stepwise monotonic attention."""

import itertools

import numpy as np
import pytest
from keras import layers, ops

from keras_attention import AttentionRNN, MonotonicAttention, StepwiseMonotonicAttention
from tests import helpers
from tests.backends import on_tensorflow, tensor
from tests.helpers import Mechanism, assert_all_close, assert_close, gradients, normal, numpy
from tests.layers.papers import run
from tests.oracles import attend

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


@pytest.mark.parametrize("valid", [[1] * 7, [0, 1, 0, 1, 1, 0, 1], [1, 1, 0, 0, 0, 0, 0]])
@pytest.mark.parametrize("training", [False, True])
def test_the_last_step_may_keep_the_weight(valid, training):
    mechanism = Mechanism(StepwiseMonotonicAttention, {"units": 17, "keep_last": True, "noise": 0})
    layer, inputs = mechanism.built(dtype="float64"), mechanism.tensors()
    masks = {"value_mask": np.array([valid] * 2, bool)}
    found = layer(*inputs, **masks, training=training, return_attention_scores=True)
    assert_all_close(found, attend(mechanism.row(layer), *inputs, **masks))
    assert_close(ops.sum(found[1], -1), np.ones((2, 3)))


def test_a_mask_that_ends_before_the_weight_loses_it_whatever_keep_last_says():
    mask = np.ones((1, 4, 4), bool)
    mask[0, 2, 2:] = False
    for keep_last in (False, True):
        layer, moves = by_probability("stepwise", keep_last=keep_last), np.full((1, 4, 1), -50.0)
        _, weights = run(layer, moves, np.ones((1, 4, 1)), attention_mask=tensor(mask))
        assert_close(numpy(weights)[0].sum(axis=1), [1, 1, 0, 0])


@pytest.mark.parametrize("limit", [HARD, {"stepwise": {"temperature": 1e-6}}], ids=["hard", "cold"])
@every_kind
def test_hard_is_the_limit_of_soft(kind, limit):
    query, value = np.ones((4, 6, 1)), np.sign(normal(2, 4, 30, 1)) * 200
    value[3] = -200  # nothing is ever read, or one step after the other
    # Steps beyond the first move on only where p is zero at the last place.
    query = query * np.sign(normal(3, 4, 6, 1))
    mask = tensor(np.stack([np.arange(30) % n > 0 for n in (40, 3, 2, 40)]))
    soft, hard = (
        run(by_probability(kind, **options), query, value, value_mask=mask)
        for options in ({}, limit.get(kind, HARD[kind]))
    )
    assert_all_close(soft, hard)
    weights = numpy(hard[1])
    assert set(np.unique(weights)) == {0.0, 1.0}
    assert kind == "stepwise" or not weights[3, query[3, :, 0] > 0].any()
    places = [row.argmax(-1)[row.any(-1)] for row in weights]
    assert all((np.diff(x) >= 0).all() for x in places)
    assert max(x.max(initial=0) for x in places) > 3


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
@pytest.mark.parametrize("jit", [False, pytest.param(True, marks=pytest.mark.slow)])
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
    inputs = normal(1, 2, 3, 5, dtype="float32"), normal(2, 2, 9, 7, dtype="float32")

    def make():
        layer = KINDS[kind](11, seed=3, initial_offset=0.0)
        layer.build(*(x.shape for x in inputs))
        return helpers.randomize(layer)

    layer, twin = make(), make()
    first, again = (numpy(layer(*inputs, training=True)) for _ in range(2))
    assert np.abs(first - again).max() > 1e-3
    assert_close(layer(*inputs), numpy(layer(*inputs)))
    assert_close(twin(*inputs, training=True), first, "float32")
    quiet = KINDS[kind](11, noise=0)
    assert_close(quiet(*inputs, training=True), numpy(quiet(*inputs)), "float32")


@pytest.mark.parametrize(("options", "gain"), [({}, 11**-0.5), ({"initial_gain": 4.0}, 4)])
def test_initial_values(options, gain):
    layer = MonotonicAttention(11, **options)
    layer.build((1, 2, 3), (1, 5, 7))
    assert numpy(layer.offset_bias) == -4
    assert numpy(layer.base_attention.gain) == pytest.approx(gain)


NO_QUERY = {"query_mask": np.array([[True, False, True]])}
NO_PAIR = {"attention_mask": np.array([[True] * 2, [False] * 2, [True] * 2])}


@pytest.mark.parametrize("decoding", [False, True])
@pytest.mark.parametrize(("query", "options", "last"), [
    # A step that could read but stopped nowhere has read nothing for good.
    *((-9.0, x, [0, 0]) for x in (
        {}, {"query_mask": np.ones((1, 3), bool)}, {"attention_mask": np.ones((3, 2), bool)},
        {"value_mask": np.ones((1, 2), bool)}, {"use_causal_mask": False})),
    # A step that can read nothing keeps its place.
    *((9.0, x, [1, 0]) for x in (NO_QUERY, NO_PAIR)),
])  # fmt: skip
def test_what_is_read_after_a_step_that_read_nothing(decoding, query, options, last):
    layer = by_probability(mode="hard")
    query, value = np.array([[[9.0], [query], [9.0]]]), np.ones((1, 2, 1))
    layer.build(query.shape, value.shape)
    if not decoding:
        weights = run(layer, query, value, **options)[1]
    else:
        of_memory = {name: x for name, x in options.items() if name == "value_mask"}
        memory = layer.prepare(tensor(value), **of_memory)
        options = {name: x for name, x in options.items() if name != "value_mask"}
        weights = layer.attend(tensor(query), memory, **options).weights
    assert numpy(weights).tolist() == [[[1, 0], [0, 0], last]]


@on_tensorflow
@pytest.mark.parametrize(("known", "jit"), [
    ("mask", False), pytest.param("memory", True, marks=pytest.mark.slow),
])  # fmt: skip
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
@pytest.mark.parametrize(("kind", "options"), [
    ("stepwise", {}), pytest.param("monotonic", HARD, marks=pytest.mark.slow),
])  # fmt: skip
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
