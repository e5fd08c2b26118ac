"""Greedy search."""

import math
from collections.abc import Sequence

from keras_attention._typing import Nested, Size, Tensor
from keras_attention.backend import ops
from keras_attention.search._decoding_loop import clip_impossible, log_softmax_of, run_search
from keras_attention.search._search_result import SearchResult
from keras_attention.search._step_checks import Step
from keras_attention.search.options import LogitsProcessor, SearchOptions

__all__ = ["greedy_search"]


def greedy_search(
    step: Step,
    state: Nested,
    memory: Nested = None,
    *,
    start_token: int,
    end_token: int,
    max_length: int,
    min_length: Size = 0,
    no_repeat_ngram_size: int = 0,
    prefix: Tensor | None = None,
    limit: Size | None = None,
    logits_processors: Sequence[LogitsProcessor] = (),
) -> SearchResult:
    """Take the most probable token at every step.

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
        min_length, no_repeat_ngram_size, prefix, limit, logits_processors: see `beam_search`.

    Returns:
        `SearchResult` with tokens `(B, L)`, lengths `(B,)`, scores `(B,)`, weights `(B, L, Tk)` and
        log probabilities `(B, L)`.

    Raises:
        ValueError: as `beam_search`.

    Example:
        The memory of one sample is a table of p(next | last).

        >>> import numpy as np
        >>> from keras import ops
        >>> from keras_attention import greedy_search
        >>> table = np.array([[[0.1, 0.2, 0.7], [0.3, 0.4, 0.3], [0.1, 0.8, 0.1]]])
        >>> def step(tokens, state, memory):
        ...     row = ops.take_along_axis(memory, ops.reshape(tokens, (-1, 1, 1)), axis=1)
        ...     return ops.log(ops.squeeze(row, 1)), state, None
        >>> result = greedy_search(step, None, table, start_token=0, end_token=1, max_length=4)
        >>> ops.convert_to_numpy(result.tokens).tolist()
        [[2, 1, 1, 1]]
        >>> [round(p, 2) for p in np.exp(ops.convert_to_numpy(result.scores)).tolist()]
        [0.56]
    """
    shared = start_token, end_token, max_length, min_length, no_repeat_ngram_size, prefix, limit
    options = SearchOptions(*shared, logits_processors)

    def choose(search_step):
        _, logits, allowed, beams, _ = search_step
        best = peak = ops.max(allowed, axis=-1, keepdims=True, initial=-math.inf)
        if allowed is not logits:
            peak = ops.max(logits, axis=-1, keepdims=True, initial=-math.inf)
        log_probs = ops.squeeze(log_softmax_of(best, logits, peak), -1)
        tokens = ops.where(beams.active, ops.argmax(allowed, axis=-1), end_token)
        scores = ops.where(beams.active, clip_impossible(beams.totals + log_probs), beams.scores)
        return None, tokens, ops.where(beams.active, log_probs, 0.0), scores

    return run_search(step, state, memory, choose, options)
