"""What a model returns when it generates and when it measures."""

from typing import NamedTuple

import numpy as np

from keras_attention.search import SearchResult


class LogProbability(NamedTuple):
    """What `Seq2Seq.log_probability` returns.

    Attributes:
        scores: `(B,)`, the sum of the tokens' log probabilities.
        log_probs: `(B, T)`, zero at padding.
        weights: `(B, T, Tk)`, the attention weights with which each token was predicted, or None.

    Example:
        The perplexity of targets, here for a model to which all tokens are equally probable:

        >>> import keras, numpy
        >>> from keras_attention import AttentionRNN, LuongAttention, RecurrentEncoder, Seq2Seq
        >>> embedding = keras.layers.Embedding(6, 3)
        >>> encoder = keras.layers.GRU(3, return_sequences=True, return_state=True)
        >>> model = Seq2Seq(
        ...     RecurrentEncoder(embedding, encoder),
        ...     AttentionRNN(keras.layers.GRUCell(3), LuongAttention("dot")),
        ...     target_embedding=embedding,
        ...     head=keras.layers.Dense(6, kernel_initializer="zeros"),
        ...     start_token=1,
        ...     end_token=2,
        ... )
        >>> targets = numpy.array([[5, 4, 3, 2], [4, 2, 0, 0]])
        >>> found = model.log_probability(numpy.array([[3, 4], [5, 3]]), targets)
        >>> round(float(numpy.exp(-found.scores.sum() / (targets > 0).sum())), 3)
        4.0
    """

    scores: np.ndarray
    log_probs: np.ndarray
    weights: np.ndarray | None


def best(found: SearchResult, kept: int | None) -> SearchResult:
    """The best beam without its axis, or the `kept` best."""
    if len(found.tokens.shape) == 2:
        return found
    index = 0 if kept is None else slice(kept)
    return SearchResult(*(x if x is None else x[:, index] for x in found))
