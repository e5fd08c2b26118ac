"""Windows of local attention (Luong, Pham and Manning, 2015, section 3.2).

A window of half-width D around the centre p holds the 2D + 1 positions from floor(p) - D to
floor(p) + D, as in the authors' code. The caller masks positions outside the sentence.

Positions count memory steps from 0. Sizes: B samples, Tq query and Tk memory steps.

Reference: https://arxiv.org/abs/1508.04025.
"""

import keras

from keras_attention._typing import Size, Tensor
from keras_attention.backend import gather_rows, ops

__all__ = [
    "gaussian",
    "scatter_windows",
    "sentence_span",
    "take_windows",
    "window_mask",
    "window_positions",
]

_BEYOND = 2**30  # a position after the end of any memory


def sentence_span(
    mask: Tensor | None, batch_size: Size, length: Size, dtype: str = "float32"
) -> tuple[Tensor, Tensor]:
    """Find where each sentence of a padded batch starts, and how many positions it spans.

        S = last valid position - first valid position + 1

    Masked positions between two words count, although nothing attends to them.

    Args:
        mask: `(B, Tk)` boolean, True for a word; None if all positions are words.
        batch_size: B, an integer or a scalar tensor.
        length: Tk, an integer or a scalar tensor.
        dtype: dtype of the results.

    Returns:
        `(start, size)`, each `(B,)`: the first valid position, and S. Both are 0 where no position
        is valid.

    Example:
        >>> import numpy
        >>> from keras import ops
        >>> from keras_attention.ops import sentence_span
        >>> mask = numpy.array([[True, True, False, False], [False, True, False, True]])
        >>> start, size = sentence_span(mask, 2, 4)
        >>> ops.convert_to_numpy(start).tolist(), ops.convert_to_numpy(size).tolist()
        ([0.0, 1.0], [2.0, 3.0])
    """
    if mask is None:
        return ops.zeros((batch_size,), dtype), ops.ones((batch_size,), dtype) * ops.cast(
            length, dtype
        )
    position = ops.arange(ops.shape(mask)[1], dtype="int32")
    # The initial values also serve a memory of zero steps.
    last = ops.max(ops.where(mask, position, -1), axis=-1, initial=-1)
    first = ops.min(ops.where(mask, position, _BEYOND), axis=-1, initial=_BEYOND)
    first = ops.minimum(first, last + 1)
    return ops.cast(first, dtype), ops.cast(last - first + 1, dtype)


def window_mask(center: Tensor, position: Tensor, half_width: int) -> Tensor:
    """Mark the positions s inside a window: |s - floor(p)| <= D.

    Args:
        center: p, `(B, Tq)`, floating point.
        position: s, `(Tk,)` or `(B, Tq, W)`, integers.
        half_width: D, a positive integer.

    Returns:
        Boolean, `(B, Tq, Tk)` or `(B, Tq, W)`.

    Example:
        >>> import numpy
        >>> from keras import ops
        >>> from keras_attention.ops import window_mask
        >>> mask = window_mask(numpy.array([[1.5]]), numpy.arange(5), 1)
        >>> ops.convert_to_numpy(mask).tolist()
        [[[True, True, True, False, False]]]
    """
    offset = _offsets(ops.floor(ops.stop_gradient(center)), position)
    return ops.abs(offset) <= half_width


def gaussian(center: Tensor, position: Tensor, half_width: int) -> Tensor:
    """Weigh positions by a Gaussian.

        g(s) = exp(-(s - p)^2 / (2 sigma^2)),        sigma = D / 2

    Unlike in `window_mask`, p is not rounded, so that gradients reach it.

    Args:
        center: p, `(B, Tq)`, floating point.
        position: s, `(Tk,)` or `(B, Tq, W)`, integers.
        half_width: D, a positive integer.

    Returns:
        Factors of the weights, `(B, Tq, Tk)` or `(B, Tq, W)`, in the dtype of `center`.

    Example:
        >>> import numpy
        >>> from keras import ops
        >>> from keras_attention.ops import gaussian
        >>> factors = gaussian(numpy.array([[1.5]], "float32"), numpy.arange(4), 2)
        >>> [round(x, 2) for x in ops.convert_to_numpy(factors)[0, 0].tolist()]
        [0.32, 0.88, 0.88, 0.32]
    """
    return ops.exp(-ops.square(_offsets(center, position)) * (2.0 / half_width**2))


def window_positions(center: Tensor, half_width: int, length: Size) -> tuple[Tensor, Tensor]:
    """List the W = 2D + 1 positions of each window.

    Args:
        center: p, `(B, Tq)`, floating point, from 0 to `length`.
        half_width: D, a positive integer.
        length: Tk, an integer or a scalar tensor.

    Returns:
        `(position, inside)`, each `(B, Tq, W)`. `position` holds integers from 0 to Tk - 1;
        `inside` is False where the window reaches beyond the memory, and `position` then holds the
        nearest position that exists.

    Example:
        >>> import numpy
        >>> from keras import ops
        >>> from keras_attention.ops import window_positions
        >>> position, inside = window_positions(numpy.array([[0.5]]), 1, 7)
        >>> ops.convert_to_numpy(position).tolist(), ops.convert_to_numpy(inside).tolist()
        ([[[0, 0, 1]]], [[[False, True, True]]])
    """
    middle = ops.cast(ops.floor(ops.stop_gradient(center)), "int32")
    position = ops.expand_dims(middle, -1) + ops.arange(-half_width, half_width + 1, dtype="int32")
    inside = ops.logical_and(position >= 0, position < length)
    return ops.clip(position, 0, length - 1), inside


def take_windows(sequence: Tensor, position: Tensor) -> Tensor:
    """Gather the steps of a sequence that each window holds.

    Args:
        sequence: `(B, Tk, ...)`.
        position: `(B, Tq, W)`, integers from 0 to Tk - 1.

    Returns:
        `(B, Tq, W, ...)`.

    Example:
        >>> import numpy
        >>> from keras import ops
        >>> from keras_attention.ops import take_windows, window_positions
        >>> words = numpy.array([[10.0, 11.0, 12.0, 13.0, 14.0]])
        >>> position, _ = window_positions(numpy.array([[1.5, 3.0]]), 1, 5)
        >>> ops.convert_to_numpy(take_windows(words, position)).tolist()
        [[[10.0, 11.0, 12.0], [12.0, 13.0, 14.0]]]
    """
    return gather_rows(sequence, position)


def scatter_windows(weights: Tensor, center: Tensor, length: Size) -> Tensor:
    """Put the weights of windows back at their positions in the memory, the inverse of gathering.

    Args:
        weights: `(B, Tq, 2D + 1)`.
        center: p, `(B, Tq)`, floating point.
        length: Tk, an integer or a scalar tensor.

    Returns:
        `(B, Tq, Tk)`, zero outside the windows.

    Example:
        >>> import numpy
        >>> from keras import ops
        >>> from keras_attention.ops.windows.positions import scatter_windows
        >>> weights, center = numpy.array([[[0.25, 0.5, 0.25]]]), numpy.array([[2.0]])
        >>> ops.convert_to_numpy(scatter_windows(weights, center, 5)).tolist()
        [[[0.0, 0.25, 0.5, 0.25, 0.0]]]
    """
    width = weights.shape[-1]
    start = ops.floor(ops.stop_gradient(center)) - width // 2
    column = ops.cast(_offsets(start, ops.arange(length)), "int32")
    inside = ops.logical_and(column >= 0, column < width)
    scatter = ops.take_along_axis(weights, ops.clip(column, 0, width - 1), axis=-1)
    return ops.where(inside, scatter, ops.zeros_like(scatter))


def _offsets(center, position):
    """Compute s - p, `(B, Tq, Tk)` or `(B, Tq, W)`."""
    position = ops.cast(position, keras.backend.standardize_dtype(center.dtype))
    return position - ops.expand_dims(center, -1)
