"""Products of queries or weights with what is in a window of the memory, and there only.

Where XLA compiles, one row a query is gathered, used and forgotten for each place of the windows.
Elsewhere, and for the gradient by the memory, there is a copy of all windows for a moment. Nothing
but the inputs is kept for the gradient.
"""

import keras
from keras import ops

from keras_attention.ops.compiled import is_compiled, save_for_gradient
from keras_attention.ops.windows import take_windows

# Wider windows are gathered as a whole: to write so many places out takes long to compile.
WIDEST = 32


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

    inputs = (query, key, position)

    @ops.custom_gradient
    def dot(*given):
        def grad(*args, upstream=None):
            (query, key, position), upstream = _unpack(inputs, given, args, upstream)
            of_query = _window_sum(upstream, key, position)
            return of_query, _spread(upstream, query, position, ops.shape(key)[1]), None

        return _window_dot(*given), grad

    return dot(*inputs)


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

    inputs = (weights, value, position)

    @ops.custom_gradient
    def total(*given):
        def grad(*args, upstream=None):
            (weights, value, position), upstream = _unpack(inputs, given, args, upstream)
            of_weights = _window_dot(upstream, value, position)
            return of_weights, _spread(weights, upstream, position, ops.shape(value)[1]), None

        return _window_sum(*given), grad

    return total(*inputs)


def _unpack(inputs, given, args, upstream):
    # PyTorch gives the inputs, in a form that can be differentiated again, and `upstream`.
    return (save_for_gradient(inputs, given), args[0]) if upstream is None else (args, upstream)


def _window_dot(query, key, position):
    if not _place_by_place(position):
        return ops.einsum("bqd,bqwd->bqw", query, take_windows(key, position))
    # A product with ones is the fastest sum over features.
    ones = ops.ones((query.shape[-1], 1), query.dtype)
    places = range(position.shape[-1])
    return ops.concatenate([ops.matmul(query * _row(key, position, n), ones) for n in places], -1)


def _window_sum(weights, value, position):
    if not _place_by_place(position):
        return ops.einsum("bqw,bqwd->bqd", weights, take_windows(value, position))
    places = range(position.shape[-1])
    wide = _widen(weights)
    total = sum(wide[:, :, n : n + 1] * _widen(_row(value, position, n)) for n in places)
    return ops.cast(total, value.dtype)


def _spread(weights, x, position, length):
    """The inverse of gathering: sum_iw a[b,i,w] x[b,i] at each s[b,i,w], `(B, Tk, D)`."""
    batch, _, width = ops.shape(position)
    dtype = x.dtype
    # Many rows may meet in one place: half precision does not count that far.
    weights, x = _widen(weights), _widen(x)
    start = ops.reshape(ops.arange(batch, dtype="int32") * length, (-1, 1, 1))
    position = position + start

    def add(weights, position):
        rows = ops.expand_dims(weights, 3) * ops.expand_dims(x, 2)  # (B, Tq, W, D)
        rows = ops.reshape(rows, (-1, x.shape[-1]))
        places = ops.reshape(position, (-1,))
        return ops.segment_sum(rows, places, num_segments=batch * length)

    # On JAX the products of all places would be made by a library that is slow at it.
    if keras.backend.backend() == "jax" and width <= WIDEST:
        one_by_one = [slice(n, n + 1) for n in range(width)]
        total = sum(add(weights[:, :, n], position[:, :, n]) for n in one_by_one)
    else:
        total = add(weights, position)
    return ops.cast(ops.reshape(total, (batch, length, x.shape[-1])), dtype)


def _widen(x):
    wide = keras.backend.standardize_dtype(x.dtype) == "float64"
    return x if wide else ops.cast(x, "float32")


def _row(sequence, position, place):
    return ops.squeeze(take_windows(sequence, position[:, :, place : place + 1]), 2)


def _place_by_place(position):
    return position.shape[-1] <= WIDEST and is_compiled()
