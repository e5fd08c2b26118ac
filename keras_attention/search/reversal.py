"""Token ids in reverse order, for models that write from right to left."""

from typing import Any

import numpy as np
from keras import ops

from keras_attention._checks import check_token, described, dtype_of
from keras_attention._typing import Tensor

__all__ = ["reverse_tokens"]


def reverse_tokens(tokens: Any, end_token: int, pad_token: int = 0) -> Any:
    """Reverses the tokens before the end token of each row.

        y'[i] = y[n-1-i]    i < n, the number of tokens before the first end token or padding
        y'[i] = y[i]        i >= n

    Train the backward model of a `BidirectionalEnsemble` on such targets. Reversing them again
    gives the targets.

    Args:
        tokens: `(B, T)` integers, an array or a tensor.
        end_token: the id that ends a row. For rows without one, pass the padding.
        pad_token: the id that fills the rest of a row.

    Returns:
        `(B, T)`, an array for an array, otherwise a tensor.

    Raises:
        ValueError: `tokens` holds something else than integers `(B, T)`; a token is not an id.

    Example:
        >>> import numpy
        >>> from keras_attention import reverse_tokens
        >>> reverse_tokens(numpy.array([[7, 8, 9, 2], [5, 6, 2, 0]]), end_token=2).tolist()
        [[9, 8, 7, 2], [6, 5, 2, 0]]
    """
    check_token("end_token", end_token)
    check_token("pad_token", pad_token)
    if len(getattr(tokens, "shape", ())) != 2 or "int" not in dtype_of(tokens):
        raise ValueError(
            "reverse_tokens: `tokens` must be integer ids of shape (batch, steps); received "
            f"{described(tokens)}. Pad lists of ids first: keras.utils.pad_sequences(lists, "
            'padding="post").'
        )
    found = ops.take_along_axis(tokens, reversed_places(tokens, end_token, pad_token), axis=1)
    return ops.convert_to_numpy(found) if isinstance(tokens, np.ndarray) else found


def reversed_places(tokens: Tensor, end_token: int, pad_token: int) -> Tensor:
    """The place in a row `(..., T)` from which each token of the reversed row comes."""
    inside = ops.logical_and(tokens != end_token, tokens != pad_token)
    inside = ops.cumprod(ops.cast(inside, "int32"), axis=-1)
    # Not `arange`, which needs a length: the tokens may be those of a functional model.
    place = ops.cumsum(ops.ones_like(inside), axis=-1) - 1
    last = ops.sum(inside, axis=-1, keepdims=True) - 1
    return ops.where(place <= last, last - place, place)
