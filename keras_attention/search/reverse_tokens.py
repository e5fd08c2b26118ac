"""Token ids in reverse order, for models that write from right to left."""

import numpy as np

from keras_attention._spec import check_token, is_tensor, raise_value_error
from keras_attention._typing import Tensor
from keras_attention.backend import ops

__all__ = ["reverse_tokens"]


def reverse_tokens(tokens: Tensor, end_token: int, pad_token: int = 0) -> Tensor:
    """Reverse the tokens before the end token of each row.

        y'[i] = y[n-1-i]    i < n, the number of tokens before the first end token or padding
        y'[i] = y[i]        i >= n

    Train the right-to-left model of a `BidirectionalEnsemble` on such targets. Reversing them again
    gives the targets.

    Sizes: B rows, T steps.

    Args:
        tokens: `(B, T)` integers, an array or a tensor.
        end_token: the id that ends a row. If the rows have no end token, pass `pad_token`.
        pad_token: the id that fills the rest of a row.

    Returns:
        `(B, T)`, an array for an array, otherwise a tensor.

    Raises:
        ValueError: `tokens` does not hold integers `(B, T)`; a token is not an id.

    Example:
        >>> import numpy
        >>> from keras_attention.search import reverse_tokens
        >>> reverse_tokens(numpy.array([[7, 8, 9, 2], [5, 6, 2, 0]]), end_token=2).tolist()
        [[9, 8, 7, 2], [6, 5, 2, 0]]
    """
    check_token("reverse_tokens", "end_token", end_token)
    check_token("reverse_tokens", "pad_token", pad_token)
    if not is_tensor(tokens, "int", None, None):
        remedy = 'Pad lists of ids first: keras.utils.pad_sequences(lists, padding="post").'
        expected = "`tokens` must be integer ids of shape (batch, steps)"
        raise_value_error("reverse_tokens", expected, tokens, remedy)
    positions = reversed_positions(tokens, end_token, pad_token)
    return _module_of(tokens).take_along_axis(tokens, positions, axis=1)


def reversed_positions(tokens: Tensor, end_token: int, pad_token: int) -> Tensor:
    """Return the position in the original row of each position of a reversed row `(..., T)`."""
    module = _module_of(tokens)
    inside = module.logical_and(tokens != end_token, tokens != pad_token)
    inside = module.cumprod(module.where(inside, 1, 0), axis=-1)
    # `arange` needs a length, which a functional model does not know.
    position = module.cumsum(module.ones_like(inside), axis=-1) - 1
    last = module.sum(inside, axis=-1, keepdims=True) - 1
    return module.where(position <= last, last - position, position)


def _module_of(tokens):
    """Return NumPy for arrays, which a backend might copy to a device, otherwise `keras.ops`."""
    return np if isinstance(tokens, np.ndarray) else ops
