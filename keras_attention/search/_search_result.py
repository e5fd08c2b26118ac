"""The result of a search."""

import math
from typing import NamedTuple

from keras_attention._typing import Nested, Tensor
from keras_attention.backend import ops, tree_map


class SearchResult(NamedTuple):
    """The sequences that a search returns.

    Sizes: B samples, K beams or draws, at most L tokens, Tk memory steps. A greedy search has no
    axis K.

    Attributes:
        tokens: int32, `(B, L)` or `(B, K, L)` with the best beam first. There is no start token;
            end tokens fill the rest of a sequence that has ended.
        lengths: int32, `(B,)` or `(B, K)`: the number of tokens, the end token included; L for a
            sequence that never ended.
        scores: float32, `(B,)` or `(B, K)`: the summed log probability of a greedy search and of a
            draw; the score of a beam search, with its penalties, in descending order. The sum of
            `log_probs` is the log probability.
        weights: `(B, L, Tk)` or `(B, K, L, Tk)`: the attention weights of the step that chose
            each token, zeros after the end; for several memories a list of them; None if the step
            returns no weights.
        log_probs: float32, `(B, L)` or `(B, K, L)`: the log probability of each token under the
            model, zeros after the end.

    Example:
        A step that counts, and tokens without what fills the buffer:

        >>> import numpy
        >>> from keras import ops
        >>> from keras_attention import greedy_search
        >>> def step(tokens, state, memory):
        ...     return 9.0 * ops.one_hot(state + 1, 6), state + 1, None
        >>> state = numpy.array([0, 2], "int32")
        >>> result = greedy_search(step, state, start_token=0, end_token=5, max_length=7)
        >>> tokens, lengths = (ops.convert_to_numpy(x) for x in (result.tokens, result.lengths))
        >>> [row[: length - 1].tolist() for row, length in zip(tokens, lengths)]
        [[1, 2, 3, 4], [3, 4]]
    """

    tokens: Tensor
    lengths: Tensor
    scores: Tensor
    weights: Nested
    log_probs: Tensor


def by_sample(result: SearchResult, width: int) -> SearchResult:
    """Split the leading axis N = B K of all tensors into `(B, K)`."""

    def split(x):
        count, *sizes = ops.shape(x)
        return ops.reshape(x, (count // width, width, *sizes))

    return tree_map(split, result)


def mask_missing(result: SearchResult, exists: Tensor, end_token: int) -> SearchResult:
    """Clear the values after the end of a sequence, and impossible sequences."""
    lengths = ops.where(exists, result.lengths, 0)
    position = ops.arange(result.tokens.shape[-1], dtype="int32")
    valid = position < ops.expand_dims(lengths, -1)
    return SearchResult(
        tokens=ops.where(ops.expand_dims(exists, -1), result.tokens, end_token),
        lengths=lengths,
        scores=ops.where(exists, result.scores, -math.inf),
        weights=tree_map(
            lambda x: ops.where(ops.expand_dims(valid, -1), x, ops.zeros_like(x)), result.weights
        ),
        log_probs=ops.where(valid, result.log_probs, 0.0),
    )
