"""The loop of all searches, over N = B K hypotheses in buffers of fixed size."""

from collections.abc import Callable
from typing import NamedTuple

from keras_attention._typing import Nested, Size, Tensor
from keras_attention.backend import gather_rows, leaves, no_grad, ops, tree_map, unflatten_as
from keras_attention.search._logits_processors import logits_processors
from keras_attention.search._search_result import SearchResult, by_sample, mask_missing
from keras_attention.search._step_checks import (
    Step,
    batch_size,
    check_logits,
    check_outputs,
    check_step,
    check_weights,
    named_leaves,
    state_leaves,
)
from keras_attention.search.options import SearchOptions

# The score of an impossible hypothesis: finite, so that it causes no NaN, and exact in float32.
IMPOSSIBLE = -(2.0**100)


class _Beams(NamedTuple):
    """The N hypotheses. Every field has the leading axis N, so one gather reorders all of them."""

    tokens: Tensor  # (N, L)
    back_pointers: Tensor  # (N, L), the beam of the sample in which each token was computed
    last: Tensor  # (N,), the tokens chosen last
    lengths: Tensor  # (N,)
    log_probs: Tensor  # (N, L), of the tokens
    totals: Tensor  # (N,), summed log probability
    scores: Tensor  # (N,), for ranking; fixed after the end
    active: Tensor  # (N,), boolean
    coverage: list[Tensor]  # [(N, Tk)], summed weights, or [] if they are not needed


class SearchStep(NamedTuple):
    """The input of `choose`, which chooses the tokens of a step."""

    t: Tensor  # (), counts from 0
    logits: Tensor  # (N, V), float32
    allowed: Tensor  # (N, V), the same, with -inf where a logits processor forbids the token
    beams: _Beams  # before the choice; `coverage` includes this step
    memory_mask: Tensor | None  # (N, Tk)


# choose(search_step) -> (parents, tokens, log probabilities of the tokens, scores), each `(N,)`.
Choose = Callable[[SearchStep], tuple[Tensor | None, Tensor, Tensor, Tensor]]


@no_grad()
def run_search(
    step: Step,
    state: Nested,
    memory: Nested,
    choose: Choose,
    options: SearchOptions,
    beam_width: int | None = None,
    *,
    memory_mask: Tensor | None = None,
    needs_coverage: bool = False,
    independent: bool = False,
) -> SearchResult:
    """Run the loop of all searches.

    Args:
        choose: returns the next N hypotheses: the beam of its sample that each continues (None if
            all continue their own), its new token, the log probability of the token, and its score.
            A hypothesis that has ended continues with the end token.
        step, state, memory, beam_width, memory_mask: see `beam_search`.
        needs_coverage: whether `choose` needs the summed weights of each hypothesis.
        independent: whether all K hypotheses of a sample are active from the start, not only one.

    Returns:
        The hypotheses `(B, K, ...)`, or `(B, ...)` for a beam_width of None.
    """
    check_step(step)
    width = 1 if beam_width is None else beam_width
    states, memories = named_leaves("state", state), named_leaves("memory", memory)
    others = {"prefix": options.prefix, "memory_mask": memory_mask}
    others = {name: x for name, x in others.items() if x is not None}
    batch = batch_size({**states, **memories, **others})
    if width > 1:
        states, memories, others = (
            {name: ops.repeat(x, width, axis=0) for name, x in tensors.items()}
            for tensors in (states, memories, others)
        )
    memory = unflatten_as(memory, memories.values())
    count, max_length, end_token = batch * width, options.max_length, options.end_token
    processors = logits_processors(options, others.get("prefix"))
    positions = ops.arange(max_length, dtype="int32")
    nesting = []

    def advance(t, carry):
        beams, carried = carry
        outputs = step(beams.last, unflatten_as(state, carried), memory)
        rows = "float", beams.last.shape[0], None
        check_outputs(outputs, {"logits": rows, "state": None, "weights": rows})
        logits, new_state, weights = outputs
        check_logits(logits, end_token)
        check_weights(weights, memory_mask, needs_coverage)
        carried = state_leaves(new_state, states)
        logits = allowed = ops.cast(logits, "float32")
        for process in processors:
            allowed = process(allowed, beams.tokens, t)
        if needs_coverage:
            attended = ops.cast(weights, "float32")
            coverage = [x + attended for x in beams.coverage] or [attended]
            beams = beams._replace(coverage=coverage)
        search_step = SearchStep(t, logits, allowed, beams, others.get("memory_mask"))
        parent, last, log_probs, scores = choose(search_step)
        now = positions == t
        if parent is not None:
            beams, carried = tree_map(lambda x: _take_beams(x, parent, width), (beams, carried))
            parent = ops.expand_dims(parent, -1)
            beams = beams._replace(back_pointers=ops.where(now, parent, beams.back_pointers))
        last = ops.cast(last, "int32")
        beams = beams._replace(
            tokens=ops.where(now, ops.expand_dims(last, -1), beams.tokens),
            last=last,
            lengths=beams.lengths + ops.cast(beams.active, "int32"),
            log_probs=ops.where(now, ops.expand_dims(log_probs, -1), beams.log_probs),
            totals=beams.totals + log_probs,
            scores=scores,
            active=(last != end_token) & (scores != IMPOSSIBLE),
        )
        # Weights stay where they were computed. After the loop, `back_pointers` finds them.
        nesting[:] = [weights]
        return (beams, carried), leaves(weights)

    order = ops.arange(count, dtype="int32")
    active = independent | (order % width == 0)
    zeros = ops.zeros((count,), dtype="float32")
    beams = _Beams(
        tokens=ops.full((count, max_length), end_token, dtype="int32"),
        back_pointers=ops.tile(ops.expand_dims(order % width, -1), (1, max_length)),
        last=ops.full((count,), options.start_token, dtype="int32"),
        lengths=ops.zeros((count,), dtype="int32"),
        log_probs=ops.zeros((count, max_length), dtype="float32"),
        totals=zeros,
        scores=ops.where(active, zeros, IMPOSSIBLE),
        active=active,
        coverage=[],
    )
    carry = beams, list(states.values())
    (beams, _), history = run_steps(
        advance, carry, max_length, lambda carry: carry[0].active, options.limit
    )
    weights = [_take_history(x, beams.back_pointers, width) for x in history]
    weights = unflatten_as(nesting[0], weights)
    result = SearchResult(beams.tokens, beams.lengths, beams.scores, weights, beams.log_probs)
    result = mask_missing(result, beams.scores != IMPOSSIBLE, end_token)
    return result if beam_width is None else by_sample(result, width)


def run_steps(
    advance: Callable, carry: Nested, length: int, active: Callable, limit: Size | None = None
) -> tuple[Nested, list[Tensor]]:
    """Call `carry, outputs = advance(t, carry)` while any of `active(carry)` is True.

    Args:
        advance: a function of one step, whose outputs are a list of tensors.
        carry: what changes from step to step, any nesting of tensors.
        length: the length of the buffers, L.
        active: a function from the carry to booleans.
        limit: the largest number of steps, at most L; L if it is None.

    Returns:
        The last carry, and the outputs `(L, ...)`, zeros where no step ran.
    """

    def goes_on(t, carry, history):
        any_active = ops.any(active(carry))
        return any_active if limit is None else ops.logical_and(any_active, t < limit)

    def body(t, carry, history):
        carry, outputs = advance(t, carry)
        history = [
            ops.scatter_update(x, ops.reshape(t, (1, 1)), ops.expand_dims(y, 0))
            for x, y in zip(history, outputs, strict=True)
        ]
        return t + 1, carry, history

    # The first step runs outside the loop, because its outputs give the widths of the buffers.
    t = ops.convert_to_tensor(0, dtype="int32")
    carry, outputs = advance(t, carry)
    history = [
        ops.pad(ops.expand_dims(x, 0), [[0, length - 1], *[[0, 0]] * len(x.shape)]) for x in outputs
    ]
    variables = t + 1, carry, history
    _, carry, history = ops.while_loop(goes_on, body, variables, maximum_iterations=length - 1)
    return carry, history


def _take_beams(x, beam, width):
    """Take from each sample of x, `(N, ...)`, the beams `(N,)`, which count from 0 to K - 1."""
    count, *sizes = ops.shape(x)
    samples = count // width, width
    taken = gather_rows(ops.reshape(x, (*samples, *sizes)), ops.reshape(beam, samples))
    return ops.reshape(taken, (count, *sizes))


def _take_history(history, beam, width):
    """Take from each step of the history, `(L, N, Tk)`, the beams `(N, L)`: `(N, L, Tk)`."""
    length, count, size = ops.shape(history)
    steps = ops.reshape(ops.transpose(history, (1, 0, 2)), (count // width, width * length, size))
    row = beam * length + ops.arange(length, dtype="int32")
    taken = gather_rows(steps, ops.reshape(row, (count // width, width * length)))
    return ops.reshape(taken, (count, length, size))


def log_softmax_of(values: Tensor, logits: Tensor, peak: Tensor) -> Tensor:
    """Return the log-softmax of some logits `values`, `(N, width)`, among all logits `(N, V)`.

    `peak`, `(N, 1)`, is the largest logit. Take it with `ops.max`, because a slice of the result of
    `top_k` makes XLA sort the whole row.
    """
    return values - peak - ops.log(ops.sum(ops.exp(logits - peak), axis=-1, keepdims=True))


def length_factor(lengths: Tensor, length_penalty: float | Tensor) -> Tensor:
    """Return the divisor of the summed log probability of an output with `lengths` tokens."""
    return ((5 + lengths) / 6) ** length_penalty


def clip_impossible(scores: Tensor) -> Tensor:
    """Replace -inf (a forbidden token) and NaN (no token is allowed) by `IMPOSSIBLE`."""
    return ops.where(scores > IMPOSSIBLE, scores, IMPOSSIBLE)
