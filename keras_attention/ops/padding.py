"""Padding to few lengths, so that few compiled programs serve all of them."""

from keras_attention._typing import Size, Tensor
from keras_attention.backend import ops

__all__ = ["pad_axis", "round_up_length"]


def round_up_length(size: Size) -> Size:
    """Round a length up, so that few programs serve all lengths: 1, 32, 64, .. 256, 320, ..

    Up to 256 the step is 32. Beyond, it is an eighth to a quarter of the size.

    Args:
        size: an integer, or a scalar int32 tensor.
    """
    if isinstance(size, int):
        step = max(32, 2 ** ((size - 1).bit_length() - 3))
        return size if size <= 1 else -(-size // step) * step
    step, limit = ops.convert_to_tensor(32, "int32"), size - 1
    for _ in range(20):
        step = ops.where(limit // step >= 8, 2 * step, step)
    return ops.where(size <= 1, size, -(-size // step) * step)


def pad_axis(x: Tensor, axis: int, count: Size) -> Tensor:
    """Add zeros (or False) at the end of an axis."""
    if isinstance(count, int) and count == 0:
        return x
    shape = list(ops.shape(x))
    shape[axis] = count
    return ops.concatenate([x, ops.zeros(shape, x.dtype)], axis)
