"""The score with a convolution of weights, against a loop."""

import numpy as np
import pytest

from keras_attention.ops.convolution import convolved_score
from tests.backends import compiled, tensor
from tests.helpers import Weightless, assert_close, assert_gradients, normal

B, TK, U = 2, 5, 3


def loops(query, weights, filters, vector, key=None):
    scores = np.zeros((B, TK))
    for b in range(B):
        kernel = filters if filters.ndim == 2 else filters[b]
        half = (len(kernel) - 1) // 2
        for j in range(TK):
            hidden = query[b] + (0 if key is None else key[b, j])
            for w in range(len(kernel)):
                if 0 <= j + w - half < TK:
                    hidden = hidden + kernel[w] * weights[b, j + w - half]
            scores[b, j] = vector @ np.tanh(hidden)
    return scores


def call(query, weights, filters, vector, key=None):
    return convolved_score(query, key, weights, filters, vector)


@pytest.mark.parametrize("filters", [(1, U), (4, U), (3, U), (B, 5, U), (B, 11, U)])
@pytest.mark.parametrize("keys", [False, True])
@pytest.mark.parametrize("jit", [False, True])
def test_score_and_gradients(filters, keys, jit):
    shapes = (B, U), (B, TK), filters, (U,), *([(B, TK, U)] * keys)
    given = [normal(n, *shape) for n, shape in enumerate(shapes)]
    assert_close(compiled(call, jit)(*map(tensor, given)), loops(*given))
    if not jit:
        oracle = lambda inputs, _: [loops(*inputs)]  # noqa: E731
        assert_gradients(Weightless, lambda *x: [call(*x)], given, oracle)
