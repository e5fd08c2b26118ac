"""The additive score on JAX: in eager and compiled code, and mapped."""

from unittest import mock

import jax
import numpy as np
import pytest

from keras_attention.ops.additive import additive_score, dispatch, fused
from tests.ops.scores import SIZES, assert_exact, make_inputs


def both(query, key, vector, upstream, score=additive_score):
    scores, gradient = jax.vjp(score, query, key, vector)
    return scores, *gradient(upstream)


def compiled_inside(*inputs):
    return both(*inputs, score=jax.jit(additive_score))


@pytest.mark.parametrize("run", [both, jax.jit(both), compiled_inside])
@mock.patch.dict(dispatch.SMALLEST, jax=1)
def test_score_and_gradients(run):
    inputs = make_inputs(SIZES)
    assert_exact(run(*inputs), inputs)


@mock.patch.dict(dispatch.SMALLEST, jax=1)
@pytest.mark.parametrize("score", [additive_score, fused.fused_score])
def test_a_mapped_score(score):
    query, key, vector, _ = make_inputs(SIZES)
    mapped = jax.vmap(lambda q, k: score(q[None], k[None], vector)[0])(query, key)
    np.testing.assert_allclose(mapped, score(query, key, vector), rtol=0, atol=1e-5)


@pytest.mark.parametrize("sizes", [SIZES, (2, 1, 5, 4), (1, 3, 2, 1)])
def test_the_implementation_for_a_gpu(sizes):
    inputs = make_inputs(sizes)
    query, key, vector, _ = inputs
    found = jax.jit(fused.fused_score)(query, key, vector), *jax.jit(fused.fused_gradient)(*inputs)
    assert_exact(found, inputs, few=min(sizes[1:]) < 20)


def test_a_pass_for_a_gpu_is_one_operation():
    """JAX 0.11 compiles a kernel with a single sum of tanh for more than a minute."""
    inputs = make_inputs(SIZES)
    for function, passes, size in ((fused.fused_score, 1, 3), (fused.fused_gradient, 2, 4)):
        assert str(jax.make_jaxpr(function)(*inputs[:size])).count("= reduce[") == passes


@pytest.mark.parametrize("platform", ["cpu", "cuda"])
def test_sizes_that_an_exported_program_does_not_know(platform):
    batch, steps, length = jax.export.symbolic_shape("b, t, k")
    shapes = (batch, steps, 6), (batch, length, 6), (6,), (batch, steps, length)
    specs = [jax.ShapeDtypeStruct(shape, "float32") for shape in shapes]
    exported = jax.export.export(jax.jit(both), platforms=[platform])(*specs)
    if platform == "cpu":
        inputs = make_inputs((2, 3, 4, 6))
        assert_exact(exported.call(*inputs), inputs, few=True)


@pytest.mark.parametrize("deviation", [1.0, 45.0])
def test_second_derivatives_of_the_form_for_a_gpu(deviation):
    inputs, upstream = (
        [jax.numpy.asarray(x) for x in make_inputs((2, 3, 4, 5), deviation, seed, "float64")]
        for seed in (0, 1)
    )
    inputs[0] = inputs[0].at[0].set(45)  # where only the exponentials of a tanh are infinite
    inputs[1] = inputs[1].at[0].set(45)

    def score(query, key, vector):  # `keras.ops.tanh` rounds to float32
        return jax.numpy.tanh(query[:, :, None] + key[:, None]) @ vector

    def gradient(*inputs):
        return jax.vjp(score, *inputs[:3])[1](inputs[3])

    both = fused.fused_gradient, gradient
    found, expected = (jax.vjp(x, *inputs)[1](tuple(upstream[:3])) for x in both)
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=0, atol=1e-11)
