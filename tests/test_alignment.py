"""Losses of alignments beside loops, and beside all monotonic paths of a small table."""

import itertools
import math

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention.alignment import (
    doubly_stochastic_loss,
    durations,
    forward_sum_loss,
    guided_attention_loss,
    supervised_attention_loss,
)
from tests.backends import compiled, on_tensorflow, tensor
from tests.helpers import Weightless, assert_gradients, gradients, normal, numpy, refusals

B, TQ, TK = 5, 7, 3
# All valid; gaps; more memory than steps; no step; no memory.
QUERY_MASK = np.array(
    [[1] * 7, [0, 1, 1, 0, 1, 1, 0], [0, 0, 1, 0, 1, 0, 0], [0] * 7, [1] * 7], bool
)
MEMORY_MASK = np.array([[1, 1, 1], [1, 0, 1], [1, 1, 1], [1, 1, 1], [0, 0, 0]], bool)
masked = pytest.mark.parametrize("masks", [False, True], ids=["whole", "masks"])
EXACT = 1e-10
LOOPS = 1e-12


def masks_of(masks):
    return (QUERY_MASK, MEMORY_MASK) if masks else (np.ones((B, TQ), bool), np.ones((B, TK), bool))


def given(masks):
    names = {"query_mask": QUERY_MASK, "memory_mask": MEMORY_MASK}
    return {name: tensor(x) for name, x in names.items()} if masks else {}


def soft(scores):
    chances = np.exp(scores)
    return chances / chances.sum(-1, keepdims=True)


def paths(steps, length):
    """All sequences of places that begin at 0, end at the last and move by 0 or 1."""
    if length == 0 or steps == 0:
        return [()] if length == steps == 0 else []
    every = itertools.product([0, 1], repeat=steps - 1)
    sums = [tuple(np.cumsum((0, *moves))) for moves in every]
    return [path for path in sums if path[-1] == length - 1]


def chance_of(weights, path):
    return math.prod(weights[i, j] for i, j in enumerate(path))


def samples(x, query_mask, memory_mask):
    for one, query_valid, memory_valid in zip(x, query_mask, memory_mask, strict=True):
        yield one[query_valid][:, memory_valid]


def by_paths(scores, *masks):
    losses = []
    for e in samples(scores, *masks):
        weights = soft(e)
        total = sum(chance_of(weights, path) for path in paths(*weights.shape))
        losses.append(-math.log(total) if total > 0 else 0.0)
    return np.mean(losses)


def guided_by_loops(weights, *masks, width):
    losses = []
    for a in samples(weights, *masks):
        total, (steps, length) = 0.0, a.shape
        for i in range(steps):
            whole = max(a[i].sum(), 1e-15)
            for j in range(length):
                distance = i / steps - j / length
                total += a[i, j] / whole * (1 - math.exp(-(distance**2) / (2 * width**2)))
            total += 1 - a[i].sum() / whole if length else 0
        losses.append(total / max(steps * length, 1))
    return np.mean(losses)


def supervised_by_loops(alignment, weights, *masks):
    losses = []
    for t, a in zip(samples(alignment, *masks), samples(weights, *masks), strict=True):
        known = [np.flatnonzero(row > 0) for row in t]
        pairs = [(i, places) for i, places in enumerate(known) if len(places)]
        rows = [-sum(t[i, j] * math.log(a[i, j]) for j in places) for i, places in pairs]
        losses.append(np.mean(rows) if rows else 0.0)
    return np.array(losses)


def doubly_by_loops(weights, *masks):
    losses = []
    for a in samples(weights, *masks):
        losses.append(sum((1 - sum(a[:, j])) ** 2 for j in range(a.shape[1])))
    return np.mean(losses)


def close(actual, expected, exact=EXACT):
    size = max(1, np.max(np.abs(expected)))
    np.testing.assert_allclose(numpy(actual), expected, rtol=0, atol=exact * size)


def leaking(weights):
    """Scales rows to sums below one, and one row to zero, as monotonic attention does."""
    weights = weights * np.random.default_rng(3).uniform(0.1, 1, (B, TQ, 1))
    weights[0, 1], weights[1, 2] = 0, 1e-20 * weights[1, 2]
    return weights


# Soft rows; one row of which nothing is known, and zeros in the others.
ALIGNMENT, SCORES = soft(normal(2, B, TQ, TK)), normal(1, B, TQ, TK)
ALIGNMENT[0, 2] = ALIGNMENT[:, :, 1] = 0
WEIGHTS = soft(SCORES)
SMALLER = WEIGHTS * np.array([1, 1, 0.3, 1, 1])[:, None, None]
FORWARD = (
    lambda t, x, **masks: forward_sum_loss(x, **masks),
    lambda t, x, *masks: by_paths(x, *masks),
)
GUIDED = (
    lambda t, x, **masks: guided_attention_loss(x, **masks, width=0.07),
    lambda t, x, *masks: guided_by_loops(x, *masks, width=0.07),
)
SUPERVISED = supervised_attention_loss, supervised_by_loops
DOUBLY = (
    lambda t, x, **masks: doubly_stochastic_loss(x, **masks),
    lambda t, x, *masks: doubly_by_loops(x, *masks),
)
# A loss of an alignment and of weights or scores, its loops, and where both are compared; where
# the gradients are, no row is zero.
LOSSES = {
    "forward sum": (*FORWARD, 2 * SCORES, 2 * SCORES, EXACT),
    # They begin a training, and a maximum has another gradient there.
    "forward sum of equal scores": (*FORWARD, 0 * SCORES, 0 * SCORES, EXACT),
    # The logarithm of weights is a score, too.
    "forward sum of weights": (*FORWARD, np.log(WEIGHTS), 2 * SCORES, EXACT),
    "guided": (*GUIDED, leaking(WEIGHTS), SMALLER, LOOPS),
    "supervised": (*SUPERVISED, WEIGHTS, SMALLER, LOOPS),
    "doubly stochastic": (*DOUBLY, leaking(WEIGHTS), SMALLER, LOOPS),
}


@masked
@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_and_its_gradient_equal_loops(name, masks):
    loss, loops, weights, smooth, exact = LOSSES[name]
    oracle = lambda x, _=None: [np.array(loops(ALIGNMENT, x[0], *masks_of(masks)))]  # noqa: E731
    run = lambda x: [loss(tensor(ALIGNMENT), x, **given(masks))]  # noqa: E731
    close(*run(tensor(weights)), *oracle([weights]), exact)
    assert_gradients(Weightless, run, [smooth], oracle)
    if exact == LOOPS:
        close(*compiled(run)(tensor(weights)), *oracle([weights]), exact)


@masked
def test_durations_are_those_of_the_best_path(masks):
    weights = soft(2 * normal(2, B, TQ, TK))
    found = durations(tensor(weights), **given(masks))
    assert keras.backend.standardize_dtype(found.dtype) == "int32"
    expected = np.zeros((B, TK))
    for b, a in enumerate(samples(weights, *masks_of(masks))):
        if every := paths(*a.shape):
            best = max(every, key=lambda path, a=a: chance_of(a, path))
            expected[b, masks_of(masks)[1][b]] = np.bincount(best, minlength=a.shape[1])
    assert numpy(found).tolist() == expected.tolist()
    # Equal weights move on first.
    assert numpy(durations(np.full((1, 5, 3), 1 / 3, "float32"))).tolist() == [[1, 1, 3]]


@pytest.mark.parametrize("name", ["forward sum", "guided", "supervised"])
def test_padding_has_no_effect_a_valid_nan_propagates_and_halves_are_read_exactly(name):
    def run(weights):
        return [LOSSES[name][0](tensor(alignment), weights, **given(True))]

    weights, alignment = soft(normal(1, B, TQ, TK)), soft(normal(2, B, TQ, TK))
    valid = QUERY_MASK[:, :, None] & MEMORY_MASK[:, None]
    loss, slopes = (numpy(*x) for x in gradients(Weightless, run, [weights]))
    whole, hidden = alignment, np.where(valid, weights, np.nan)
    alignment = np.where(valid, alignment, np.nan)
    again, spoiled = (numpy(*x) for x in gradients(Weightless, run, [hidden]))
    np.testing.assert_array_equal(loss, again)
    np.testing.assert_array_equal(slopes, spoiled)
    assert np.isfinite(slopes).all()
    assert not slopes[~valid].any()
    assert np.abs(slopes).max() > 1e-3
    weights[1, 1, 0] = np.nan
    assert np.isnan(numpy(*run(tensor(weights)))).any()
    found, expected = (numpy(durations(tensor(x), **given(True))) for x in (alignment, whole))
    assert found.tolist() == expected.tolist()
    for dtype, wide in (("float64", "float64"), ("bfloat16", "float32")):
        halves = [ops.cast(x, dtype) for x in (ALIGNMENT, WEIGHTS)]
        found, exact = (LOSSES[name][0](*(ops.cast(x, to) for x in halves)) for to in (dtype, wide))
        assert keras.backend.standardize_dtype(found.dtype) == wide
        assert numpy(found).tolist() == numpy(exact).tolist()


def test_what_an_alignment_holds_and_weights_of_zero():
    """Booleans and integers are alignments too. A NaN at a valid place propagates."""
    weights, alignment = soft(normal(1, B, TQ, TK)), normal(2, B, TQ, TK) > 0.5
    expected = supervised_by_loops(alignment, weights, *masks_of(False))
    for kind in (bool, "int32"):
        close(supervised_attention_loss(alignment.astype(kind), tensor(weights)), expected, LOOPS)
    spoiled = np.where(np.arange(TK) == 1, np.nan, alignment)
    assert np.isnan(numpy(supervised_attention_loss(tensor(spoiled), tensor(weights)))).all()
    alignment, weights = np.eye(3)[None], np.eye(3)[None, ::-1]
    loss = lambda a: [supervised_attention_loss(tensor(alignment), a)]  # noqa: E731
    outputs, found = gradients(Weightless, loss, [weights])
    assert numpy(*outputs) == pytest.approx(-2 / 3 * math.log(1e-30), rel=1e-6)
    assert np.argwhere(numpy(*found)).tolist() == [[0, 1, 1]]


def align(weights):
    losses = guided_attention_loss(weights), forward_sum_loss(weights)
    return *losses, supervised_attention_loss(weights, weights)


@pytest.mark.parametrize("graph", [False, pytest.param(True, marks=on_tensorflow)])
def test_nothing_to_align(graph):
    """Also in a graph that knows no size."""
    run = align
    if graph:
        import tensorflow as tf

        run = tf.function(align, [tf.TensorSpec((None, None, None))], autograph=False)
    for shape in ((2, 0, 3), (2, 3, 0), (2, 0, 0), (0, 2, 3)):
        empty = np.zeros(shape, "float32")
        *losses, supervised = map(numpy, run(empty))
        assert losses == [0, 0]
        assert supervised.tolist() == [0] * shape[0]
        assert numpy(durations(empty)).tolist() == [[0] * shape[2]] * shape[0]


ONES = np.ones((2, 3, 5), "float32")


test_bad_arguments = refusals(
    (lambda: guided_attention_loss(ONES[0]), "guided_attention_loss: `weights` must"),
    (lambda: guided_attention_loss(ONES, width=0), "`width`", "received 0"),
    (lambda: forward_sum_loss(ONES.astype(int)), "forward_sum_loss: `scores` must"),
    (lambda: durations(ONES, np.ones((2, 5), bool)), "`query_mask`", "(2, 5)"),
    (lambda: durations(ONES, None, np.ones((2, 5))), "`memory_mask`", "boolean"),
    (lambda: supervised_attention_loss(ONES[:, :2], ONES),
     "supervised_attention_loss: `weights`", "because `alignment` has 2 steps", "(2, 3, 5)"),
)  # fmt: skip


def test_leaving_the_memory_lowers_no_guided_loss_and_has_finite_gradients():
    """In float32, in which the square of a small sum is zero."""
    weights = np.array([[[1e-25, 1e-26, 0], [0, 0, 0], [1e-12, 0, 0], [0.2, 0.8, 0]]])
    mask = tensor(np.array([[True, True, False]]))

    def run(x):
        return [guided_attention_loss(ops.cast(x, "float32"), memory_mask=mask)]

    (found,) = numpy(*gradients(Weightless, run, [weights])[1]).tolist()
    assert np.isfinite(found).all()
    assert np.abs(found[3]).max() > 0
    places = np.arange(0.0, 40.0)[:, None, None]
    weights = np.exp(-np.square(np.arange(3) - places) / 2).astype("float32")
    assert weights.sum(axis=(1, 2)).min() == 0
    losses = [float(guided_attention_loss(tensor(x[None]))) for x in weights]
    assert np.diff(losses).min() > -1e-6
    assert losses[-1] == pytest.approx(1 / 3)
