"""Products of the matrices of every sample, and how PyTorch computes them."""

import keras
import numpy as np
import pytest

from keras_attention.backend import batched_matmul, project
from keras_attention.ops.matmul import dot_score
from tests.backends import BACKEND, gradients_by, tensor
from tests.helpers import assert_close, normal

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
    """The names of the operations that made an output, up to this many before it."""
    found, last = set(), [output.grad_fn]
    for _ in range(depth):
        found |= {x.name() for x in last}
        last = [x for y in last for x, _ in y.next_functions if x is not None]
    return found
