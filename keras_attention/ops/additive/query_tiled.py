"""The additive score as one tile of queries after the other.

A tile fits into the cache of a core, and everything that needs its tanh uses it before the next
tile. Every operation that is not compiled has a fixed overhead, so there are few, large ones.
"""

from collections.abc import Callable

from keras_attention._typing import Size, Tensor
from keras_attention.backend import ops
from keras_attention.ops.additive.dense import dense_gradient, dense_score, sum_pairs, tanh_of_pairs
from keras_attention.ops.padding import pad_axis

__all__ = ["query_tiled_gradient", "query_tiled_score"]

# Numbers of elements of the tensor of all pairs, B Tq Tk U, that were measured on two cores. A tile
# that fits into the cache of a core is faster than a larger one. Up to WHOLE elements are one tile,
# and so are samples of at most SMALLEST_SAMPLE: they are not worth a step in a loop.
TILE = 2**20
WHOLE = 2**22
SMALLEST_SAMPLE = 2**16


def query_tiled_score(query: Tensor, key: Tensor, vector: Tensor) -> Tensor:
    """Compute the score of `(B, Tq, U)`, `(B, Tk, U)` and `(U,)` of one dtype."""

    def of_sample(sample):
        query, key = sample
        tiles = _tiles(query, key)
        scores = ops.map(lambda tile: dense_score(tile, key, vector), tiles)
        return ops.reshape(scores, (-1, ops.shape(key)[0]))[: ops.shape(query)[0]]

    def dense():
        return dense_score(query, key, vector)

    scores = _by_size(query, key, dense, lambda: ops.map(of_sample, (query, key)))
    # `ops.cond` loses static sizes.
    return ops.reshape(scores, (*ops.shape(query)[:2], ops.shape(key)[1]))


def query_tiled_gradient(
    query: Tensor, key: Tensor, vector: Tensor, grad_output: Tensor
) -> tuple[Tensor, ...]:
    """Compute the gradients of query, key and vector; `grad_output` has shape `(B, Tq, Tk)`."""

    def dense():
        return dense_gradient(query, key, vector, grad_output)

    def by_sample():
        grad_query, grad_key, grad_vector = ops.map(_gradient_of_sample, (query, key, grad_output))
        return vector * grad_query, vector * grad_key, ops.sum(grad_vector, 0)

    gradients = zip(_by_size(query, key, dense, by_sample), (query, key, vector), strict=True)
    return tuple(ops.reshape(x, ops.shape(y)) for x, y in gradients)


def _gradient_of_sample(sample):
    """Sum g h' over j `(Tq, U)` and i `(Tk, U)`, g h over both `(U,)`; h tanh, g its gradient."""
    query, key, grad_output = sample
    tiles = _tiles(query, key)
    count, size, units = ops.shape(tiles)
    length = ops.shape(key)[0]
    weights = pad_axis(grad_output, 0, count * size - ops.shape(query)[0])
    weights = ops.reshape(weights, (count, size, length))

    def body(i, sums):
        grad_query, grad_key, grad_vector = sums
        hidden, weight = tanh_of_pairs(tiles[i], key), weights[i]
        grad_vector = grad_vector + sum_pairs(hidden, weight)
        slope = 1.0 - hidden * hidden
        rows = ops.matmul(ops.expand_dims(weight, 1), slope)  # (size, 1, U)
        grad_query = ops.slice_update(grad_query, (i * size, 0), ops.squeeze(rows, 1))
        grad_key = grad_key + ops.sum(ops.expand_dims(weight, 2) * slope, 0)
        return grad_query, grad_key, grad_vector

    zeros = ops.zeros((count * size, units), query.dtype)
    sums = zeros, ops.zeros_like(key), ops.zeros_like(key[0])
    grad_query, grad_key, grad_vector = ops.fori_loop(0, count, body, sums)
    return grad_query[: ops.shape(query)[0]], grad_key, grad_vector


def _by_size(
    query: Tensor, key: Tensor, dense: Callable[[], Tensor], by_sample: Callable[[], Tensor]
) -> Tensor:
    batch, steps, units = (_size(n) for n in ops.shape(query))
    sample = steps * _size(ops.shape(key)[1]) * units
    # Static sizes need no `cond`, which some converters cannot handle.
    if isinstance(sample, float) and sample <= SMALLEST_SAMPLE:
        return dense()
    if isinstance(batch * sample, float):
        return dense() if batch * sample <= WHOLE else by_sample()
    few = ops.logical_or(batch * sample <= WHOLE, sample <= SMALLEST_SAMPLE)
    return ops.cond(few, dense, by_sample)


def _size(n: Size) -> float | Tensor:
    # Products of sizes may have more than 31 bits, so they are computed in floating point.
    return float(n) if isinstance(n, int) else ops.cast(n, "float32")


def _tiles(query, key):
    """Cut queries `(Tq, U)` into tiles `(count, size, U)`; zeros fill the last one."""
    (steps, units), length = ops.shape(query), ops.shape(key)[0]
    known = all(isinstance(n, int) for n in (steps, length))
    largest = max if known else ops.maximum
    size = largest(1, TILE // largest(1, length * units))
    count = largest(1, (steps + size - 1) // size)
    # Tiles of equal size need the least padding.
    size = largest(1, (steps + count - 1) // count)
    return ops.reshape(pad_axis(query, 0, count * size - steps), (count, size, units))
