"""The products of windows that XLA compiles for a CPU: a loop over the positions of a window.

Each step gathers one row for every query, uses it and drops it.
"""

from collections.abc import Callable

from keras_attention._typing import Size, Tensor
from keras_attention.backend import gather_rows, ops, project, repeat, scatter_add
from keras_attention.ops.matmul import upcast, upcast_dtype
from keras_attention.ops.windows.products import Products

__all__ = ["LOOPED"]


def _dot(query, key, position):
    query = upcast(query)
    return _each(lambda row: ops.cast(_sum_features(query * upcast(row)), key.dtype), position, key)


def _weighted_sum(weights, value, position):
    def add(weight, row, _, total):
        return (total + weight * upcast(row),)

    zeros = _zero_rows(value, *ops.shape(position)[:2])
    (total,) = _fold(add, (zeros,), position, weights, value)
    return ops.cast(total, value.dtype)


def _tanh(query, key, vector, position):
    return _each(lambda row: _sum_features(vector * ops.tanh(query + row)), position, key)


def _tanh_gradient(query, key, vector, position, grad_output):
    batch, length, _ = ops.shape(key)

    def add(weight, row, position, grad_query, grad_key, grad_vector):
        hidden = ops.tanh(query + row)
        slope = vector * (1.0 - hidden * hidden) * weight
        grad_key = grad_key + scatter_add(slope, position, length)
        return grad_query + slope, grad_key, grad_vector + weight * hidden

    zeros = _zero_rows(query, *ops.shape(query)[:2])
    totals = zeros, _zero_rows(key, batch, length), zeros
    grad_query, grad_key, grad_vector = _fold(add, totals, position, grad_output, key)
    return grad_query, grad_key, ops.sum(ops.sum(grad_vector, 1), 0)


def _scatter(weights, x, position, memory):
    wide, length = upcast(x), ops.shape(memory)[1]

    def add(weight, _, position, total):
        return (total + scatter_add(weight * wide, position, length),)

    zeros = _zero_rows(x, ops.shape(x)[0], length)
    (total,) = _fold(add, (zeros,), position, weights)
    return ops.cast(total, x.dtype)


def _each(function: Callable[[Tensor], Tensor], position: Tensor, memory: Tensor) -> Tensor:
    """Call `function(row)` for every position and stack the results, `(B, Tq, W)`.

    Args:
        function: from rows `(B, Tq, D)` to elements `(B, Tq)`.
        position: `(B, Tq, W)`. memory: `(B, Tk, D)`.
    """
    positions, width = _positions_first(position), position.shape[-1]
    index = ops.reshape(ops.arange(width), (-1, 1, 1))

    def body(n, scores):
        one = ops.expand_dims(function(gather_rows(memory, positions[n])), 0)
        # An addition, because TensorFlow cannot differentiate a compiled `slice_update`.
        return (scores + ops.where(index == n, one, ops.zeros_like(one)),)

    (scores,) = repeat(width, body, (ops.zeros(ops.shape(positions), memory.dtype),))
    return ops.transpose(scores, (1, 2, 0))


def _fold(
    add: Callable[..., tuple[Tensor, ...]],
    totals: tuple[Tensor, ...],
    position: Tensor,
    weights: Tensor,
    memory: Tensor | None = None,
) -> tuple[Tensor, ...]:
    """Call `totals = add(weight, row, position, *totals)` for every position.

    Returns the last totals. Here weight is `(B, Tq, 1)`, row is `(B, Tq, D)` or None without a
    memory, and position is `(B, Tq)`, the positions of the rows.
    """
    positions, weights = _positions_first(position), _positions_first(upcast(weights))

    def body(n, *totals):
        row = None if memory is None else gather_rows(memory, positions[n])
        return add(ops.expand_dims(weights[n], 2), row, positions[n], *totals)

    return tuple(repeat(position.shape[-1], body, totals))


def _positions_first(x):
    return ops.transpose(x, (2, 0, 1))


def _sum_features(x):
    """Sum `(B, Tq, D)` to `(B, Tq)`."""
    # A product with ones is the fastest way to sum over features.
    return ops.squeeze(project(x, ops.ones((x.shape[-1], 1), x.dtype)), -1)


def _zero_rows(x, *sizes: Size):
    """Return zeros of these sizes, with as many features as `x` and at least in float32."""
    return ops.zeros((*sizes, x.shape[-1]), upcast_dtype(x))


LOOPED = Products(_dot, _tanh, _tanh_gradient, _weighted_sum, _scatter)
