"""Losses of alignments beside loops, and beside all monotonic paths of a small table."""

import itertools
import math

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention.alignment import durations, forward_sum_loss
from tests.backends import BACKEND, compiled, tensor
from tests.helpers import Weightless, assert_gradients, normal, numpy

B, TQ, TK = 5, 7, 3
# All valid; gaps; more memory than steps; no step; no memory.
QUERY_MASK = np.array(
    [[1] * 7, [0, 1, 1, 0, 1, 1, 0], [0, 0, 1, 0, 1, 0, 0], [0] * 7, [1] * 7], bool
)
MEMORY_MASK = np.array([[1, 1, 1], [1, 0, 1], [1, 1, 1], [1, 1, 1], [0, 0, 0]], bool)
masked = pytest.mark.parametrize("masks", [False, True], ids=["whole", "masks"])
places = pytest.mark.parametrize("jit", [False])
EXACT = 1e-10 if BACKEND == "tensorflow" else 2e-5


def masks_of(masks):
    if masks:
        return QUERY_MASK, MEMORY_MASK
    return np.ones((B, TQ), bool), np.ones((B, TK), bool)


def given(masks):
    if not masks:
        return {}
    return {"query_mask": tensor(QUERY_MASK), "memory_mask": tensor(MEMORY_MASK)}


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


def by_paths(scores, query_mask, memory_mask):
    losses = []
    for e, of_query, of_memory in zip(scores, query_mask, memory_mask, strict=True):
        weights = soft(e[of_query][:, of_memory])
        total = sum(chance_of(weights, path) for path in paths(*weights.shape))
        losses.append(-math.log(total) if total > 0 else 0.0)
    return np.mean(losses)


def close(actual, expected):
    np.testing.assert_allclose(numpy(actual), expected, rtol=0, atol=EXACT * max(1, abs(expected)))


@masked
@places
def test_the_forward_sum_is_that_of_all_paths(masks, jit):
    scores = 2 * normal(1, B, TQ, TK)
    found = compiled(lambda x: forward_sum_loss(x, **given(masks)), jit)(tensor(scores))
    close(found, by_paths(scores, *masks_of(masks)))
    # The logarithm of weights is a score, too.
    if not masks:
        close(forward_sum_loss(ops.log(tensor(soft(scores)))), by_paths(scores, *masks_of(False)))


@masked
@places
@pytest.mark.parametrize("equal", [False, True])
def test_gradients_of_the_forward_sum(masks, jit, equal):
    """Equal scores too: they begin a training, and a maximum has another gradient there."""
    scores = np.zeros((B, TQ, TK)) if equal else normal(1, B, TQ, TK)
    assert_gradients(
        Weightless,
        lambda x: [forward_sum_loss(x, **given(masks))],
        [scores],
        lambda inputs, _: [np.array(by_paths(inputs[0], *masks_of(masks)))],
        jit=jit,
    )


@pytest.mark.parametrize("seed", range(3))
def test_the_forward_sum_is_ctc_without_blanks(seed):
    """A blank whose score is very low is never chosen."""
    scores = normal(seed, B, 11, 5, dtype="float32").astype("float32")
    lengths, of_memory = np.array([11, 9, 7, 6, 5]), np.array([5, 4, 3, 5, 1])
    masks = [np.arange(n) < x[:, None] for n, x in ((11, lengths), (5, of_memory))]
    labels = np.where(masks[1], np.arange(1, 6), 0).astype("int32")
    rows = np.where(masks[1][:, None], scores, -1e4).astype("float32")
    rows = np.concatenate([np.full((B, 11, 1), -1e4, "float32"), rows], axis=2)
    expected = ops.ctc_loss(
        *map(tensor, (labels, rows)), *(tensor(x.astype("int32")) for x in (of_memory, lengths))
    )
    found = forward_sum_loss(tensor(scores), *map(tensor, masks))
    np.testing.assert_allclose(numpy(found), numpy(expected).mean(), rtol=1e-4)


@masked
@places
def test_durations_are_those_of_the_best_path(masks, jit):
    weights = soft(2 * normal(2, B, TQ, TK))
    found = compiled(lambda x: durations(x, **given(masks)), jit)(tensor(weights))
    assert keras.backend.standardize_dtype(found.dtype) == "int32"
    expected = np.zeros((B, TK))
    for b, (of_query, of_memory) in enumerate(zip(*masks_of(masks), strict=True)):
        a = weights[b][of_query][:, of_memory]
        if every := paths(*a.shape):
            best = max(every, key=lambda path, a=a: chance_of(a, path))
            expected[b, of_memory] = np.bincount(best, minlength=a.shape[1])
    assert numpy(found).tolist() == expected.tolist()


def test_durations_of_equal_weights_move_on_first():
    assert numpy(durations(np.full((1, 5, 3), 1 / 3, "float32"))).tolist() == [[1, 1, 3]]
