"""Products, rows, shifts and recurrences of the arrays of every sample, against loops."""

import keras
import numpy as np
import pytest

from keras_attention.backend import batched_matmul, gather_rows, project, scatter_add
from keras_attention.ops import take_windows
from keras_attention.ops.matmul import dot_score
from keras_attention.ops.shift import fold, linear_recurrence, shift, unfold
from tests.backends import BACKEND, compiled, gradients_by, on_tensorflow, tensor
from tests.helpers import Weightless, assert_all_close, assert_close, assert_gradients, normal

PRODUCTS = {
    "scores": (dot_score, (2, 3, 5), (2, 4, 5), "bid,bjd->bij"),
    "scores of one query": (dot_score, (2, 1, 5), (2, 4, 5), "bid,bjd->bij"),
    "sums": (batched_matmul, (2, 3, 4), (2, 4, 5), "bij,bjd->bid"),
}
every_product = pytest.mark.parametrize(
    ("function", "first", "second", "equation"), PRODUCTS.values(), ids=PRODUCTS
)
on_torch = pytest.mark.skipif(BACKEND != "torch", reason="operations of PyTorch's autograd")


@every_product
def test_products(function, first, second, equation):
    x, y = normal(0, *first), normal(1, *second)
    assert_close(function(tensor(x), tensor(y)), np.einsum(equation, x, y))
    found = function(keras.Input(batch_shape=first), keras.Input(batch_shape=second))
    assert found.shape == np.einsum(equation, x, y).shape


@pytest.mark.parametrize("small", [2 * 5 * 3, 2 * 5 * 3 - 1])
def test_small_and_large_kernels(small, monkeypatch):
    """Eager TensorFlow multiplies small ones sample by sample."""
    monkeypatch.setattr(f"keras_attention.backend.{BACKEND}._SMALL_EAGER", small, raising=False)
    x, kernel, upstream = normal(0, 2, 7, 5), normal(1, 5, 3), normal(2, 2, 7, 3)
    assert_close(project(tensor(x), tensor(kernel)), x @ kernel)

    def run(x, kernel):
        result = project(x, kernel)
        return keras.ops.sum(result * tensor(upstream)), result

    _, (of_x, of_kernel) = gradients_by(run, [x, kernel], [])
    assert_close(of_x, upstream @ kernel.T)
    assert_close(of_kernel, np.einsum("btd,btu->du", x, upstream))


@on_torch
@every_product
def test_products_on_pytorch_are_no_views(function, first, second, equation):
    x, y = (tensor(normal(0, *sizes)).requires_grad_() for sizes in (first, second))
    assert "BmmBackward0" in operations(function(x, y), 2)


def operations(output, depth):
    found, last = set(), [output.grad_fn]
    for _ in range(depth):
        found |= {x.name() for x in last}
        last = [x for y in last for x, _ in y.next_functions if x is not None]
    return found


# Equal sizes, because Keras 3.15 on TensorFlow adds `(B, 1)` to `(B, B)` along the wrong axis.
SIZES = [(5,), (5, 5), (5, 3), (5, 5, 4), (5, 4, 5), (1, 3), (3, 1), (2, 0, 3)]


@pytest.mark.parametrize("sizes", [*SIZES, (0, 2, 3)], ids=str)
@pytest.mark.parametrize("features", [(), (2,), (2, 3)], ids=str)
@pytest.mark.each_value
def test_taken_rows(sizes, features):
    samples = normal(0, sizes[0], 6, *features)
    row = np.random.default_rng(1).integers(0, 6, sizes).astype("int32")
    expected = np.zeros((*sizes, *features))
    for place in np.ndindex(*sizes):
        expected[place] = samples[place[0], row[place]]
    assert_close(gather_rows(tensor(samples), tensor(row, "int32")), expected)
    if len(sizes) == 3:
        assert_close(take_windows(samples, row), expected)


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_added_rows(sizes):
    rows = normal(0, *sizes, 2)
    row = np.random.default_rng(1).integers(0, 6, sizes).astype("int32")
    expected = np.zeros((sizes[0], 6, 2))
    for place in np.ndindex(*sizes):
        expected[place[0], row[place]] += rows[place]
    # No empty batch: `segment_sum` of Keras 3.15 refuses it on PyTorch.
    assert_close(scatter_add(tensor(rows), tensor(row, "int32"), 6), expected)


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


WIDTHS = [(7, 2, 5), (7, 0, 3), (7, 2, 3), (2, 3, 7), (1, 0, 1)]


@pytest.mark.parametrize(("length", "before", "width"), WIDTHS)
@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.each_value
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
@pytest.mark.each_value
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
def test_unknown_lengths():
    import tensorflow as tf

    unknown = tf.TensorSpec((None, None), "float64")

    @tf.function(input_signature=[unknown, unknown])
    def run(factors, terms):
        with tf.GradientTape() as tape:
            tape.watch([factors, terms])
            y = linear_recurrence(factors, terms)
            near = fold(tf.square(unfold(y, 1, 3)), 1)
        return y, near, *tape.gradient(near, [factors, terms])

    for length in (1, 2, 7, 100):
        factors, terms = np.random.default_rng(1).uniform(size=(2, 3, length))
        y, near, *found = run(factors, terms)
        expected = recurrence(factors, terms)
        assert_close(y, expected)
        assert_close(near, sums_of_neighbours(neighbours(expected, 1, 3) ** 2, 1))
        assert_all_close(found, run.python_function(tf.constant(factors), tf.constant(terms))[2:])
