"""The largest values of a long row, faster than `ops.top_k`."""

import functools
import math

from keras_attention._typing import Tensor
from keras_attention.backend import SORTS_FAST, on_device, ops

# The row is cut into groups of this size. `ops.top_k` is faster for rows shorter than SHORTEST.
GROUP, SHORTEST = 32, 1024


def top_k(x: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the `count` largest values of each row, in descending order, and their indices.

    They lie in the `count` groups with the largest maxima. So one pass finds the maxima, and
    `ops.top_k` sees two short rows instead of a long one. On TensorFlow and JAX, equal values keep
    their order.

    Args:
        x: `(N, V)`, with V known.

    Returns:
        Values and indices (int32), `(N, count)` both.
    """
    size = x.shape[-1]
    groups = -(-size // GROUP)
    if size < SHORTEST or count >= groups or SORTS_FAST:
        return _from_all(x, count)
    grouped = functools.partial(_from_groups, count=count)
    return on_device(grouped, functools.partial(_from_all, count=count), x)


def _from_all(x, count):
    """Run `ops.top_k`: one kernel per row on a GPU."""
    values, indices = ops.top_k(x, count)
    return values, ops.cast(indices, "int32")


def _from_groups(x, count):
    size = x.shape[-1]
    groups = -(-size // GROUP)
    missing = groups * GROUP - size
    if missing:
        x = ops.pad(x, ((0, 0), (0, missing)), constant_values=-math.inf)
    maxima = ops.max(ops.reshape(x, (-1, groups, GROUP)), axis=-1)
    chosen = ops.sort(ops.cast(ops.top_k(maxima, count)[1], "int32"), axis=-1)
    inside = ops.arange(GROUP, dtype="int32")
    indices = ops.reshape(GROUP * ops.expand_dims(chosen, -1) + inside, (-1, count * GROUP))
    values, order = ops.top_k(ops.take_along_axis(x, indices, axis=1), count)
    indices = ops.take_along_axis(indices, ops.cast(order, "int32"), axis=1)
    # TensorFlow promises no order for NaN, and a token in the padding must never be looked up.
    return values, ops.minimum(indices, size - 1)
