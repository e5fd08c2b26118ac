"""Custom gradients on every backend."""

import importlib

import numpy as np
import pytest
from keras import ops

from keras_attention.backend import capture_compiling, compiling, custom_vjp
from tests.backends import BACKEND, gradients_by, tensor
from tests.helpers import normal, numpy

X = normal(0, 5, dtype="float32").astype("float32")


def gradient_of(function):
    _, (found,) = gradients_by(lambda x: (function(x), []), [X], [])
    return numpy(found)


def test_several_outputs():
    """The loss reads the first output only; the gradient is not that of the function."""

    def run(x, number):
        return x * 2.0, x + ops.cast(number, x.dtype)

    def gradient(x, number, of_first, of_second):
        return 7.0 * of_first + of_second, None

    number = tensor(np.arange(5, dtype="int32"))
    first, second = custom_vjp(run, gradient, tensor(X), number)
    np.testing.assert_allclose(numpy(first), 2 * X)
    np.testing.assert_allclose(numpy(second), X + np.arange(5), rtol=1e-6)
    found = gradient_of(lambda x: ops.sum(custom_vjp(run, gradient, x, number)[0]))
    np.testing.assert_allclose(found, np.full(5, 7.0))


def test_second_derivative():
    """The gradient of x^3 is x^4 here, so the second derivative is 4 x^3."""

    def first(x):
        def loss(x):
            return ops.sum(custom_vjp(ops.exp, lambda x, upstream: (upstream * x**4,), x))

        if BACKEND == "jax":
            return importlib.import_module("jax").grad(loss)(x)
        if BACKEND == "torch":
            grad = importlib.import_module("torch").autograd.grad
            return grad(loss(x), x, create_graph=True)[0]
        with importlib.import_module("tensorflow").GradientTape() as tape:
            tape.watch(x)
            value = loss(x)
        return tape.gradient(value, x)

    np.testing.assert_allclose(gradient_of(lambda x: ops.sum(first(x))), 4 * X**3, rtol=1e-5)


def test_an_error_is_shown_once():
    calls = []

    def run(x):
        calls.append(x)
        raise ArithmeticError("no such number")

    with pytest.raises(ArithmeticError, match="no such number"):
        custom_vjp(run, lambda x, upstream: (upstream,), tensor(X))
    assert len(calls) == 1


def test_the_gradient_runs_under_the_choice_of_the_call():
    choices = []

    def gradient(x, upstream):
        choices.append(capture_compiling().choice)
        return (upstream,)

    def loss(x):
        with compiling(False):
            return ops.sum(custom_vjp(ops.sin, gradient, x))

    gradient_of(loss)
    assert choices == [False if BACKEND == "tensorflow" else None]
