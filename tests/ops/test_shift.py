"""Convolutions and recurrences over positions, against loops."""

import numpy as np
import pytest

from keras_attention.ops.shift import fold, linear_recurrence, shift, unfold
from tests.backends import compiled, on_tensorflow, tensor
from tests.helpers import Weightless, assert_all_close, assert_close, assert_gradients, normal


def neighbours(x, before, width):
    y = np.zeros((*x.shape, width))
    for j in range(x.shape[1]):
        for w in range(width):
            if 0 <= j + w - before < x.shape[1]:
                y[:, j, w] = x[:, j + w - before]
    return y


def sums_of_neighbours(y, before):
    x = np.zeros(y.shape[:2])
    for i in range(x.shape[1]):
        for w in range(y.shape[2]):
            if 0 <= i - w + before < x.shape[1]:
                x[:, i] += y[:, i - w + before, w]
    return x


def recurrence(factors, terms):
    y, last = np.zeros(terms.shape), 0.0
    for j in range(terms.shape[1]):
        last = y[:, j] = factors[:, j] * last + terms[:, j]
    return y


SIZES = [(7, 2, 5), (7, 0, 3), (7, 2, 3), (2, 3, 7), (1, 0, 1)]


@pytest.mark.parametrize(("length", "before", "width"), SIZES)
@pytest.mark.parametrize("jit", [False, True])
def test_neighbours_and_their_sums(length, before, width, jit):
    x = normal(1, 2, 5)
    assert_close(shift(tensor(x), 2), np.concatenate([np.zeros((2, 2)), x[:, :3]], 1))
    for run, oracle, x in (
        (lambda x: unfold(x, before, width), lambda x: neighbours(x, before, width), (2, length)),
        (lambda y: fold(y, before), lambda y: sums_of_neighbours(y, before), (2, length, width)),
    ):
        x = normal(1, *x)
        assert_close(compiled(run, jit)(tensor(x)), oracle(x))
        if not jit:
            loss, expected = lambda x, f=run: [f(x)], lambda x, _, f=oracle: [f(*x)]
            assert_gradients(Weightless, loss, [x], expected)


@pytest.mark.parametrize("length", [1, 2, 7, 8, 9, 100])
@pytest.mark.parametrize("jit", [False, True])
def test_linear_recurrence(length, jit):
    factors = np.random.default_rng(1).uniform(size=(3, length))
    factors[0, ::3], factors[1, ::3] = 0, 1
    terms = normal(2, 3, length)
    found = compiled(linear_recurrence, jit)(tensor(factors), tensor(terms))
    assert_close(found, recurrence(factors, terms))
    if length < 9 and not jit:
        run, oracle = lambda *x: [linear_recurrence(*x)], lambda x, _: [recurrence(*x)]
        assert_gradients(Weightless, run, [factors, terms], oracle)


@on_tensorflow
@pytest.mark.parametrize("length", [1, 2, 7, 100])
def test_unknown_lengths(length):
    import tensorflow as tf

    unknown = tf.TensorSpec((None, None), "float64")
    factors, terms = np.random.default_rng(1).uniform(size=(2, 3, length))

    @tf.function(input_signature=[unknown, unknown])
    def run(factors, terms):
        with tf.GradientTape() as tape:
            tape.watch([factors, terms])
            y = linear_recurrence(factors, terms)
            near = fold(tf.square(unfold(y, 1, 3)), 1)
        return y, near, *tape.gradient(near, [factors, terms])

    y, near, *found = run(factors, terms)
    expected = recurrence(factors, terms)
    assert_close(y, expected)
    assert_close(near, sums_of_neighbours(neighbours(expected, 1, 3) ** 2, 1))
    assert_all_close(found, run.python_function(tf.constant(factors), tf.constant(terms))[2:])
