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
