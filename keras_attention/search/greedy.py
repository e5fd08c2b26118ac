"""Greedy search."""

import math

from keras import ops

from keras_attention._typing import Nested
from keras_attention.search._loop import SearchResult, log_probs, possible, run_search
from keras_attention.search._step import Step

__all__ = ["greedy_search"]


def greedy_search(
    step: Step,
    state: Nested,
    memory: Nested = None,
    *,
    start_token: int,
    end_token: int,
    max_length: int,
) -> SearchResult:
    """Takes the most probable token at every step.

        y[t]     = argmax_v log p(v | y[<t], x)
        score(y) = sum_t log p(y[t] | y[<t], x)

    The search stops when all samples have ended. A sample for which a step allows no token has
    score -inf, length 0, only end tokens, and weights of zeros. On JAX, compile the search, as
    `beam_search` shows.

    Sizes: B samples, at most L tokens, Tk memory steps.

    Args:
        step: `step(tokens, state, memory) -> (logits, state, weights)` for N = B hypotheses; see
            `keras_attention.search`.
        state: the initial state, tensors `(B, ...)` in any nesting, or None.
        memory: what every step reads, tensors `(B, ...)` in any nesting, or None.
        start_token: the token that the first step receives.
        end_token: the token that ends a sequence.
        max_length: L, the largest number of tokens, the end token included.

    Returns:
        `SearchResult` with tokens `(B, L)`, lengths `(B,)`, scores `(B,)` and weights
        `(B, L, Tk)`.

    Raises:
        ValueError: as `beam_search`.
    """

    def choose(logits, beams, t):
        tokens = ops.where(beams.living, ops.argmax(logits, axis=-1), end_token)
        peak = ops.max(logits, axis=-1, keepdims=True, initial=-math.inf)
        totals = possible(beams.totals + ops.squeeze(log_probs(peak, logits), -1))
        totals = ops.where(beams.living, totals, beams.totals)
        return None, tokens, totals, totals

    return run_search(step, state, memory, choose, 1, start_token, end_token, max_length)
