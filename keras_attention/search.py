"""Greedy and beam search over any step function, with buffers of fixed size.

Both run eagerly, in `tf.function` with or without `jit_compile`, in `jax.jit`, and exported.
The decoder is a function `step(tokens, state, memory) -> (logits, state, weights)`; what each of
them is, the module `keras_attention.step` says.
"""

import math
import numbers
from typing import Any, NamedTuple

from keras import ops, tree

from keras_attention.step import batch_size, checked, named_leaves, pack

# The score of what cannot exist: finite, so that no NaN comes of it, and exact in float32.
_IMPOSSIBLE = -(2.0**100)


class SearchResult(NamedTuple):
    """What a search found, for B samples, K beams, at most L tokens and Tk memory steps.

    Attributes:
        tokens: int32, greedy `(B, L)`, beam `(B, K, L)` with the best first; without the start
            token, filled with the end token after the end.
        lengths: int32, `(B,)` or `(B, K)`: the number of tokens, the end token included; L where
            the end token never came.
        scores: float32, greedy `(B,)`, the summed log probability; beam `(B, K)`, the
            length-normalised one, descending.
        alignments: `(B, L, Tk)` or `(B, K, L, Tk)`, the weights read when each token was chosen,
            zeros after the end; None if the step returns no weights.
    """

    tokens: Any
    lengths: Any
    scores: Any
    alignments: Any


class _Beams(NamedTuple):
    """The N hypotheses. Every field has the leading axis N, so that one gather reorders them."""

    tokens: Any  # (N, L)
    rows: Any  # (N, L), the row of the batch in which each token's step was computed
    last: Any  # (N,)
    lengths: Any  # (N,)
    totals: Any  # (N,), summed log probability; has no meaning once a beam has ended
    scores: Any  # (N,), what ranks them; stays once a beam has ended
    living: Any  # (N,)


def greedy_search(step, state, memory=None, *, start_token, end_token, max_length):
    """Take the most probable token at every step.

        y[t]     = argmax_v log p(v | y[<t], x)
        score(y) = sum_t log p(y[t] | y[<t], x)

    Stops as soon as all samples have ended. Where a step allows no token, the sample has the score
    -inf, length 0, nothing but end tokens, and alignments of zeros.

    Args:
        step, state, memory, start_token, end_token, max_length: as in `beam_search`; N = B.

    Returns:
        `SearchResult`: tokens `(B, L)`, lengths `(B,)`, scores `(B,)`, alignments `(B, L, Tk)`.

    Raises:
        ValueError: as in `beam_search`.
    """

    def choose(logits, beams, t):
        values, tokens = ops.top_k(logits, 1)  # (N, 1)
        tokens = ops.where(beams.living, ops.squeeze(tokens, -1), end_token)
        totals = _possible(beams.totals + ops.squeeze(_log_probs(values, logits), -1))
        totals = ops.where(beams.living, totals, beams.totals)
        return None, tokens, totals, totals

    return _search(step, state, memory, choose, 1, start_token, end_token, max_length)


def beam_search(
    step,
    state,
    memory=None,
    *,
    start_token,
    end_token,
    max_length,
    beam_width=5,
    length_penalty=1.0,
):
    """Keep the K best hypotheses at every step, ended and living together.

        lp(n)    = ((5 + n) / 6) ** length_penalty
        score(y) = sum_t log p(y[t] | y[<t], x) / lp(len(y))

    Sizes: B samples, K beams, V tokens in the vocabulary, at most L tokens, Tk memory steps. B and
    Tk may be dynamic. A living hypothesis proposes its V continuations, an ended one itself with
    the score it ended with, and the K best scores survive. Stops as soon as all beams of all
    samples have ended. Where fewer than K sequences are possible, the surplus beams come last, with
    score -inf, length 0, nothing but end tokens, and alignments of zeros.

    Args:
        step: `step(tokens, state, memory) -> (logits, state, weights)`, N = B K; what each of them
            is, `keras_attention.step` says.
        state: the initial state, leaves `(B, ...)`, or None. The search repeats it for the beams.
        memory: constant over the steps, leaves `(B, ...)`, or None. Repeated likewise.
        start_token: the token fed to the first step.
        end_token: the token that ends a sequence, one of the V.
        max_length: L, the largest number of tokens, the end token included.
        beam_width: K; may exceed V. One beam searches greedily.
        length_penalty: 0 ranks by the sum, which favours short sequences; 1 almost by the mean.

    Returns:
        `SearchResult`: tokens `(B, K, L)`, lengths `(B, K)`, scores `(B, K)`, alignments
        `(B, K, L, Tk)`.

    Raises:
        ValueError: a token, `max_length`, `beam_width` or `length_penalty` is out of range; state
            and memory hold no tensor, or batch sizes that differ; `step` returns anything but what
            that module says.

    Example:
        One sample; its memory is a table of p(next | last). Greedy search takes token 2, after
        which nothing is likely.

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
    _check_positive("beam_width", beam_width)
    _check_positive("max_length", max_length)
    if not isinstance(length_penalty, numbers.Real) or not 0 <= length_penalty < math.inf:
        raise ValueError(
            f"length_penalty={length_penalty!r} must be a finite number, 0 or more; 0 turns it off."
        )
    penalties = [((5 + n) / 6) ** length_penalty for n in range(1, max_length + 1)]

    def choose(logits, beams, t):
        # The K best continuations of all are among the K best of each.
        width = min(beam_width, logits.shape[-1])
        values, tokens = ops.top_k(logits, width)  # (N, width)
        totals = ops.expand_dims(beams.totals, -1) + _log_probs(values, logits)
        scores = totals / ops.take(ops.convert_to_tensor(penalties, dtype="float32"), t)

        living = ops.expand_dims(beams.living, -1)
        itself = ops.where(ops.arange(width) == 0, ops.expand_dims(beams.scores, -1), _IMPOSSIBLE)
        scores = ops.where(living, _possible(scores), itself)
        tokens = ops.where(living, tokens, end_token)

        candidates = beam_width * width
        scores, index = ops.top_k(ops.reshape(scores, (-1, candidates)), beam_width)  # (B, K)
        offset = candidates * ops.arange(ops.shape(index)[0], dtype="int32")
        index = ops.reshape(ops.cast(index, "int32") + ops.expand_dims(offset, -1), (-1,))
        tokens, totals = (ops.take(ops.reshape(x, (-1,)), index) for x in (tokens, totals))
        return index // width, tokens, totals, ops.reshape(scores, (-1,))

    found = _search(step, state, memory, choose, beam_width, start_token, end_token, max_length)
    return tree.map_structure(
        lambda x: x if x is None else ops.reshape(x, (-1, beam_width, *ops.shape(x)[1:])), found
    )


def _search(step, state, memory, choose, beam_width, start_token, end_token, max_length):
    """The loop of both searches, over N = B K hypotheses.

    `choose(logits, beams, t)` returns, for each of the next N hypotheses, the row it continues
    (None for all: its own), its new token, total and score. Where it continues a hypothesis that
    does not live, the token is the end token.
    """
    _check_positive("max_length", max_length)
    for name, token in (("start_token", start_token), ("end_token", end_token)):
        if not _is_integer(token) or token < 0:
            raise ValueError(f"{name}={token!r} must be the index of a token, an integer >= 0.")
    state_names, leaves = named_leaves("state", state)
    memory_names, constants = named_leaves("memory", memory)
    count = batch_size(state_names + memory_names, leaves + constants) * beam_width
    if beam_width > 1:
        leaves = [ops.repeat(x, beam_width, axis=0) for x in leaves]
        constants = [ops.repeat(x, beam_width, axis=0) for x in constants]
    memory = pack(memory, constants)
    positions = ops.arange(max_length, dtype="int32")

    def advance(t, beams, leaves):
        outputs = step(beams.last, pack(state, leaves), memory)
        logits, leaves, weights = checked(outputs, beams.last, state_names, leaves, end_token)
        parent, last, totals, scores = choose(ops.cast(logits, "float32"), beams, t)
        now = positions == t
        if parent is not None:
            beams, leaves = tree.map_structure(lambda x: ops.take(x, parent, 0), (beams, leaves))
            beams = beams._replace(rows=ops.where(now, ops.expand_dims(parent, -1), beams.rows))
        last = ops.cast(last, "int32")
        beams = beams._replace(
            tokens=ops.where(now, ops.expand_dims(last, -1), beams.tokens),
            last=last,
            lengths=beams.lengths + ops.cast(beams.living, "int32"),
            totals=totals,
            scores=scores,
            living=(last != end_token) & (scores != _IMPOSSIBLE),
        )
        return beams, leaves, weights

    def body(t, beams, leaves, history):
        beams, leaves, weights = advance(t, beams, leaves)
        # Weights stay in the row that computed them; `rows` finds them again after the loop.
        history = [
            ops.scatter_update(x, ops.reshape(t, (1, 1)), ops.expand_dims(weights, 0))
            for x in history
        ]
        return t + 1, beams, leaves, history

    order = ops.arange(count, dtype="int32")
    first = order % beam_width == 0  # before the first step one hypothesis per sample lives
    zeros = ops.zeros((count,), dtype="float32")
    beams = _Beams(
        tokens=ops.full((count, max_length), end_token, dtype="int32"),
        rows=ops.tile(ops.expand_dims(order, -1), (1, max_length)),
        last=ops.full((count,), start_token, dtype="int32"),
        lengths=ops.zeros((count,), dtype="int32"),
        totals=zeros,
        scores=ops.where(first, zeros, _IMPOSSIBLE),
        living=first,
    )
    # The first step runs outside the loop, since its weights say how wide the buffer must be.
    t = ops.convert_to_tensor(0, dtype="int32")
    beams, leaves, weights = advance(t, beams, leaves)
    history = []
    if weights is not None:
        history = [ops.pad(ops.expand_dims(weights, 0), ((0, max_length - 1), (0, 0), (0, 0)))]
    _, beams, _, history = ops.while_loop(
        lambda t, beams, leaves, history: ops.any(beams.living),
        body,
        (t + 1, beams, leaves, history),
        maximum_iterations=max_length - 1,
    )

    exists = beams.scores != _IMPOSSIBLE
    lengths = ops.where(exists, beams.lengths, 0)
    alignments = None
    if history:
        steps = ops.reshape(history[0], (max_length * count, ops.shape(weights)[-1]))
        alignments = ops.take(steps, positions * count + beams.rows, axis=0)  # (N, L, Tk)
        valid = ops.expand_dims(positions < ops.expand_dims(lengths, -1), -1)
        alignments = ops.where(valid, alignments, ops.zeros_like(alignments))
    return SearchResult(
        tokens=ops.where(ops.expand_dims(exists, -1), beams.tokens, end_token),
        lengths=lengths,
        scores=ops.where(exists, beams.scores, -math.inf),
        alignments=alignments,
    )


def _log_probs(values, logits):
    """Log-softmax of the largest logits, `(N, width)`, in descending order."""
    peak = values[:, :1]
    return values - peak - ops.log(ops.sum(ops.exp(logits - peak), axis=-1, keepdims=True))


def _possible(scores):
    """-inf, a forbidden token, and NaN, no allowed token at all, become the finite floor."""
    return ops.where(scores > _IMPOSSIBLE, scores, _IMPOSSIBLE)


def _is_integer(x):
    return isinstance(x, numbers.Integral) and not isinstance(x, bool)


def _check_positive(name, value):
    if not _is_integer(value) or value < 1:
        raise ValueError(f"{name}={value!r} must be a positive integer, and a Python one.")
