"""Windows of local attention (Luong, Pham and Manning, 2015, section 3.2).

A window of half-width D around the centre p holds the 2D + 1 positions from floor(p) - D to
floor(p) + D, as in the authors' code; those outside the sentence are masked by the caller.
"""

import keras
from keras import ops

__all__ = [
    "gaussian",
    "sentence_span",
    "spread_windows",
    "take_windows",
    "window_mask",
    "window_positions",
]

_BEYOND = 2**30  # a position after any memory


def sentence_span(mask, batch_size, length, dtype="float32"):
    """Where each sentence of a padded batch starts and how many positions it spans.

    Masked positions between two words belong to the span: they are not read, but they count.

    Args:
        mask: `(B, Tk)` boolean, True for a word; None: all positions are words.
        batch_size: B. length: Tk. Both may be tensors.
        dtype: of the results.

    Returns:
        `(start, size)`, each `(B,)`: the first valid position, and
        S = last valid position - first valid position + 1. Both are 0 where nothing is valid.
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


def window_mask(center, position, window):
    """The positions s with |s - floor(p)| <= D.

    Args:
        center: p, `(B, Tq)`, floating point.
        position: s, `(Tk,)`, or `(B, Tq, W)`; integers.
        window: D, a positive integer.

    Returns:
        Boolean, `(B, Tq, Tk)` or `(B, Tq, W)`.
    """
    offset = _offsets(ops.floor(ops.stop_gradient(center)), position)
    return ops.abs(offset) <= window


def gaussian(center, position, window):
    """Prefers positions near the centre: exp(-(s - p)^2 / (2 sigma^2)), sigma = D / 2.

    Args, shapes: as of `window_mask`; here p is not rounded, so that it can be learned.

    Returns:
        In the dtype of `center`.
    """
    return ops.exp(-ops.square(_offsets(center, position)) * (2.0 / window**2))


def window_positions(center, window, length):
    """The 2D + 1 positions of each window.

    Args:
        center: p, `(B, Tq)`, floating point, from 0 to `length`.
        window: D. length: Tk, an integer or a scalar tensor.

    Returns:
        `(position, inside)`, each `(B, Tq, 2D + 1)`: integers that all exist in the memory, and
        whether they do so in the window; where not, another position has taken their place.
    """
    middle = ops.cast(ops.floor(ops.stop_gradient(center)), "int32")
    position = ops.expand_dims(middle, -1) + ops.arange(-window, window + 1, dtype="int32")
    inside = ops.logical_and(position >= 0, position < length)
    return ops.clip(position, 0, length - 1), inside


def take_windows(sequence, position):
    """`(B, Tk, ...)` at the positions `(B, Tq, W)`: `(B, Tq, W, ...)`."""
    batch, length, *features = ops.shape(sequence)
    flat = ops.reshape(sequence, (-1, *features))
    row = ops.arange(batch, dtype="int32") * length
    return ops.take(flat, position + ops.reshape(row, (-1, 1, 1)), axis=0)


def spread_windows(weights, center, length):
    """The inverse for weights: `(B, Tq, 2D + 1)` in the places of their windows, `(B, Tq, Tk)`."""
    width = weights.shape[-1]
    start = ops.floor(ops.stop_gradient(center)) - width // 2
    column = ops.cast(_offsets(start, ops.arange(length)), "int32")
    inside = ops.logical_and(column >= 0, column < width)
    spread = ops.take_along_axis(weights, ops.clip(column, 0, width - 1), axis=-1)
    return ops.where(inside, spread, ops.zeros_like(spread))


def _offsets(center, position):
    position = ops.cast(position, keras.backend.standardize_dtype(center.dtype))
    return position - ops.expand_dims(center, -1)  # (B, Tq, Tk)
