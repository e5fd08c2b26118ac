"""Copying words that the vocabulary lacks."""

from keras_attention._spec import Spec, check_token
from keras_attention._typing import Tensor
from keras_attention.backend import gather_rows, ops
from keras_attention.ops.masks import argmax

__all__ = ["replace_unknown"]

BEST = Spec(
    *(
        "tokens: int[B T]",
        "weights: float[B T Tk]",
        "source: int[B Tk]",
        "memory_mask: bool[B Tk]?",
    ),
    call="replace_unknown(tokens, weights, source, unknown_token)",
)
BEAMS = BEST.replace("tokens: int[B K T]", "weights: float[B K T Tk]")


def replace_unknown(
    tokens: Tensor,
    weights: Tensor,
    source: Tensor,
    unknown_token: int,
    memory_mask: Tensor | None = None,
) -> Tensor:
    """Replace every unknown token by the source token that its step attended to most.

        y[t] = x[argmax_j weights[t, j]]     where y[t] is the unknown token

    An unknown token whose step read nothing, with weights of zeros, stays.

    Sizes: B samples, K beams, L tokens, Tk memory steps.

    Args:
        tokens: `(B, L)` or `(B, K, L)`, integers, such as `SearchResult.tokens`.
        weights: `(B, L, Tk)` or `(B, K, L, Tk)`, the attention weights of the same steps.
        source: `(B, Tk)`, integers: the tokens of the memory. They may lie outside the vocabulary
            of the decoder, such as indices of the words of this text.
        unknown_token: the token to replace.
        memory_mask: `(B, Tk)`, boolean, True where the source is valid; the rest is never copied.

    Returns:
        The tokens, in the dtype of `tokens`.

    Raises:
        ValueError: an argument is missing or has another shape or dtype.

    Example:
        >>> import numpy as np
        >>> from keras import ops
        >>> from keras_attention.search import replace_unknown
        >>> weights = np.array([[[0.1, 0.9], [0.8, 0.2], [0.5, 0.5]]])
        >>> copied = replace_unknown(np.array([[5, 3, 1]]), weights, np.array([[70, 71]]), 3)
        >>> ops.convert_to_numpy(copied).tolist()
        [[5, 70, 1]]

    Reference: https://arxiv.org/abs/1508.04025, section 4.2.
    """
    check_token("replace_unknown", "unknown_token", unknown_token)
    tensors = {"tokens": tokens, "weights": weights, "source": source, "memory_mask": memory_mask}
    beams = len(getattr(tokens, "shape", ())) == 3
    (BEAMS if beams else BEST).check("replace_unknown", tensors)
    tokens, weights = ops.convert_to_tensor(tokens), ops.convert_to_tensor(weights)
    if memory_mask is not None:
        mask = ops.expand_dims(ops.convert_to_tensor(memory_mask), (1, 2) if beams else 1)
        weights = ops.where(mask, weights, ops.zeros_like(weights))
    # One memory step more, because there may be none.
    weights = ops.pad(weights, [[0, 0]] * (len(weights.shape) - 1) + [[0, 1]])
    source = ops.pad(ops.convert_to_tensor(source), [[0, 0], [0, 1]])
    copies = gather_rows(source, argmax(weights))
    replaced = (tokens == unknown_token) & (ops.max(weights, axis=-1) > 0)
    return ops.where(replaced, ops.cast(copies, tokens.dtype), tokens)
