"""The loop of greedy and beam search, over N = B K hypotheses in buffers of fixed size."""

import contextlib
import math
from collections.abc import Callable
from typing import NamedTuple

import keras
from keras import ops, tree

from keras_attention._typing import Nested, Tensor
from keras_attention.ops._samples import take_rows
from keras_attention.search._arguments import LONGEST, check_positive, check_step, check_token
from keras_attention.search._step import Step, batch_size, checked, named_leaves, pack

# The score of an impossible hypothesis: finite, so that it causes no NaN, and exact in float32.
IMPOSSIBLE = -(2.0**100)


class SearchResult(NamedTuple):
    """The sequences that a search found.

    Sizes: B samples, K beams, at most L tokens, Tk memory steps. A greedy search has no axis K.

    Attributes:
        tokens: int32, `(B, L)` or `(B, K, L)` with the best beam first. There is no start token;
            end tokens fill the rest of a sequence that has ended.
        lengths: int32, `(B,)` or `(B, K)`: the number of tokens, the end token included; L for a
            sequence that never ended.
        scores: float32, `(B,)` or `(B, K)`: the summed log probability of a greedy search, the
            length-normalised one of a beam search, in descending order.
        weights: `(B, L, Tk)` or `(B, K, L, Tk)`: the attention weights of the step that chose
            each token, zeros after the end; None if the step returns no weights.
    """

    tokens: Tensor
    lengths: Tensor
    scores: Tensor
    weights: Tensor | None


class _Beams(NamedTuple):
    """The N hypotheses. Every field has the leading axis N, so that one gather reorders them."""

    tokens: Tensor  # (N, L)
    origins: Tensor  # (N, L), the beam of the sample in which each token was computed
    last: Tensor  # (N,), the tokens chosen last
    lengths: Tensor  # (N,)
    totals: Tensor  # (N,), summed log probability; no longer used after the end
    scores: Tensor  # (N,), for ranking; fixed after the end
    living: Tensor  # (N,), boolean


# choose(logits, beams, t) -> (parents, tokens, totals, scores), each `(N,)`.
Choose = Callable[[Tensor, _Beams, Tensor], tuple[Tensor | None, Tensor, Tensor, Tensor]]


@contextlib.contextmanager
def without_gradients():
    """PyTorch stores every step for gradients unless told not to; others only if asked to."""
    if keras.backend.backend() != "torch":
        yield
        return
    import torch

    with torch.no_grad():
        yield


@without_gradients()
def run_search(
    step: Step,
    state: Nested,
    memory: Nested,
    choose: Choose,
    beam_width: int,
    start_token: int,
    end_token: int,
    max_length: int,
) -> SearchResult:
    """Runs the loop of both searches.

    Args:
        choose: returns the next N hypotheses: the beam of its sample that each continues (None if
            all continue their own), its new token, total and score. A hypothesis that has ended
            continues with the end token.
        step, state, memory, beam_width, start_token, end_token, max_length: see `beam_search`.

    Returns:
        The N hypotheses, with the leading axis N.
    """
    check_step(step)
    check_positive("max_length", max_length, LONGEST)
    check_token("start_token", start_token)
    check_token("end_token", end_token)
    state_names, leaves = named_leaves("state", state)
    memory_names, constants = named_leaves("memory", memory)
    batch = batch_size(state_names + memory_names, leaves + constants)
    if isinstance(batch, int) and batch == 0:
        # The loop needs a sample: search with one of zeros, and drop it from the results.
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
            beams, leaves = tree.map_structure(
                lambda x: _take_beams(x, parent, beam_width), (beams, leaves)
            )
            beams = beams._replace(
                origins=ops.where(now, ops.expand_dims(parent, -1), beams.origins)
            )
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
        # Weights stay where they were computed. After the loop, `origins` finds them.
        history = [
            ops.scatter_update(x, ops.reshape(t, (1, 1)), ops.expand_dims(weights, 0))
            for x in history
        ]
        return t + 1, beams, leaves, history

    order = ops.arange(count, dtype="int32")
    first = order % beam_width == 0  # before the first step, one hypothesis per sample lives
    zeros = ops.zeros((count,), dtype="float32")
    beams = _Beams(
        tokens=ops.full((count, max_length), end_token, dtype="int32"),
        origins=ops.tile(ops.expand_dims(order % beam_width, -1), (1, max_length)),
        last=ops.full((count,), start_token, dtype="int32"),
        lengths=ops.zeros((count,), dtype="int32"),
        totals=zeros,
        scores=ops.where(first, zeros, IMPOSSIBLE),
        living=first,
    )
    # The first step runs outside the loop, because its weights tell the width of the buffer.
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
    read = None
    if history:
        read = _take_history(history[0], beams.origins, beam_width)
        valid = ops.expand_dims(positions < ops.expand_dims(lengths, -1), -1)
        read = ops.where(valid, read, ops.zeros_like(read))
    return SearchResult(
        tokens=ops.where(ops.expand_dims(exists, -1), beams.tokens, end_token),
        lengths=lengths,
        scores=ops.where(exists, beams.scores, -math.inf),
        weights=read,
    )


def _take_beams(x, beam, width):
    """Takes from each sample of x, `(N, ...)`, the beams `(N,)`, which count from 0 to K - 1."""
    count, *sizes = ops.shape(x)
    samples = count // width, width
    found = take_rows(ops.reshape(x, (*samples, *sizes)), ops.reshape(beam, samples))
    return ops.reshape(found, (count, *sizes))


def _take_history(history, beam, width):
    """Takes from each step of the history, `(L, N, Tk)`, the beams `(N, L)`: `(N, L, Tk)`."""
    length, count, size = ops.shape(history)
    steps = ops.reshape(ops.transpose(history, (1, 0, 2)), (count // width, width * length, size))
    row = beam * length + ops.arange(length, dtype="int32")
    found = take_rows(steps, ops.reshape(row, (count // width, width * length)))
    return ops.reshape(found, (count, length, size))


def log_probs(values: Tensor, logits: Tensor) -> Tensor:
    """The log-softmax of the largest logits `values`, `(N, width)`, among all logits `(N, V)`."""
    # `ops.max`, because a slice of the result of `top_k` makes XLA sort the whole row.
    peak = ops.max(values, axis=-1, keepdims=True)
    return values - peak - ops.log(ops.sum(ops.exp(logits - peak), axis=-1, keepdims=True))


def possible(scores: Tensor) -> Tensor:
    """Replaces -inf (a forbidden token) and NaN (no token is allowed) by `IMPOSSIBLE`."""
    return ops.where(scores > IMPOSSIBLE, scores, IMPOSSIBLE)
