"""Windows of local attention (Luong, Pham and Manning, 2015, section 3.2).

A window of half-width D around the centre p holds the 2D + 1 positions from floor(p) - D to
floor(p) + D, as in the authors' code; those outside the sentence are masked by the caller.
"""

import keras
from keras import ops


def sentence_span(mask, batch_size, length, dtype="float32"):
    """Where each sentence of a padded batch starts and how long it is.

    Args:
        mask: `(B, Tk)` boolean, True for a word; None: all positions are words.
        batch_size: B. length: Tk. Both may be tensors.
        dtype: of the results.

    Returns:
        `(start, size)`, each `(B,)`: the first valid position, and the number of valid ones. With
        padding in front, positions count from `start`.
    """
    if mask is None:
        return ops.zeros((batch_size,), dtype), ops.ones((batch_size,), dtype) * ops.cast(
            length, dtype
        )
    start = ops.argmax(ops.cast(mask, "int32"), axis=-1)
    return ops.cast(start, dtype), ops.sum(ops.cast(mask, dtype), axis=-1)


def window_mask(center, length, window):
    """The positions s with |s - floor(p)| <= D.

    Args:
        center: p, `(B, Tq)`, floating point.
        length: Tk, an integer or a scalar tensor.
        window: D, a positive integer.

    Returns:
        `(B, Tq, Tk)` boolean.
    """
    offset = _offsets(ops.floor(ops.stop_gradient(center)), length)
    return ops.abs(offset) <= window


def gaussian(center, length, window):
    """Prefers positions near the centre: exp(-(s - p)^2 / (2 sigma^2)), sigma = D / 2.

    Args, shapes: as of `window_mask`; here p is not rounded, so that it can be learned.

    Returns:
        `(B, Tq, Tk)` in the dtype of `center`.
    """
    return ops.exp(-ops.square(_offsets(center, length)) * (2.0 / window**2))


def _offsets(center, length):
    position = ops.cast(ops.arange(length), keras.backend.standardize_dtype(center.dtype))
    return position - ops.expand_dims(center, -1)  # (B, Tq, Tk)
