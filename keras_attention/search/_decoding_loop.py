"""The loop of all searches, over N = B K hypotheses in buffers of fixed size."""

from collections.abc import Callable
from typing import Any, NamedTuple

from keras import tree

from keras_attention._typing import Nested, Size, Tensor
from keras_attention.backend import gather_rows, leaves, no_grad, ops, tree_map, unflatten_as
from keras_attention.search._result import SearchResult, by_sample, cleared
from keras_attention.search._step import (
    Step,
    batch_size,
    check_logits,
    check_outputs,
    check_step,
    check_weights,
    leaves_of,
    named_leaves,
)
from keras_attention.search.logits_processors import Limits

SQUEEZE = "Squeeze the time axis, if there is one."
# The score of an impossible hypothesis: finite, so that it causes no NaN, and exact in float32.
IMPOSSIBLE = -(2.0**100)


class _Beams(NamedTuple):
    """The N hypotheses. Every field has the leading axis N, so that one gather reorders them."""

    tokens: Tensor  # (N, L)
    back_pointers: Tensor  # (N, L), the beam of the sample in which each token was computed
    last: Tensor  # (N,), the tokens chosen last
    lengths: Tensor  # (N,)
    log_probs: Tensor  # (N, L), of the tokens
    totals: Tensor  # (N,), summed log probability
    scores: Tensor  # (N,), for ranking; fixed after the end
    active: Tensor  # (N,), boolean
    read: list[Tensor]  # [(N, Tk)], summed weights, or [] if nobody asks for them


class SearchStep(NamedTuple):
    """What a search knows when it chooses the tokens of a step."""

    t: Tensor  # (), counts from 0
    logits: Tensor  # (N, V), float32
    allowed: Tensor  # (N, V), the same, with -inf where a rule forbids the token
    beams: _Beams  # before the choice; `read` includes this step
    memory_mask: Tensor | None  # (N, Tk)


# choose(moment) -> (parents, tokens, log probabilities of the tokens, scores), each `(N,)`.
Choose = Callable[[SearchStep], tuple[Tensor | None, Tensor, Tensor, Tensor]]


@no_grad()
def run_search(
    step: Step,
    state: Nested,
    memory: Nested,
    choose: Choose,
    limits: Limits,
    beam_width: int | None = None,
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
        sums_weights: whether `choose` needs the summed weights of each hypothesis.
        independent: whether all K hypotheses of a sample live from the start. Otherwise one does.

    Returns:
        The hypotheses `(B, K, ...)`, or `(B, ...)` for a beam_width of None.
    """
    check_step(step)
    width = 1 if beam_width is None else beam_width
    masks = {"prefix": limits.prefix, "memory_mask": memory_mask}
    masks = {name: x for name, x in masks.items() if x is not None}
    named = named_leaves("state", state), named_leaves("memory", memory), masks
    batch = batch_size({name: x for one in named for name, x in one.items()})
    empty = isinstance(batch, int) and batch == 0
    if empty:  # The loop needs a sample: search with one of zeros, and drop it from the results.
        batch, named = 1, _mapped(lambda x: ops.zeros((1, *x.shape[1:]), x.dtype), named)
    if width > 1:
        named = _mapped(lambda x: ops.repeat(x, width, axis=0), named)
    before, constants, masks = named
    memory = unflatten_as(memory, list(constants.values()))
    count, max_length, end_token = batch * width, limits.max_length, limits.end_token
    rules = limits.rules(masks.get("prefix"))
    positions = ops.arange(max_length, dtype="int32")
    nesting = []

    def advance(t, carry):
        beams, carried = carry
        outputs = step(beams.last, unflatten_as(state, carried), memory)
        rows = "float", beams.last.shape[0], None
        check_outputs(outputs, {"logits": rows, "state": None, "weights": rows}, SQUEEZE)
        logits, new, weights = outputs
        check_logits(logits, end_token)
        check_weights(weights, memory_mask, sums_weights)
        carried = leaves_of(new, before)
        logits = allowed = ops.cast(logits, "float32")
        for rule in rules:
            allowed = rule(allowed, beams.tokens, t)
        if sums_weights:
            read = ops.cast(weights, "float32")
            beams = beams._replace(read=[x + read for x in beams.read] or [read])
        search_step = SearchStep(t, logits, allowed, beams, masks.get("memory_mask"))
        parent, last, gains, scores = choose(search_step)
        now = positions == t
        if parent is not None:
            beams, carried = tree.map_structure(
                lambda x: _take_beams(x, parent, width), (beams, carried)
            )
            beams = beams._replace(
                back_pointers=ops.where(now, ops.expand_dims(parent, -1), beams.back_pointers)
            )
        last = ops.cast(last, "int32")
        beams = beams._replace(
            tokens=ops.where(now, ops.expand_dims(last, -1), beams.tokens),
            last=last,
            lengths=beams.lengths + ops.cast(beams.active, "int32"),
            log_probs=ops.where(now, ops.expand_dims(gains, -1), beams.log_probs),
            totals=beams.totals + gains,
            scores=scores,
            active=(last != end_token) & (scores != IMPOSSIBLE),
        )
        # Weights stay where they were computed. After the loop, `back_pointers` finds them.
        nesting[:] = [weights]
        return (beams, carried), leaves(weights)

    order = ops.arange(count, dtype="int32")
    first = independent | (order % width == 0)  # who lives before the first step
    zeros = ops.zeros((count,), dtype="float32")
    beams = _Beams(
        tokens=ops.full((count, max_length), end_token, dtype="int32"),
        back_pointers=ops.tile(ops.expand_dims(order % width, -1), (1, max_length)),
        last=ops.full((count,), limits.start_token, dtype="int32"),
        lengths=ops.zeros((count,), dtype="int32"),
        log_probs=ops.zeros((count, max_length), dtype="float32"),
        totals=zeros,
        scores=ops.where(first, zeros, IMPOSSIBLE),
        active=first,
        read=[],
    )
    carry = beams, list(before.values())
    (beams, _), history = run_steps(
        advance, carry, max_length, lambda carry: carry[0].active, limits.limit
    )
    weights = [_take_history(x, beams.back_pointers, width) for x in history]
    weights = unflatten_as(nesting[0], weights)
    result = SearchResult(beams.tokens, beams.lengths, beams.scores, weights, beams.log_probs)
    result = cleared(result, beams.scores != IMPOSSIBLE, end_token)
    result = result if beam_width is None else by_sample(result, width)
    return tree_map(lambda x: x[:0], result) if empty else result


def run_steps(
    advance: Callable, carry: Nested, most: int, active: Callable, limit: Size | None = None
) -> tuple[Nested, list[Tensor]]:
    """Calls `carry, outputs = advance(t, carry)` while any of `active(carry)` is True.

    Args:
        advance: a function of one step, whose outputs are a list of tensors.
        carry: what changes from step to step, any nesting of tensors.
        most: the length of the buffers, L.
        active: a function from the carry to booleans.
        limit: the largest number of steps, at most L; L if it is None.

    Returns:
        The last carry, and the outputs `(L, ...)`, zeros where no step ran.
    """

    def body(t, carry, history):
        carry, outputs = advance(t, carry)
        history = [
            ops.scatter_update(x, ops.reshape(t, (1, 1)), ops.expand_dims(y, 0))
            for x, y in zip(history, outputs, strict=True)
        ]
        return t + 1, carry, history

    # The first step runs outside the loop, because its outputs tell the widths of the buffers.
    t = ops.convert_to_tensor(0, dtype="int32")
    carry, outputs = advance(t, carry)
    history = [
        ops.pad(ops.expand_dims(x, 0), [[0, most - 1], *[[0, 0]] * len(x.shape)]) for x in outputs
    ]

    def goes_on(t, carry, history):
        lives = ops.any(active(carry))
        return lives if limit is None else ops.logical_and(lives, t < limit)

    _, carry, history = ops.while_loop(
        goes_on,
        body,
        (t + 1, carry, history),
        maximum_iterations=most - 1,
    )
    return carry, history


def _mapped(function, named):
    return [{name: function(x) for name, x in tensors.items()} for tensors in named]


def _take_beams(x, beam, width):
    """Takes from each sample of x, `(N, ...)`, the beams `(N,)`, which count from 0 to K - 1."""
    count, *sizes = ops.shape(x)
    samples = count // width, width
    taken = gather_rows(ops.reshape(x, (*samples, *sizes)), ops.reshape(beam, samples))
    return ops.reshape(taken, (count, *sizes))


def _take_history(history, beam, width):
    """Takes from each step of the history, `(L, N, Tk)`, the beams `(N, L)`: `(N, L, Tk)`."""
    length, count, size = ops.shape(history)
    steps = ops.reshape(ops.transpose(history, (1, 0, 2)), (count // width, width * length, size))
    row = beam * length + ops.arange(length, dtype="int32")
    taken = gather_rows(steps, ops.reshape(row, (count // width, width * length)))
    return ops.reshape(taken, (count, length, size))


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
