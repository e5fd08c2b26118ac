"""Scores and contexts of queries that read windows of the memory only.

Where XLA compiles, there is a loop over the places of a window: one row a query is gathered, used
and forgotten. (Without the loop XLA gathers all rows before it uses the first, and gathers them
again for whatever uses the results.) Elsewhere there is a copy of all windows for a moment. Nothing
but the inputs is kept for the gradient.
"""

import functools
from typing import NamedTuple

import keras
from keras import ops

from keras_attention.ops._gradients import tensors_for_backward
from keras_attention.ops._xla import in_compiled_code, run_compiled
from keras_attention.ops.products import project
from keras_attention.ops.windows import take_windows

# Wider windows are copied as a whole: the scores of all places are added up in turn.
WIDEST = 64


def window_dot(query, key, position):
    """Every query with the keys in its window.

        e[b,i,w] = q[b,i] . k[b, s[b,i,w]]

    Args:
        query: q, `(B, Tq, D)`.
        key: k, `(B, Tk, D)`.
        position: s, `(B, Tq, W)`, integers from 0 to Tk - 1.

    Returns:
        `(B, Tq, W)`.
    """
    return _differentiable(_dot, _dot_gradient, position, query, key)


def window_tanh(query, key, vector, position):
    """The additive score of every query with the keys in its window.

        e[b,i,w] = sum_u v[u] tanh(q[b,i,u] + k[b, s[b,i,w], u])

    Args:
        query: q, `(B, Tq, U)`.
        key: k, `(B, Tk, U)`.
        vector: v, `(U,)`; all three in float32, or all in float64.
        position: s, `(B, Tq, W)`, integers from 0 to Tk - 1.

    Returns:
        `(B, Tq, W)`.
    """
    return _differentiable(_tanh, _tanh_gradient, position, query, key, vector)


def window_sum(weights, value, position):
    """The values in a window, summed by their weights.

        c[b,i] = sum_w a[b,i,w] v[b, s[b,i,w]]

    Args:
        weights: a, `(B, Tq, W)`.
        value: v, `(B, Tk, D)`.
        position: s, `(B, Tq, W)`, integers from 0 to Tk - 1.

    Returns:
        `(B, Tq, D)`.
    """
    return _differentiable(_sum, _sum_gradient, position, weights, value)


def _differentiable(function, gradient, position, *tensors):
    """Calls a function of the tensors, the positions and the rows of each step.

    gradient: of the same and, at the end, the upstream gradient; returns one for each tensor.
    """
    # Where the gradient is made TensorFlow does not know that it will be compiled as well.
    rows = _Rows(place_by_place=in_compiled_code() and position.shape[-1] <= WIDEST)
    inputs = (*tensors, position)

    @ops.custom_gradient
    def differentiable(*given):
        def grad(*args, upstream=None):
            # PyTorch gives the inputs, in a form that can be differentiated again, and `upstream`.
            if upstream is None:
                args, upstream = tensors_for_backward(inputs, given), args[0]
            return *_first_gradient(gradient, rows, *args, upstream), None

        return _call(function, rows, *given), grad

    return differentiable(*inputs)


def _first_gradient(gradient, rows, *args):
    """Calls the gradient, whose last two arguments are position and upstream."""
    if keras.backend.backend() != "tensorflow":
        return _call(gradient, rows, *args)
    import tensorflow as tf

    # TensorFlow cannot differentiate the loops wherever they are compiled: for second derivatives
    # there is a copy of all windows.
    @ops.custom_gradient
    def first(*args):
        def second(*upstream):
            *tensors, position, last = (tf.identity(x) for x in args)
            with tf.GradientTape() as tape:
                tape.watch((tensors, last))
                found = gradient(_Rows(False), *tensors, position, last)
            options = {"unconnected_gradients": "zero"}
            of_tensors, of_last = tape.gradient(found, (tensors, last), upstream, **options)
            return *of_tensors, None, of_last

        return gradient(rows, *map(ops.stop_gradient, args)), second

    # As tensors of the graph that this gradient is in.
    return first(*map(tf.identity, args))


def _call(function, rows, *tensors):
    if keras.backend.backend() != "jax":
        return function(rows, *tensors)
    # Or a loop would be compiled anew at every eager call.
    return run_compiled(_bound(function, rows), *tensors)


@functools.cache
def _bound(function, rows):
    return functools.partial(function, rows)


def _dot(rows, query, key, position):
    if not rows.place_by_place:
        return ops.einsum("bqd,bqwd->bqw", query, take_windows(key, position))
    return rows.each(lambda row: _sum_features(query * row), position, key)


def _dot_gradient(rows, query, key, position, upstream):
    of_query = ops.cast(_sum(rows, upstream, key, position), query.dtype)
    return of_query, _spread(rows, upstream, query, position, ops.shape(key)[1])


def _sum(rows, weights, value, position):
    if not rows.place_by_place:
        windows = take_windows(_widen(value), position)
        return ops.cast(ops.einsum("bqw,bqwd->bqd", _widen(weights), windows), value.dtype)

    def add(total, weight, row, _):
        return total + weight * _widen(row)

    total = _zeros(value, *ops.shape(position)[:2])
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
    batch, length, size = ops.shape(key)
    if not rows.place_by_place:
        hidden = ops.tanh(ops.expand_dims(query, 2) + take_windows(key, position))
        of_vector = ops.einsum("bqwu,bqw->u", hidden, upstream)
        slopes = vector * (1.0 - hidden * hidden) * ops.expand_dims(upstream, 3)
        of_key = _add_rows(slopes, _in_batch(position, length), batch * length)
        return ops.sum(slopes, 2), ops.reshape(of_key, (batch, length, size)), of_vector

    def add(totals, weight, row, place):
        hidden = ops.tanh(query + row)
        of_query, of_key, of_vector = totals
        slope = vector * (1.0 - hidden * hidden) * weight
        of_key = of_key + _add_rows(slope, place, batch * length)
        return of_query + slope, of_key, of_vector + weight * hidden

    zeros = _zeros(query, *ops.shape(query)[:2])
    totals = zeros, _zeros(key, batch * length), zeros
    of_query, of_key, of_vector = rows.fold(add, totals, position, upstream, key)
    of_key = ops.reshape(of_key, (batch, length, size))
    return of_query, of_key, ops.sum(ops.sum(of_vector, 1), 0)


def _spread(rows, weights, x, position, length):
    """The inverse of gathering: sum_iw a[b,i,w] x[b,i] at each s[b,i,w], `(B, Tk, D)`."""
    batch, _, size = ops.shape(x)
    # Many rows may meet in one place: half precision does not count that far.
    wide = _widen(x)
    if rows.place_by_place:

        def add(total, weight, _, place):
            return total + _add_rows(weight * wide, place, batch * length)

        total = rows.fold(add, _zeros(x, batch * length), position, weights, length=length)
    else:
        weights = ops.expand_dims(_widen(weights), 3)
        place = _in_batch(position, length)
        total = _add_rows(weights * ops.expand_dims(wide, 2), place, batch * length)
    return ops.cast(ops.reshape(total, (batch, length, size)), x.dtype)


class _Rows(NamedTuple):
    """The rows of a memory at each place of the windows, one place after the other."""

    place_by_place: bool

    def each(self, function, position, memory):
        """`function(row)`, `(B, Tq)`, of all places, side by side."""
        places = _places_first(_in_batch(position, ops.shape(memory)[1]))
        flat = ops.reshape(memory, (-1, memory.shape[-1]))

        width = position.shape[-1]
        number = ops.reshape(ops.arange(width), (-1, 1, 1))

        def body(n, found):
            one = ops.expand_dims(function(ops.take(flat, places[n], axis=0)), 0)
            # An addition, for TensorFlow cannot differentiate an update compiled.
            return found + ops.where(number == n, one, ops.zeros_like(one))

        found = ops.zeros(ops.shape(places), memory.dtype)
        return ops.transpose(_repeat(width, body, found), (1, 2, 0))

    def fold(self, add, total, position, weights, memory=None, length=None):
        """Calls `total = add(total, weight, row, place)` for all places.

        weight: `(B, Tq, 1)`. row: `(B, Tq, D)` of the memory, if there is one, else of that
        `length`. place: `(B, Tq)`, its number among all rows of the batch.
        """
        length = length if memory is None else ops.shape(memory)[1]
        places = _places_first(_in_batch(position, length))
        weights = _places_first(_widen(weights))
        flat = None if memory is None else ops.reshape(memory, (-1, memory.shape[-1]))

        def body(n, total):
            row = None if flat is None else ops.take(flat, places[n], axis=0)
            return add(total, ops.expand_dims(weights[n], 2), row, places[n])

        return _repeat(position.shape[-1], body, total)


def _repeat(count, body, total):
    """`total = body(n, total)` for n below count."""
    if keras.backend.backend() != "tensorflow":
        return ops.fori_loop(0, count, body, total)
    # XLA can only differentiate a loop of which it is told how long it is.
    several = isinstance(total, tuple)
    _, *found = ops.while_loop(
        lambda n, *_: n < count,
        lambda n, *total: (n + 1, *_as_tuple(body(n, total if several else total[0]))),
        (0, *_as_tuple(total)),
        maximum_iterations=count,
    )
    return tuple(found) if several else found[0]


def _as_tuple(x):
    return x if isinstance(x, tuple) else (x,)


def _in_batch(position, length):
    """The numbers of the rows among those of all samples."""
    start = ops.arange(ops.shape(position)[0], dtype="int32") * length
    return position + ops.reshape(start, (-1, 1, 1))


def _places_first(x):
    return ops.transpose(x, (2, 0, 1))


def _sum_features(x):
    """`(B, Tq, D)` to `(B, Tq)`."""
    # A product with ones is the fastest such sum.
    return ops.squeeze(project(x, ops.ones((x.shape[-1], 1), x.dtype)), -1)


def _add_rows(rows, place, count):
    """Adds rows `(..., D)` up, each to the one that `place`, `(...)`, says: `(count, D)`."""
    rows = ops.reshape(rows, (-1, rows.shape[-1]))
    return ops.segment_sum(rows, ops.reshape(place, (-1,)), num_segments=count)


def _zeros(x, *sizes):
    """As many rows as wide as those of `x`."""
    return ops.zeros((*sizes, x.shape[-1]), _wide_dtype(x))


def _widen(x):
    return ops.cast(x, _wide_dtype(x))


def _wide_dtype(x):
    return "float64" if keras.backend.standardize_dtype(x.dtype) == "float64" else "float32"
