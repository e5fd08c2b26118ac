"""Replacing unknown tokens, against a loop."""

import itertools

import numpy as np
import pytest
from keras import ops

from keras_attention.search import replace_unknown
from tests.backends import tensor
from tests.helpers import assert_refused, numpy

B, K, L, TK, UNKNOWN = 2, 3, 5, 7, 3


def arrays(shape):
    rng = np.random.default_rng(0)
    tokens = rng.integers(2, 4, size=shape).astype("int32")
    weights = rng.random((*shape, TK)).astype("float32")
    tokens[0, ..., 0], weights[0, ..., 0, :] = UNKNOWN, 0  # this step read nothing
    source = rng.integers(100, 200, size=(B, TK)).astype("int32")
    mask = rng.random((B, TK)) < 0.5
    mask[1] = False
    return tokens, weights, source, mask


@pytest.mark.parametrize("shape", [(B, L), (B, K, L)])
@pytest.mark.parametrize("masked", [False, True])
def test_replace_unknown_is_the_loop(shape, masked):
    tokens, weights, source, mask = arrays(shape)
    expected = tokens.copy()
    for index in itertools.product(*map(range, shape)):
        best, largest = None, 0.0
        for j in range(TK):
            if (mask[index[0], j] or not masked) and weights[index][j] > largest:
                best, largest = j, weights[index][j]
        if tokens[index] == UNKNOWN and best is not None:
            expected[index] = source[index[0], best]
    assert 0 < np.sum(expected != tokens) < np.sum(tokens == UNKNOWN)
    given = [tensor(x) for x in (tokens, weights, source)]
    found = replace_unknown(*given, UNKNOWN, tensor(mask) if masked else None)
    np.testing.assert_array_equal(ops.convert_to_numpy(found), expected)


def test_without_a_source_nothing_is_replaced():
    tokens, source = np.array([[UNKNOWN, 1]]), np.zeros((1, 0), "int32")
    copied = replace_unknown(tokens, np.zeros((1, 2, 0)), source, UNKNOWN)
    assert numpy(copied).tolist() == [[UNKNOWN, 1]]


@pytest.mark.parametrize(("change", "message"), [
    ({"weights": None},
     "`weights` must be floating-point, of shape (2, 5, memory steps); received None"),
    ({"tokens": np.zeros((B, L))},
     "`tokens` must be integer ids, of shape (batch, steps); received float64"),
    ({"source": np.zeros((B, 6), "int32")},
     "`source` must be integer ids, of shape (2, 7), because `weights` has 7 memory steps"),
    ({"memory_mask": np.ones((B, TK))}, "`memory_mask` must be boolean"),
    ({"weights": np.zeros((B, K, L, TK))},
     "`weights` must be floating-point, of shape (2, 5, memory"),
    ({"unknown_token": -1}, "`unknown_token` must be an integer from 0 to 2147483647; received -1"),
])  # fmt: skip
def test_mistakes(change, message):
    tokens, weights, source, _ = arrays((B, L))
    given = {"tokens": tokens, "weights": weights, "source": source, "unknown_token": UNKNOWN}
    assert_refused(lambda: replace_unknown(**given | change), message)
