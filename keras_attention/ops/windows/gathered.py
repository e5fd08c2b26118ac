"""The products of windows without XLA, from a temporary copy of them."""

from keras_attention._typing import Tensor
from keras_attention.backend import gather_rows, ops, project, scatter_add
from keras_attention.ops.matmul import upcast
from keras_attention.ops.windows.products import Products

__all__ = ["GATHERED", "tanh_of_rows"]


def _dot(query, key, position):
    return ops.squeeze(ops.matmul(gather_rows(key, position), ops.expand_dims(query, -1)), -1)


def _weighted_sum(weights, value, position):
    windows = gather_rows(upcast(value), position)
    return ops.cast(ops.einsum("bqw,bqwd->bqd", upcast(weights), windows), value.dtype)


def _tanh(query, key, vector, position):
    hidden = tanh_of_rows(query, key, position)
    return ops.squeeze(project(hidden, ops.expand_dims(vector, 1)), -1)


def _tanh_gradient(query, key, vector, position, grad_output):
    hidden = tanh_of_rows(query, key, position)
    grad_vector = ops.einsum("bqwu,bqw->u", hidden, grad_output)
    slopes = vector * (1.0 - hidden * hidden) * ops.expand_dims(grad_output, 3)
    return ops.sum(slopes, 2), scatter_add(slopes, position, ops.shape(key)[1]), grad_vector


def tanh_of_rows(query: Tensor, key: Tensor, position: Tensor) -> Tensor:
    """Compute tanh(q + k) for every row of the windows, `(B, Tq, W, U)`."""
    return ops.tanh(ops.expand_dims(query, 2) + gather_rows(key, position))


def _scatter(weights, x, position, memory):
    rows = ops.expand_dims(upcast(weights), 3) * ops.expand_dims(upcast(x), 2)
    return ops.cast(scatter_add(rows, position, ops.shape(memory)[1]), x.dtype)


GATHERED = Products(_dot, _tanh, _tanh_gradient, _weighted_sum, _scatter)
