"""The products of windows that XLA compiles for a GPU: few kernels, whatever the width.

XLA fuses the gathering of rows into the sum that reads them. From a short memory, products with all
of it are cheaper: the windows are cut out of the scores, or put at their positions among zeros.
"""

from keras_attention._typing import Tensor
from keras_attention.backend import gather_rows, ops, scatter_add
from keras_attention.ops.matmul import upcast, upcast_dtype
from keras_attention.ops.windows.gathered import tanh_of_rows
from keras_attention.ops.windows.products import Products
from keras_attention.ops.windows.reference import tanh

__all__ = ["FUSED"]


def _is_short(x: Tensor, memory: Tensor, position: Tensor) -> bool:
    """Return True if products with the whole memory are cheaper on a GPU than gathering windows.

    The cost is memory traffic: Tk values for a query, or W D for its window.
    """
    length, width = memory.shape[1], position.shape[-1]
    return isinstance(length, int) and length <= width * x.shape[-1]


def _dot(query, key, position):
    if _is_short(query, key, position):
        scores = ops.matmul(query, ops.transpose(key, (0, 2, 1)))
        return ops.take_along_axis(scores, position, axis=2)
    rows = upcast(ops.expand_dims(query, 2)) * upcast(gather_rows(key, position))
    return ops.cast(ops.sum(rows, 3), key.dtype)


def _weighted_sum(weights, value, position):
    weights = ops.cast(weights, upcast_dtype(value))
    if _is_short(value, value, position):
        context = ops.matmul(_scattered(weights, position, value), upcast(value))
    else:
        rows = ops.expand_dims(weights, 3) * upcast(gather_rows(value, position))
        context = ops.sum(rows, 2)
    return ops.cast(context, value.dtype)


def _tanh_gradient(query, key, vector, position, grad_output):
    hidden = tanh_of_rows(query, key, position)
    weights = ops.expand_dims(grad_output, 3)
    slopes = vector * weights * (1.0 - hidden * hidden)
    grad_vector = ops.sum(ops.sum(ops.sum(weights * hidden, 2), 1), 0)
    return ops.sum(slopes, 2), scatter_add(slopes, position, ops.shape(key)[1]), grad_vector


def _scatter(weights, x, position, memory):
    weights, wide = upcast(weights), upcast(x)
    if _is_short(x, memory, position):
        scattered = ops.transpose(_scattered(weights, position, memory), (0, 2, 1))
        return ops.cast(ops.matmul(scattered, wide), x.dtype)
    rows = ops.expand_dims(weights, 3) * ops.expand_dims(wide, 2)
    return ops.cast(scatter_add(rows, position, ops.shape(memory)[1]), x.dtype)


def _scattered(weights, position, memory):
    """Put the weights at their positions, `(B, Tq, Tk)`; zeros elsewhere."""
    index = ops.arange(ops.shape(memory)[1], dtype=position.dtype)
    here = ops.equal(ops.expand_dims(position, 3), index)
    weights = ops.expand_dims(weights, 3)
    return ops.sum(ops.where(here, weights, ops.zeros_like(weights)), 2)


FUSED = Products(_dot, tanh, _tanh_gradient, _weighted_sum, _scatter)
