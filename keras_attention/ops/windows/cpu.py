"""The products of windows that XLA compiles for a CPU: a loop over the places of a window.

Each step gathers one row for every query, uses it and drops it.
"""

from collections.abc import Callable

import keras

from keras_attention._typing import Size, Tensor
from keras_attention.backend.operations import ops
from keras_attention.ops.matmul import project, upcast, upcast_dtype
from keras_attention.ops.rows import add_rows, take_rows
from keras_attention.ops.windows.choose import Form

__all__ = ["ONE_BY_ONE"]


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

    def add(weight, row, place, grad_query, grad_key, grad_vector):
        hidden = ops.tanh(query + row)
        slope = vector * (1.0 - hidden * hidden) * weight
        grad_key = grad_key + add_rows(slope, place, length)
        return grad_query + slope, grad_key, grad_vector + weight * hidden

    zeros = _zero_rows(query, *ops.shape(query)[:2])
    totals = zeros, _zero_rows(key, batch, length), zeros
    grad_query, grad_key, grad_vector = _fold(add, totals, position, grad_output, key)
    return grad_query, grad_key, ops.sum(ops.sum(grad_vector, 1), 0)


def _scatter(weights, x, position, memory):
    wide, length = upcast(x), ops.shape(memory)[1]

    def add(weight, _, place, total):
        return (total + add_rows(weight * wide, place, length),)

    zeros = _zero_rows(x, ops.shape(x)[0], length)
    (total,) = _fold(add, (zeros,), position, weights)
    return ops.cast(total, x.dtype)


def _each(function: Callable[[Tensor], Tensor], position: Tensor, memory: Tensor) -> Tensor:
    """Calls `function(row)` for every place and puts the results side by side, `(B, Tq, W)`.

    Args:
        function: from rows `(B, Tq, D)` to numbers `(B, Tq)`.
        position: `(B, Tq, W)`. memory: `(B, Tk, D)`.
    """
    places, width = _places_first(position), position.shape[-1]
    number = ops.reshape(ops.arange(width), (-1, 1, 1))

    def body(n, scores):
        one = ops.expand_dims(function(take_rows(memory, places[n])), 0)
        # An addition, because TensorFlow cannot differentiate a compiled `slice_update`.
        return (scores + ops.where(number == n, one, ops.zeros_like(one)),)

    (scores,) = _repeat(width, body, (ops.zeros(ops.shape(places), memory.dtype),))
    return ops.transpose(scores, (1, 2, 0))


def _fold(
    add: Callable[..., tuple[Tensor, ...]],
    totals: tuple[Tensor, ...],
    position: Tensor,
    weights: Tensor,
    memory: Tensor | None = None,
) -> tuple[Tensor, ...]:
    """Calls `totals = add(weight, row, place, *totals)` for every place; returns the last totals.

    Here weight is `(B, Tq, 1)`, row is `(B, Tq, D)` or None without a memory, and place is
    `(B, Tq)`, the positions of the rows.
    """
    places, weights = _places_first(position), _places_first(upcast(weights))

    def body(n, *totals):
        row = None if memory is None else take_rows(memory, places[n])
        return add(ops.expand_dims(weights[n], 2), row, places[n], *totals)

    return _repeat(position.shape[-1], body, totals)


def _repeat(count, body, totals):
    """`totals = body(n, *totals)` for n below count."""
    if keras.backend.backend() != "tensorflow":
        return ops.fori_loop(0, count, lambda n, totals: body(n, *totals), totals)
    # XLA can differentiate a loop only if the maximum number of its steps is given.
    _, *totals = ops.while_loop(
        lambda n, *_: n < count,
        lambda n, *totals: (n + 1, *body(n, *totals)),
        (0, *totals),
        maximum_iterations=count,
    )
    return totals


def _places_first(x):
    return ops.transpose(x, (2, 0, 1))


def _sum_features(x):
    """Sums `(B, Tq, D)` to `(B, Tq)`."""
    # A product with ones is the fastest way to sum over features.
    return ops.squeeze(project(x, ops.ones((x.shape[-1], 1), x.dtype)), -1)


def _zero_rows(x, *sizes: Size):
    """Zeros of these sizes, with as many features as `x` and at least in float32."""
    return ops.zeros((*sizes, x.shape[-1]), upcast_dtype(x))


ONE_BY_ONE = Form(_dot, _tanh, _tanh_gradient, _weighted_sum, _scatter)
