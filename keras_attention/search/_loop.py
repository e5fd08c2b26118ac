"""The loop that greedy and beam search share, over N = B K hypotheses in buffers of fixed size."""

import math
from typing import Any, NamedTuple

from keras import ops, tree

from keras_attention._checks import is_integer
from keras_attention.search._checks import (
    LAST_TOKEN,
    LONGEST,
    as_python,
    check_positive,
    check_step,
)
from keras_attention.search._step import batch_size, checked, named_leaves, pack

# The score of what cannot exist: finite, so that it makes no NaN, and exact in float32.
IMPOSSIBLE = -(2.0**100)


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


def run_search(step, state, memory, choose, beam_width, start_token, end_token, max_length):
    """The loop of both searches, over N = B K hypotheses.

    `choose(logits, beams, t)` returns, for each of the next N hypotheses, the row it continues
    (None for all: its own), its new token, total and score. Where it continues a hypothesis that
    does not live, the token is the end token.
    """
    check_step(step)
    check_positive("max_length", max_length, LONGEST)
    for name, token in (("start_token", start_token), ("end_token", end_token)):
        if not is_integer(token) or not 0 <= token <= LAST_TOKEN:
            lookup = " Look it up in the vocabulary." if isinstance(token, str) else ""
            raise ValueError(
                f"{name}={token!r:.80} must be the index of a token, an integer from 0 to "
                f"{LAST_TOKEN}.{lookup or as_python(name, token)}"
            )
    state_names, leaves = named_leaves("state", state)
    memory_names, constants = named_leaves("memory", memory)
    batch = batch_size(state_names + memory_names, leaves + constants)
    if isinstance(batch, int) and batch == 0:
        # A loop needs a sample: search for one of zeros, and leave it out of the results.
        one = [ops.zeros((1, *x.shape[1:]), x.dtype) for x in leaves + constants]
        state, memory = pack(state, one[: len(leaves)]), pack(memory, one[len(leaves) :])
        found = run_search(
            step, state, memory, choose, beam_width, start_token, end_token, max_length
        )
        return tree.map_structure(lambda x: x if x is None else x[:0], found)
    count = batch * beam_width
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
            living=(last != end_token) & (scores != IMPOSSIBLE),
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
        scores=ops.where(first, zeros, IMPOSSIBLE),
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

    exists = beams.scores != IMPOSSIBLE
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


def log_probs(values, logits):
    """Log-softmax of the largest logits, `(N, width)`."""
    # A slice of the result of `top_k` would make XLA sort the whole vocabulary.
    peak = ops.max(logits, axis=-1, keepdims=True, initial=-math.inf)
    return values - peak - ops.log(ops.sum(ops.exp(logits - peak), axis=-1, keepdims=True))


def possible(scores):
    """Replaces -inf (a forbidden token) and NaN (no allowed token at all) by the finite floor."""
    return ops.where(scores > IMPOSSIBLE, scores, IMPOSSIBLE)
