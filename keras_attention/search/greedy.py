"""Greedy search."""

import math

from keras import ops

from keras_attention.search._loop import log_probs, possible, run_search

__all__ = ["greedy_search"]


def greedy_search(step, state, memory=None, *, start_token, end_token, max_length):
    """Take the most probable token at every step.

        y[t]     = argmax_v log p(v | y[<t], x)
        score(y) = sum_t log p(y[t] | y[<t], x)

    Stops as soon as all samples have ended. Where a step allows no token, the sample has the score
    -inf, length 0, nothing but end tokens, and alignments of zeros. On JAX, compile the search, as
    `beam_search` shows.

    Args:
        step, state, memory, start_token, end_token, max_length: as in `beam_search`; N = B.

    Returns:
        `SearchResult`: tokens `(B, L)`, lengths `(B,)`, scores `(B,)`, alignments `(B, L, Tk)`.

    Raises:
        ValueError: as in `beam_search`.
    """

    def choose(logits, beams, t):
        tokens = ops.where(beams.living, ops.argmax(logits, axis=-1), end_token)
        peak = ops.max(logits, axis=-1, keepdims=True, initial=-math.inf)
        totals = possible(beams.totals + ops.squeeze(log_probs(peak, logits), -1))
        totals = ops.where(beams.living, totals, beams.totals)
        return None, tokens, totals, totals

    return run_search(step, state, memory, choose, 1, start_token, end_token, max_length)
