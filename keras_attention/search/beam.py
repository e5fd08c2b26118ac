"""Beam search."""

from collections.abc import Sequence

from keras import tree

from keras_attention._spec import check_choice, check_int, is_tensor, raise_value_error
from keras_attention._typing import Nested, Size, Tensor
from keras_attention.attention import Memory
from keras_attention.backend import ops
from keras_attention.search._decoding_loop import (
    IMPOSSIBLE,
    clip_impossible,
    length_factor,
    log_softmax_of,
    run_search,
)
from keras_attention.search._search_result import SearchResult
from keras_attention.search._step_checks import Step
from keras_attention.search._top_k import top_k
from keras_attention.search.options import (
    MAX_HYPOTHESES,
    LogitsProcessor,
    SearchOptions,
    check_option,
)

__all__ = ["beam_search"]

# The smallest coverage that counts. It keeps the logarithm finite.
FLOOR = 1e-10


def beam_search(
    step: Step,
    state: Nested,
    memory: Nested = None,
    *,
    start_token: int,
    end_token: int,
    max_length: int,
    beam_width: int = 5,
    length_penalty: float | Tensor = 1.0,
    coverage_penalty: float | Tensor = 0.0,
    coverage: str = "gnmt",
    memory_mask: Tensor | None = None,
    min_length: Size = 0,
    no_repeat_ngram_size: int = 0,
    prefix: Tensor | None = None,
    limit: Size | None = None,
    logits_processors: Sequence[LogitsProcessor] = (),
) -> SearchResult:
    """Keep the K best hypotheses at every step, ended and active ones together.

        score(y) = sum_t log p(y[t] | y[<t], x) / lp(len(y)) + coverage_penalty * cp(y)
        lp(n)    = ((5 + n) / 6) ** length_penalty
        c[j]     = sum_t weights[t, j]
        cp(y)    = sum_j log min(c[j], 1)                   coverage="gnmt"
        cp(y)    = -(sum_j max(c[j], 1) - |x|)              coverage="summary"

    "gnmt" punishes memory that was not read, "summary" memory that was read more than once. Neither
    is ever positive. The sums run over the |x| valid memory steps. "gnmt" counts a c[j]
    below 1e-10 as 1e-10.

    An active hypothesis proposes its V continuations. An ended hypothesis proposes itself, with the
    score it ended with. The K proposals with the best scores survive. The search stops when all
    beams of all samples have ended. If fewer than K sequences are possible, the surplus beams come
    last, with score -inf, length 0, only end tokens, and weights of zeros. If the logits are NaN,
    no sequence is possible: all beams of the sample are like that.

    On JAX, compile the search. Otherwise every call compiles its loop again. The compiled function
    stores the weights that the layers of `step` had at its first call:

        search = jax.jit(lambda state, memory: tuple(beam_search(step, state, memory, ...)))

    Sizes: B samples, K beams, V tokens in the vocabulary, at most L tokens, Tk memory steps. B and
    Tk may be dynamic.

    Args:
        step: `step(tokens, state, memory) -> (logits, state, weights)` for N = B K hypotheses; see
            `keras_attention.search`.
        state: the initial state, tensors `(B, ...)` in any nesting, or None. The search repeats it
            for the beams.
        memory: what every step reads, tensors `(B, ...)` in any nesting, or None. The search
            repeats it for the beams.
        start_token: the token that the first step receives.
        end_token: the token that ends a sequence, one of the V.
        max_length: L, the largest number of tokens, the end token included.
        beam_width: K, which may exceed V. A single beam is a greedy search.
        length_penalty: 0 ranks by the summed log probability, which favours short sequences; 1
            ranks almost by the mean.
        coverage_penalty: 0 turns it off. Otherwise `step` must return weights.
        coverage: "gnmt" or "summary", as above.
        memory_mask: `(B, Tk)`, boolean, True at the memory steps that the coverage penalty counts.
            It does not mask the attention: `step` does that. Defaults to the mask of `memory` if it
            is a `Memory`, otherwise to all steps.
        min_length: the smallest number of tokens, the end token included.
        no_repeat_ngram_size: n. No n tokens in a row occur twice in an output, its prefix included;
            0 allows repetition.
        prefix: `(B, P)`, integers: the tokens with which every output of a sample begins, after the
            start token. -1 leaves a position free. Use it to pad shorter prefixes. An id
            outside the vocabulary forbids every token. An end token
            ends the output there. Prefixes count in `max_length`, lengths and scores. Their tokens
            are exempt from `min_length` and `no_repeat_ngram_size`.
        limit: the search stops after this number of tokens, at most L, and the buffers keep the
            length L. In a compiled function it may be a scalar integer tensor, so that one
            compiled function serves all limits. A longer prefix is cut. None stands for L.
        logits_processors: functions `(logits, tokens, step) -> logits` that forbid tokens or change
            their logits, see `keras_attention.search`. They run after `min_length` and
            `no_repeat_ngram_size`, and the tokens of a prefix are exempt from them.

    `length_penalty`, `coverage_penalty` and `min_length` may be scalar tensors in the same way.
    `min_length`, `no_repeat_ngram_size` and `prefix` forbid tokens. An output with no token left
    scores -inf. The log probabilities of the other tokens do not change.

    Returns:
        `SearchResult` with tokens `(B, K, L)`, lengths `(B, K)`, scores `(B, K)`, weights
        `(B, K, L, Tk)` and log probabilities `(B, K, L)`.

    Raises:
        ValueError: an option is out of range; `prefix` or `memory_mask` has another form; state,
            memory, `prefix` and `memory_mask` hold no tensor, or differ in batch size; `step` takes
            or returns something else than `keras_attention.search` describes.

    Example:
        The memory of one sample is a table of p(next | last). Greedy search takes token 2, after
        which no token is likely.

        >>> import numpy as np
        >>> from keras import ops
        >>> from keras_attention.search import beam_search, greedy_search
        >>> table = np.array([[[0.05, 0.05, 0.5, 0.4], [0.25, 0.25, 0.25, 0.25],
        ...                    [0.05, 0.35, 0.3, 0.3], [0.01, 0.97, 0.01, 0.01]]])
        >>> def step(tokens, state, memory):
        ...     row = ops.take_along_axis(memory, ops.reshape(tokens, (-1, 1, 1)), axis=1)
        ...     return ops.log(ops.squeeze(row, 1)), state, None
        >>> tokens = dict(start_token=0, end_token=1, max_length=3)
        >>> ops.convert_to_numpy(greedy_search(step, None, table, **tokens).tokens).tolist()
        [[2, 1, 1]]
        >>> result = beam_search(step, None, table, beam_width=2, length_penalty=0.0, **tokens)
        >>> ops.convert_to_numpy(result.tokens).tolist()
        [[[3, 1, 1], [2, 1, 1]]]
        >>> [round(p, 3) for p in np.exp(ops.convert_to_numpy(result.scores))[0].tolist()]
        [0.388, 0.175]

    Reference: https://arxiv.org/abs/1609.08144, equation 14, and the summary penalty of OpenNMT
    (https://arxiv.org/abs/1808.10792, section 4.1, with a sign). Unlike in the first, ended
    hypotheses stay in the beam, and nothing is pruned by a threshold.
    """
    check_int("beam_search", "beam_width", beam_width, 1, MAX_HYPOTHESES)
    shared = start_token, end_token, max_length, min_length, no_repeat_ngram_size, prefix, limit
    options = SearchOptions(*shared, logits_processors)
    length_penalty = check_option("beam_search", "length_penalty", length_penalty)
    coverage_penalty = check_option("beam_search", "coverage_penalty", coverage_penalty)
    covers = not isinstance(coverage_penalty, float) or coverage_penalty > 0
    check_choice("beam_search", "coverage", coverage, ("gnmt", "summary"))
    if memory_mask is None and covers and isinstance(memory, Memory):
        memory_mask = None if tree.is_nested(memory.mask) else memory.mask
    if memory_mask is not None:
        if not is_tensor(memory_mask, "bool", None, None):
            expected = "`memory_mask` must be boolean (batch, memory steps), True where it is valid"
            raise_value_error("beam_search", expected, memory_mask)
        memory_mask = ops.convert_to_tensor(memory_mask)

    def choose(search_step):
        logits, allowed, beams = search_step.logits, search_step.allowed, search_step.beams
        # The K best continuations overall are among the K best of each hypothesis.
        width = min(beam_width, logits.shape[-1])
        values, tokens = top_k(allowed, width)  # (N, width)
        peak = ops.max(values if allowed is logits else logits, -1, keepdims=True)
        log_probs = log_softmax_of(values, logits, peak)
        totals = ops.expand_dims(beams.totals, -1) + log_probs
        scores = totals / length_factor(ops.cast(search_step.t + 1, "float32"), length_penalty)
        if covers:
            covered = _coverage_score(coverage, beams.coverage[0], search_step.memory_mask)
            scores = scores + coverage_penalty * ops.expand_dims(covered, -1)

        active = ops.expand_dims(beams.active, -1)
        ended = ops.expand_dims(beams.scores, -1)
        itself = ops.where(ops.arange(width) == 0, ended, IMPOSSIBLE)
        scores = ops.where(active, clip_impossible(scores), itself)
        tokens = ops.where(active, tokens, end_token)
        log_probs = ops.where(active, log_probs, 0.0)

        candidates = beam_width * width
        scores, index = ops.top_k(ops.reshape(scores, (-1, candidates)), beam_width)  # (B, K)
        index = ops.cast(index, "int32")
        tokens, log_probs = (
            ops.take_along_axis(ops.reshape(x, (-1, candidates)), index, axis=1)
            for x in (tokens, log_probs)
        )
        chosen = index // width, tokens, log_probs, scores
        return tuple(ops.reshape(x, (-1,)) for x in chosen)

    return run_search(
        step,
        state,
        memory,
        choose,
        options,
        beam_width,
        memory_mask=memory_mask,
        needs_coverage=covers,
    )


def _coverage_score(kind, coverage, mask):
    """Return the coverage terms `(N,)` of the summed weights `(N, Tk)`."""
    if kind == "gnmt":
        terms = ops.log(ops.clip(coverage, FLOOR, 1.0))
    else:
        terms = 1.0 - ops.maximum(coverage, 1.0)
    return ops.sum(terms if mask is None else ops.where(mask, terms, 0.0), axis=-1)
