"""Beam search."""

import numbers

from keras import ops, tree

from keras_attention._typing import Nested
from keras_attention.search._arguments import LARGEST_PENALTY, LONGEST, WIDEST, check_positive
from keras_attention.search._largest import largest
from keras_attention.search._loop import IMPOSSIBLE, SearchResult, log_probs, possible, run_search
from keras_attention.search._step import Step

__all__ = ["beam_search"]


def beam_search(
    step: Step,
    state: Nested,
    memory: Nested = None,
    *,
    start_token: int,
    end_token: int,
    max_length: int,
    beam_width: int = 5,
    length_penalty: float = 1.0,
) -> SearchResult:
    """Keeps the K best hypotheses at every step, ended and living ones together.

        lp(n)    = ((5 + n) / 6) ** length_penalty
        score(y) = sum_t log p(y[t] | y[<t], x) / lp(len(y))

    A living hypothesis proposes its V continuations. An ended hypothesis proposes itself, with the
    score it ended with. The K proposals with the best scores survive. The search stops when all
    beams of all samples have ended. If fewer than K sequences are possible, the surplus beams come
    last, with score -inf, length 0, only end tokens, and weights of zeros.

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

    Returns:
        `SearchResult` with tokens `(B, K, L)`, lengths `(B, K)`, scores `(B, K)` and weights
        `(B, K, L, Tk)`.

    Raises:
        ValueError: a token, `max_length`, `beam_width` or `length_penalty` is out of range; state
            and memory hold no tensor, or differ in batch size; `step` takes or returns something
            else than `keras_attention.search` describes.

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
        >>> found = beam_search(step, None, table, beam_width=2, length_penalty=0.0, **tokens)
        >>> ops.convert_to_numpy(found.tokens).tolist()
        [[[3, 1, 1], [2, 1, 1]]]
        >>> [round(p, 3) for p in np.exp(ops.convert_to_numpy(found.scores))[0].tolist()]
        [0.388, 0.175]

    Reference: https://arxiv.org/abs/1609.08144, equation 14 without the coverage penalty. Unlike
    there, ended hypotheses stay in the beam, and nothing is pruned by a threshold.
    """
    check_positive("beam_width", beam_width, WIDEST)
    check_positive("max_length", max_length, LONGEST)
    number = isinstance(length_penalty, numbers.Real) and not isinstance(length_penalty, bool)
    if not number or not 0 <= length_penalty <= LARGEST_PENALTY:
        raise ValueError(
            f"length_penalty={length_penalty!r} must be a finite number, 0 or more, and at most "
            f"{LARGEST_PENALTY}; 0 turns the penalty off."
        )
    penalties = [((5 + n) / 6) ** length_penalty for n in range(1, max_length + 1)]

    def choose(logits, beams, t):
        # The K best continuations overall are among the K best of each hypothesis.
        width = min(beam_width, logits.shape[-1])
        values, tokens = largest(logits, width)  # (N, width)
        totals = ops.expand_dims(beams.totals, -1) + log_probs(values, logits)
        scores = totals / ops.take(ops.convert_to_tensor(penalties, dtype="float32"), t)

        living = ops.expand_dims(beams.living, -1)
        itself = ops.where(ops.arange(width) == 0, ops.expand_dims(beams.scores, -1), IMPOSSIBLE)
        scores = ops.where(living, possible(scores), itself)
        tokens = ops.where(living, tokens, end_token)

        candidates = beam_width * width
        scores, index = ops.top_k(ops.reshape(scores, (-1, candidates)), beam_width)  # (B, K)
        index = ops.cast(index, "int32")
        tokens, totals = (
            ops.take_along_axis(ops.reshape(x, (-1, candidates)), index, axis=1)
            for x in (tokens, totals)
        )
        chosen = index // width, tokens, totals, scores
        return tuple(ops.reshape(x, (-1,)) for x in chosen)

    found = run_search(step, state, memory, choose, beam_width, start_token, end_token, max_length)

    def by_sample(x):
        count, *sizes = ops.shape(x)
        return ops.reshape(x, (count // beam_width, beam_width, *sizes))

    return tree.map_structure(lambda x: x if x is None else by_sample(x), found)
