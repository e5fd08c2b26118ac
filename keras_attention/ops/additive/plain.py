"""The additive score as all pairs at once, or as one block of queries after the other.

A block fits into the cache of a core, and everything that needs its tanh uses it before the next
block. Every operation that is not compiled has a fixed price, so there are few, and they are large.
"""

from collections.abc import Callable
from typing import Any

from keras_attention._typing import Size, Tensor
from keras_attention.backend.operations import ops
from keras_attention.ops.additive.choose import BLOCK, SMALLEST_SAMPLE, WHOLE
from keras_attention.ops.matmul import project

__all__ = [
    "blocked_gradient",
    "blocked_score",
    "score_by_sample",
    "second_gradient",
    "sum_pairs",
    "whole_gradient",
    "whole_score",
]


def _pairs(query: Tensor, key: Tensor) -> Tensor:
    """tanh(q_i + k_j), `(..., Tq, Tk, U)`."""
    return ops.tanh(ops.expand_dims(query, -2) + ops.expand_dims(key, -3))


def whole_score(query: Tensor, key: Tensor, vector: Tensor) -> Tensor:
    """The score of all pairs at once. The arguments may lack the axis B."""
    # A product of two matrices is the fastest way to sum over features.
    return ops.squeeze(project(_pairs(query, key), ops.expand_dims(vector, 1)), -1)


def score_by_sample(query: Tensor, key: Tensor, vector: Tensor) -> Tensor:
    """The score of one query, as one product per sample: under XLA its gradient is faster."""
    columns = ops.broadcast_to(ops.expand_dims(vector, 1), (query.shape[0], query.shape[-1], 1))
    return ops.transpose(ops.matmul(ops.squeeze(_pairs(query, key), 1), columns), (0, 2, 1))


def whole_gradient(
    query: Tensor, key: Tensor, vector: Tensor, grad_output: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of query, key and vector, from all pairs at once."""
    hidden = _pairs(query, key)
    slope = 1.0 - hidden * hidden
    # A product of matrices, because XLA on a CPU sums slowly over the axis before the last.
    grad_query = ops.squeeze(ops.matmul(ops.expand_dims(grad_output, 2), slope), 2)
    grad_key = ops.sum(ops.expand_dims(grad_output, 3) * slope, 1)
    return vector * grad_query, vector * grad_key, _total(hidden, grad_output)


def second_gradient(query, key, vector, grad_output, for_query, for_key, for_vector):
    """The gradient of sum(for_query grad_query + for_key grad_key + for_vector grad_vector).

    The sum equals g . e'. Here g is the upstream gradient, h the tanh, p = p_q + p_k, and
    e' = sum_u v (1 - h^2) p + h p_v is the change of the scores in the direction (p_q, p_k, p_v).
    """
    hidden = _pairs(query, key)
    direction = ops.expand_dims(for_query, 2) + ops.expand_dims(for_key, 1)
    slope = 1.0 - hidden * hidden
    change = ops.sum(vector * slope * direction + for_vector * hidden, -1)
    grad_output = ops.expand_dims(grad_output, 3)
    curved = grad_output * slope * (for_vector - 2.0 * vector * hidden * direction)
    return (
        ops.sum(curved, 2),
        ops.sum(curved, 1),
        sum_pairs(grad_output * slope * direction),
        change,
    )


def sum_pairs(x):
    """Sums `(B, Tq, .., U)` to `(U,)`, one axis at a time, which keeps rounding errors small."""
    while len(x.shape) > 1:
        x = ops.sum(x, -2)
    return x


def blocked_score(query: Tensor, key: Tensor, vector: Tensor) -> Tensor:
    """The score of `(B, Tq, U)`, `(B, Tk, U)` and `(U,)` of one dtype, in blocks of queries."""

    def of_sample(sample):
        query, key = sample
        blocks = _in_blocks(query, key)
        scores = ops.map(lambda block: whole_score(block, key, vector), blocks)
        return ops.reshape(scores, (-1, ops.shape(key)[0]))[: ops.shape(query)[0]]

    scores = _by_size(
        query,
        key,
        lambda: whole_score(query, key, vector),
        lambda: ops.map(of_sample, (query, key)),
    )
    # A conditional loses the sizes that are known.
    return ops.reshape(scores, (*ops.shape(query)[:2], ops.shape(key)[1]))


def blocked_gradient(
    query: Tensor, key: Tensor, vector: Tensor, grad_output: Tensor
) -> tuple[Tensor, ...]:
    """The gradients of query, key and vector, in blocks; upstream has the shape `(B, Tq, Tk)`."""

    def by_sample():
        grad_query, grad_key, grad_vector = ops.map(_gradient_of_sample, (query, key, grad_output))
        return vector * grad_query, vector * grad_key, ops.sum(grad_vector, 0)

    sums = _by_size(query, key, lambda: whole_gradient(query, key, vector, grad_output), by_sample)
    inputs = query, key, vector
    return tuple(ops.reshape(x, ops.shape(y)) for x, y in zip(sums, inputs, strict=True))


def _gradient_of_sample(sample):
    """sum_j g h' `(Tq, U)`, sum_i g h' `(Tk, U)`, sum_ij g h `(U,)`; g upstream, h tanh."""
    query, key, grad_output = sample
    blocks = _in_blocks(query, key)
    count, size, units = ops.shape(blocks)
    length = ops.shape(key)[0]
    missing = count * size - ops.shape(query)[0]
    padding = ops.zeros((missing, length), grad_output.dtype)
    weights = ops.reshape(ops.concatenate([grad_output, padding]), (count, size, length))

    def body(i, sums):
        grad_query, grad_key, grad_vector = sums
        hidden, weight = _pairs(blocks[i], key), weights[i]
        grad_vector = grad_vector + _total(hidden, weight)
        slope = 1.0 - hidden * hidden
        rows = ops.matmul(ops.expand_dims(weight, 1), slope)  # (size, 1, U)
        grad_query = ops.slice_update(grad_query, (i * size, 0), ops.squeeze(rows, 1))
        grad_key = grad_key + ops.sum(ops.expand_dims(weight, 2) * slope, 0)
        return grad_query, grad_key, grad_vector

    sums = (
        ops.zeros((count * size, units), query.dtype),
        ops.zeros_like(key),
        ops.zeros_like(key[0]),
    )
    grad_query, grad_key, grad_vector = ops.fori_loop(0, count, body, sums)
    return grad_query[: ops.shape(query)[0]], grad_key, grad_vector


def _by_size(
    query: Tensor, key: Tensor, whole: Callable[[], Any], by_sample: Callable[[], Any]
) -> Any:
    batch, steps, units = (_size(n) for n in ops.shape(query))
    sample = steps * _size(ops.shape(key)[1]) * units
    # Known sizes need no conditional, which some converters cannot handle.
    if isinstance(sample, float) and sample <= SMALLEST_SAMPLE:
        return whole()
    if isinstance(batch * sample, float):
        return whole() if batch * sample <= WHOLE else by_sample()
    few = ops.logical_or(batch * sample <= WHOLE, sample <= SMALLEST_SAMPLE)
    return ops.cond(few, whole, by_sample)


def _size(n: Size) -> float | Tensor:
    # Products of sizes may have more than 31 bits, so they are computed in floating point.
    return float(n) if isinstance(n, int) else ops.cast(n, "float32")


def _in_blocks(query, key):
    """Cuts queries `(Tq, U)` into blocks `(count, size, U)`; zeros fill the last one."""
    (steps, units), length = ops.shape(query), ops.shape(key)[0]
    known = all(isinstance(n, int) for n in (steps, length))
    largest = max if known else ops.maximum
    size = largest(1, BLOCK // largest(1, length * units))
    count = largest(1, (steps + size - 1) // size)
    # Blocks of equal size need the least padding.
    size = largest(1, (steps + count - 1) // count)
    padding = ops.zeros((count * size - steps, units), query.dtype)
    return ops.reshape(ops.concatenate([query, padding]), (count, size, units))


def _total(hidden, weight):
    """The sum of g h over all pairs, `(U,)`."""
    rows = ops.reshape(hidden, (-1, hidden.shape[-1]))
    return ops.squeeze(ops.matmul(ops.reshape(weight, (1, -1)), rows), 0)
