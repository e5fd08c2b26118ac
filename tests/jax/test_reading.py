"""Local attention on JAX gives the same numbers from all scores and from gathered windows."""

from unittest import mock

import jax
import keras
import numpy as np
import pytest

from keras_attention import LuongAttention
from keras_attention.ops.windows import dispatch as ways
from tests.helpers import lengths_mask, normal

B, TQ, TK, D = 2, 5, 43, 3
MASK = np.stack([lengths_mask([31], TK)[0], np.arange(TK) >= 6])


def results(score, dtype):
    """The output, its gradients, and a second derivative."""
    query, value = normal(1, B, TQ, D).astype(dtype), normal(2, B, TK, D).astype(dtype)
    keras.utils.set_random_seed(1)
    layer = LuongAttention(score, "local-p", half_width=2, dtype=dtype)
    layer.build(query.shape, value.shape)

    def run(query, value):
        return layer(query, value, value_mask=MASK)

    def first(query, value):
        return jax.grad(lambda *x: run(*x).sum())(query, value)

    output, gradient = jax.vjp(jax.jit(run), query, value)
    second = jax.grad(lambda *x: (first(*x) ** 2).mean(), 1)
    return output, *gradient(output), second(query, value)


@pytest.mark.parametrize("score", ["dot", "general", "concat"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.each_value
def test_both_ways_of_reading(score, dtype):
    with mock.patch.object(ways, "MIN_LENGTH_RATIO", {True: 10**6}):
        wide = results(score, dtype)
    with mock.patch.object(ways, "MIN_LENGTH_RATIO", {True: 0}):
        narrow = results(score, dtype)
    for x, y in zip(narrow, wide, strict=True):
        assert np.abs(y).max() > 1e-3
        np.testing.assert_allclose(x, y, rtol=0, atol=1e-10 if dtype == "float64" else 5e-6)
