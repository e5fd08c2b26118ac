"""The loop of all searches, over N = B K hypotheses in buffers of fixed size."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from keras import ops, tree

from keras_attention._typing import Nested, Tensor
from keras_attention.ops.gradients import without_gradients
from keras_attention.ops.loops import pack_like
from keras_attention.ops.samples import take_rows
from keras_attention.search._coverage import check_width, summed
from keras_attention.search._result import SearchResult
from keras_attention.search._step import Step, batch_size, check_step, checked, named_leaves
from keras_attention.search.limits import Limits

# The score of an impossible hypothesis: finite, so that it causes no NaN, and exact in float32.
IMPOSSIBLE = -(2.0**100)


class _Beams(NamedTuple):
    """The N hypotheses. Every field has the leading axis N, so that one gather reorders them."""

    tokens: Tensor  # (N, L)
    origins: Tensor  # (N, L), the beam of the sample in which each token was computed
    last: Tensor  # (N,), the tokens chosen last
    lengths: Tensor  # (N,)
    log_probs: Tensor  # (N, L), of the tokens
    totals: Tensor  # (N,), summed log probability
    scores: Tensor  # (N,), for ranking; fixed after the end
    living: Tensor  # (N,), boolean
    read: list[Tensor]  # [(N, Tk)], summed weights, or [] if nobody asks for them


class Moment(NamedTuple):
    """What a search knows when it chooses the tokens of a step."""

    t: Tensor  # (), counts from 0
    logits: Tensor  # (N, V), float32
    allowed: Tensor  # (N, V), the same, with -inf where a rule forbids the token
    beams: _Beams  # before the choice; `read` includes this step
    memory_mask: Tensor | None  # (N, Tk)


# choose(moment) -> (parents, tokens, log probabilities of the tokens, scores), each `(N,)`.
Choose = Callable[[Moment], tuple[Tensor | None, Tensor, Tensor, Tensor]]


@without_gradients()
def run_search(
    step: Step,
    state: Nested,
    memory: Nested,
    choose: Choose,
    limits: Limits,
    beam_width: int = 1,
    *,
    memory_mask: Tensor | None = None,
    sums_weights: bool = False,
    independent: bool = False,
) -> SearchResult:
    """Runs the loop of all searches.

    Args:
        choose: returns the next N hypotheses: the beam of its sample that each continues (None if
            all continue their own), its new token, the log probability of the token, and its score.
            A hypothesis that has ended continues with the end token.
        step, state, memory, beam_width, memory_mask: see `beam_search`.
        limits: checked.
        sums_weights: whether `choose` needs the summed weights of each hypothesis.
        independent: whether all K hypotheses of a sample live from the start. Otherwise one does.

    Returns:
        The N hypotheses, with the leading axis N.
    """
    check_step(step)
    state_names, leaves = named_leaves("state", state)
    memory_names, constants = named_leaves("memory", memory)
    given = {"prefix": limits.prefix, "memory_mask": memory_mask}
    given = {name: x for name, x in given.items() if x is not None}
    names, tensors = [*state_names, *memory_names, *given], [*leaves, *constants, *given.values()]
    batch = batch_size(names, tensors)
    if isinstance(batch, int) and batch == 0:
        # The loop needs a sample: search with one of zeros, and drop it from the results.
        one = {
            name: ops.zeros((1, *x.shape[1:]), x.dtype)
            for name, x in zip(names, tensors, strict=True)
        }
        found = run_search(
            step,
            pack_like(state, [one[name] for name in state_names]),
            pack_like(memory, [one[name] for name in memory_names]),
            choose,
            limits._replace(prefix=one.get("prefix")),
            beam_width,
            memory_mask=one.get("memory_mask"),
            sums_weights=sums_weights,
            independent=independent,
        )
        return tree.map_structure(lambda x: x if x is None else x[:0], found)
    if not sums_weights:
        given.pop("memory_mask", None)
    count, max_length, end_token = batch * beam_width, limits.max_length, limits.end_token
    if beam_width > 1:
        leaves = [ops.repeat(x, beam_width, axis=0) for x in leaves]
        constants = [ops.repeat(x, beam_width, axis=0) for x in constants]
        given = {name: ops.repeat(x, beam_width, axis=0) for name, x in given.items()}
    memory = pack_like(memory, constants)
    rules = limits.rules(given.get("prefix"))
    positions = ops.arange(max_length, dtype="int32")

    def advance(t, beams, leaves):
        outputs = step(beams.last, pack_like(state, leaves), memory)
        logits, leaves, weights = checked(outputs, beams.last, state_names, leaves, end_token)
        check_width(memory_mask, weights)
        logits = allowed = ops.cast(logits, "float32")
        for rule in rules:
            allowed = rule(allowed, beams.tokens, t)
        if sums_weights:
            beams = beams._replace(read=[summed(weights, beams.read)])
        moment = Moment(t, logits, allowed, beams, given.get("memory_mask"))
        parent, last, gains, scores = choose(moment)
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
            log_probs=ops.where(now, ops.expand_dims(gains, -1), beams.log_probs),
            totals=beams.totals + gains,
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
    first = independent | (order % beam_width == 0)  # who lives before the first step
    zeros = ops.zeros((count,), dtype="float32")
    beams = _Beams(
        tokens=ops.full((count, max_length), end_token, dtype="int32"),
        origins=ops.tile(ops.expand_dims(order % beam_width, -1), (1, max_length)),
        last=ops.full((count,), limits.start_token, dtype="int32"),
        lengths=ops.zeros((count,), dtype="int32"),
        log_probs=ops.zeros((count, max_length), dtype="float32"),
        totals=zeros,
        scores=ops.where(first, zeros, IMPOSSIBLE),
        living=first,
        read=[],
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
    valid = positions < ops.expand_dims(lengths, -1)
    weights = None
    if history:
        weights = _take_history(history[0], beams.origins, beam_width)
        weights = ops.where(ops.expand_dims(valid, -1), weights, ops.zeros_like(weights))
    return SearchResult(
        tokens=ops.where(ops.expand_dims(exists, -1), beams.tokens, end_token),
        lengths=lengths,
        scores=ops.where(exists, beams.scores, -math.inf),
        weights=weights,
        log_probs=ops.where(valid, beams.log_probs, 0.0),
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


def log_probs(values: Tensor, logits: Tensor, peak: Tensor) -> Tensor:
    """The log-softmax of some logits `values`, `(N, width)`, among all logits `(N, V)`.

    `peak`, `(N, 1)`, is the largest logit. Take it with `ops.max`, because a slice of the result of
    `top_k` makes XLA sort the whole row.
    """
    return values - peak - ops.log(ops.sum(ops.exp(logits - peak), axis=-1, keepdims=True))


def length_factor(lengths: Any, length_penalty: float) -> Any:
    """The divisor of the summed log probability of an output with `lengths` tokens."""
    return ((5 + lengths) / 6) ** length_penalty


def possible(scores: Tensor) -> Tensor:
    """Replaces -inf (a forbidden token) and NaN (no token is allowed) by `IMPOSSIBLE`."""
    return ops.where(scores > IMPOSSIBLE, scores, IMPOSSIBLE)
