"""The additive score on JAX: in eager and compiled code, and mapped."""

from unittest import mock

import jax
import numpy as np
import pytest

from keras_attention.ops import additive_score
from keras_attention.ops.additive import choose, gpu
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


@pytest.mark.parametrize("steps", [1, 37])
def test_the_form_for_a_gpu(steps):
    inputs = make_inputs((2, steps, 53, 67))
    query, key, vector, _ = inputs
    found = jax.jit(gpu.fused_score)(query, key, vector), *jax.jit(gpu.fused_gradient)(*inputs)
    assert_exact(found, inputs, few=steps == 1)


def test_a_pass_for_a_gpu_is_one_operation():
    """XLA compiles an operation with one sum for minutes."""
    program = str(jax.make_jaxpr(gpu.fused_gradient)(*make_inputs(SIZES)))
    assert program.count("= reduce[") == 2


def test_second_derivatives_of_the_form_for_a_gpu():
    inputs, upstream = (
        [jax.numpy.asarray(x) for x in make_inputs((2, 3, 4, 5), seed=seed, dtype="float64")]
        for seed in (0, 1)
    )

    def score(query, key, vector):  # `keras.ops.tanh` rounds to float32
        return jax.numpy.tanh(query[:, :, None] + key[:, None]) @ vector

    def gradient(*inputs):
        return jax.vjp(score, *inputs[:3])[1](inputs[3])

    found, expected = (
        jax.vjp(x, *inputs)[1](tuple(upstream[:3])) for x in (gpu.fused_gradient, gradient)
    )
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=0, atol=1e-12)
