"""The additive score on JAX: in eager and compiled code, and mapped."""

from unittest import mock

import jax
import numpy as np
import pytest

from keras_attention.ops import additive_score
from keras_attention.ops.additive import choose
from tests.ops.scores import SIZES, assert_exact, make_inputs


def both(query, key, vector, upstream):
    scores, gradient = jax.vjp(additive_score, query, key, vector)
    return scores, *gradient(upstream)


def compiled_inside(query, key, vector, upstream):
    scores, gradient = jax.vjp(jax.jit(additive_score), query, key, vector)
    return scores, *gradient(upstream)


@pytest.mark.parametrize("run", [both, jax.jit(both), compiled_inside])
@mock.patch.dict(choose.SMALLEST, jax=1)
def test_score_and_gradients(run):
    inputs = make_inputs(SIZES)
    assert_exact(run(*inputs), inputs)


@mock.patch.dict(choose.SMALLEST, jax=1)
def test_a_mapped_score():
    query, key, vector, _ = make_inputs(SIZES)
    mapped = jax.vmap(lambda q, k: additive_score(q[None], k[None], vector)[0])(query, key)
    expected = additive_score(query, key, vector)
    np.testing.assert_allclose(mapped, expected, rtol=0, atol=1e-5)
