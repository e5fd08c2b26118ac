"""Scores and contexts of queries that read only windows of the memory.

In code that XLA compiles, a loop runs over the places of a window: each step gathers one row per
query, uses it and drops it. (Without the loop XLA would gather all rows before it uses the first,
and again for every use of the results.) Elsewhere all windows are copied for a moment. Only the
inputs are stored for the gradient.

Sizes: B samples, Tq query and Tk memory steps, W positions in a window, D features or U units.
"""

from keras import ops

from keras_attention._typing import Tensor
from keras_attention.ops._graphs import in_compiled_code
from keras_attention.ops._rows import Rows, widen, with_gradient, zero_rows
from keras_attention.ops._samples import add_rows
from keras_attention.ops.products import project
from keras_attention.ops.windows import take_windows

# Wider windows are copied, because every step of the loop adds to the scores of all places.
WIDEST = 64


def window_dot(query: Tensor, key: Tensor, position: Tensor) -> Tensor:
    """Dot products of every query with the keys in its window.

        e[b,i,w] = q[b,i] . k[b, s[b,i,w]]

    Args:
        query: q, `(B, Tq, D)`.
        key: k, `(B, Tk, D)`.
        position: s, `(B, Tq, W)`, integers from 0 to Tk - 1.

    Returns:
        Scores e, `(B, Tq, W)`.
    """
    return with_gradient(_rows(position), _dot, _dot_gradient, position, query, key)


def window_tanh(query: Tensor, key: Tensor, vector: Tensor, position: Tensor) -> Tensor:
    """Additive scores of every query against the keys in its window.

        e[b,i,w] = sum_u v[u] tanh(q[b,i,u] + k[b, s[b,i,w], u])

    Args:
        query: q, `(B, Tq, U)`, float32 or float64.
        key: k, `(B, Tk, U)`, of the same dtype.
        vector: v, `(U,)`, of the same dtype.
        position: s, `(B, Tq, W)`, integers from 0 to Tk - 1.

    Returns:
        Scores e, `(B, Tq, W)`.
    """
    return with_gradient(_rows(position), _tanh, _tanh_gradient, position, query, key, vector)


def window_sum(weights: Tensor, value: Tensor, position: Tensor) -> Tensor:
    """Weighted sums of the values in every window.

        c[b,i] = sum_w a[b,i,w] v[b, s[b,i,w]]

    Args:
        weights: a, `(B, Tq, W)`.
        value: v, `(B, Tk, D)`.
        position: s, `(B, Tq, W)`, integers from 0 to Tk - 1.

    Returns:
        Contexts c, `(B, Tq, D)`.
    """
    return with_gradient(_rows(position), _sum, _sum_gradient, position, weights, value)


def _rows(position):
    # Decided before the gradient: where TensorFlow traces it, nothing tells that it is compiled.
    return Rows(place_by_place=in_compiled_code() and position.shape[-1] <= WIDEST)


def _dot(rows, query, key, position):
    if not rows.place_by_place:
        return ops.squeeze(ops.matmul(take_windows(key, position), ops.expand_dims(query, -1)), -1)
    query = widen(query)
    return rows.each(
        lambda row: ops.cast(_sum_features(query * widen(row)), key.dtype), position, key
    )


def _dot_gradient(rows, query, key, position, upstream):
    of_query = ops.cast(_sum(rows, upstream, key, position), query.dtype)
    return of_query, _spread(rows, upstream, query, position, ops.shape(key)[1])


def _sum(rows, weights, value, position):
    if not rows.place_by_place:
        windows = take_windows(widen(value), position)
        return ops.cast(ops.einsum("bqw,bqwd->bqd", widen(weights), windows), value.dtype)

    def add(total, weight, row, _):
        return total + weight * widen(row)

    total = zero_rows(value, *ops.shape(position)[:2])
    return ops.cast(rows.fold(add, total, position, weights, value), value.dtype)


def _sum_gradient(rows, weights, value, position, upstream):
    of_weights = _dot(rows, upstream, value, position)
    return of_weights, _spread(rows, weights, upstream, position, ops.shape(value)[1])


def _tanh(rows, query, key, vector, position):
    if not rows.place_by_place:
        hidden = ops.tanh(ops.expand_dims(query, 2) + take_windows(key, position))
        return ops.squeeze(project(hidden, ops.expand_dims(vector, 1)), -1)
    return rows.each(lambda row: _sum_features(vector * ops.tanh(query + row)), position, key)


def _tanh_gradient(rows, query, key, vector, position, upstream):
    batch, length, _ = ops.shape(key)
    if not rows.place_by_place:
        hidden = ops.tanh(ops.expand_dims(query, 2) + take_windows(key, position))
        of_vector = ops.einsum("bqwu,bqw->u", hidden, upstream)
        slopes = vector * (1.0 - hidden * hidden) * ops.expand_dims(upstream, 3)
        return ops.sum(slopes, 2), add_rows(slopes, position, length), of_vector

    def add(totals, weight, row, place):
        hidden = ops.tanh(query + row)
        of_query, of_key, of_vector = totals
        slope = vector * (1.0 - hidden * hidden) * weight
        of_key = of_key + add_rows(slope, place, length)
        return of_query + slope, of_key, of_vector + weight * hidden

    zeros = zero_rows(query, *ops.shape(query)[:2])
    totals = zeros, zero_rows(key, batch, length), zeros
    of_query, of_key, of_vector = rows.fold(add, totals, position, upstream, key)
    return of_query, of_key, ops.sum(ops.sum(of_vector, 1), 0)


def _spread(rows, weights, x, position, length):
    """The inverse of gathering: adds a[b,i,w] x[b,i] to row s[b,i,w] of `(B, Tk, D)`."""
    # Many rows may meet in one place, and half precision cannot count that far.
    wide = widen(x)
    if rows.place_by_place:

        def add(total, weight, _, place):
            return total + add_rows(weight * wide, place, length)

        total = zero_rows(x, ops.shape(x)[0], length)
        total = rows.fold(add, total, position, weights)
    else:
        weights = ops.expand_dims(widen(weights), 3)
        total = add_rows(weights * ops.expand_dims(wide, 2), position, length)
    return ops.cast(total, x.dtype)


def _sum_features(x):
    """Sums `(B, Tq, D)` to `(B, Tq)`."""
    # A product with ones is the fastest way to sum over features.
    return ops.squeeze(project(x, ops.ones((x.shape[-1], 1), x.dtype)), -1)
