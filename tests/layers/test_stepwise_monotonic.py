"""Paths, limits and arguments of stepwise monotonic attention."""

import itertools

import numpy as np
import pytest
from keras import ops

from keras_attention import StepwiseMonotonicAttention
from tests.backends import tensor
from tests.helpers import assert_close, assert_refused, gradients, normal, numpy
from tests.oracles import sigmoid


def by_probability(**options):
    """A layer whose p is the sigmoid of the query times the key, both numbers."""

    class Given(StepwiseMonotonicAttention):
        def project_query(self, query):
            return query

        def project_key(self, key):
            return key

        def score(self, query, key, state):
            return query * ops.transpose(key, (0, 2, 1))

    return Given(1, **{"dtype": "float64", "noise": 0, **options})


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


def test_a_mask_that_ends_before_the_weight_loses_it_whatever_keep_last_says():
    mask = np.ones((1, 4, 4), bool)
    mask[0, 2, 2:] = False
    for keep_last in (False, True):
        layer, moves = by_probability(keep_last=keep_last), np.full((1, 4, 1), -50.0)
        _, weights = layer(
            moves, np.ones((1, 4, 1)), attention_mask=tensor(mask), return_attention_scores=True
        )
        assert_close(numpy(weights)[0].sum(axis=1), [1, 1, 0, 0])


@pytest.mark.parametrize("valid", [None, [1, 1, 1, 1, 1], [0, 1, 0, 1, 1], [1, 1, 0, 0, 0]])
@pytest.mark.parametrize("keep_last", [False, True])
@pytest.mark.parametrize("training", [False, True])
def test_equals_the_sum_over_all_paths(valid, keep_last, training):
    query, value = normal(1, 2, 7, 1), normal(2, 2, 5, 1)
    mask = None if valid is None else tensor(np.tile(np.array(valid, bool), (2, 1)))
    layer = by_probability(keep_last=keep_last)
    _, weights = layer(
        query, value, value_mask=mask, return_attention_scores=True, training=training
    )
    valid = np.array(valid or [1] * 5, bool)
    pairs = zip(query, value, strict=True)
    expected = [by_paths(sigmoid(q * v.T), valid, keep_last) for q, v in pairs]
    assert_close(weights, np.array(expected))
    if keep_last:
        assert_close(ops.sum(weights, -1), np.ones((2, 7)))


def test_a_mask_that_is_true_everywhere_changes_nothing():
    inputs = normal(1, 2, 7, 1), normal(2, 2, 40, 1)
    layer = by_probability()
    layer.build(*(x.shape for x in inputs))

    def call(mask):
        def function(*inputs):
            return layer(*inputs, return_attention_scores=True, value_mask=mask)

        outputs, found = gradients(layer, function, inputs)
        return [*outputs, *found]

    for x, y in zip(call(None), call(tensor(np.ones((2, 40), bool))), strict=True):
        assert_close(x, numpy(y))


def test_hard_is_the_limit_of_soft():
    query, value = np.sign(normal(1, 3, 9, 1)), 200 * np.sign(normal(2, 3, 6, 1))
    mask = tensor(np.array([[1, 1, 1, 1, 1, 1], [0, 1, 0, 0, 1, 1], [1, 1, 1, 0, 0, 0]], bool))
    soft, hard = (
        by_probability(hard=x)(query, value, value_mask=mask, return_attention_scores=True)
        for x in (False, True)
    )
    for x, y in zip(soft, hard, strict=True):
        assert_close(x, numpy(y))
    weights = numpy(hard[1])
    assert set(np.unique(weights)) == {0.0, 1.0}
    # Every memory step is read in its order, until one moves beyond the end.
    places = [row.argmax(-1)[row.any(-1)] for row in weights[::2]]
    assert all(set(np.diff(x)) <= {0, 1} for x in places)
    assert max(x.max(initial=0) for x in places) > 1


def test_what_moves_beyond_the_end_is_lost_unless_the_last_step_keeps_it():
    query, value = np.full((1, 4, 1), -200.0), np.ones((1, 2, 1))
    lost, kept = [[0, 1], [0, 0], [0, 0], [0, 0]], [[0, 1]] * 4
    for hard in (False, True):
        for options, expected in (
            ({}, lost),
            ({"half_width": 1}, kept),
            ({"keep_last": True}, kept),
        ):
            layer = by_probability(hard=hard, **options)
            _, weights = layer(query, value, return_attention_scores=True)
            assert_close(weights[0], np.array(expected, float))


def test_hard_trains_like_soft():
    query, value = normal(1, 2, 3, 1), normal(2, 2, 9, 1)
    found = [by_probability(hard=x)(query, value, training=True) for x in (True, False)]
    assert_close(found[0], numpy(found[1]))


@pytest.mark.parametrize("hard", [False, True])
def test_nan_propagates_from_valid_steps_only(hard):
    layer = StepwiseMonotonicAttention(3, hard)
    query, value = np.ones((1, 2, 2), "float32"), np.ones((1, 4, 4), "float32")
    value[0, 1] = np.nan
    assert np.isnan(numpy(layer(query, value))).all()
    mask = tensor(np.array([[True, False, True, True]]))
    assert np.isfinite(numpy(layer(query, value, value_mask=mask))).all()


@pytest.mark.parametrize("hard", [False, True])
def test_nan_in_padding_and_nothing_valid_have_finite_gradients(hard):
    layer = StepwiseMonotonicAttention(11, hard, dtype="float64")
    query, value = normal(1, 3, 4, 5), normal(2, 3, 6, 7)
    layer.build(query.shape, value.shape)
    mask = np.array([[1, 0, 1, 1, 0, 0], [0] * 6, [0, 1, 1, 1, 1, 1]], bool)

    def call(query, value):
        return layer(query, value, value_mask=tensor(mask), return_attention_scores=True)

    outputs, found = gradients(layer, call, [query, value])
    value[~mask] = np.nan
    spoiled = gradients(layer, call, [query, value])
    for x, y in zip([*outputs, *found], [*spoiled[0], *spoiled[1]], strict=True):
        assert np.isfinite(numpy(y)).all()
        assert_close(x, numpy(y))
    assert not numpy(outputs[1])[1].any()


def test_noise_is_drawn_in_training_only():
    query, value = normal(1, 2, 3, 5, dtype="float32"), normal(2, 2, 9, 7, dtype="float32")
    layer = StepwiseMonotonicAttention(11, seed=3)
    first, again = layer(query, value, training=True), layer(query, value, training=True)
    assert np.abs(numpy(first) - numpy(again)).max() > 1e-3
    assert_close(layer(query, value), numpy(layer(query, value)))


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
    query, value = normal(1, 2, 7, 1), normal(2, 2, 5, 1)
    hard = by_probability(hard=True)(query, value, return_attention_scores=True)[1]
    cold = by_probability(temperature=1e-6)(query, value, return_attention_scores=True)[1]
    assert_close(cold, numpy(hard))


@pytest.mark.parametrize(
    ("options", "fragments"),
    [
        ({"units": None}, ("`units`", "a positive integer", "received None")),
        ({"hard": "yes"}, ("`hard`", "True or False", "received 'yes'")),
        ({"normalizer": "sparsemax"}, ("`normalizer`", "must be one of 'softmax'")),
        ({"noise": -1}, ("`noise`", "a number of at least 0", "received -1")),
        ({"keep_last": 1}, ("`keep_last`", "True or False", "received 1")),
        ({"temperature": 0}, ("`temperature`", "a number of at least 1e-06", "received 0")),
        ({"initial_offset": "4"}, ("`initial_offset`", "a number", "received '4'")),
        ({"initial_gain": -1}, ("`initial_gain`", "a number of at least 0", "received -1")),
    ],
)
def test_bad_arguments(options, fragments):
    assert_refused(lambda: StepwiseMonotonicAttention(**{"units": 3, **options}), *fragments)
