"""Running a decoder that emits frames, such as a speech synthesizer."""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from keras import ops

from keras_attention._spec import Words, check_int, counted, is_tensor, kind_of, refuse
from keras_attention._typing import Nested, Tensor
from keras_attention.ops.gradients import without_gradients
from keras_attention.ops.loops import pack_like
from keras_attention.search._step import (
    LONGEST,
    batch_size,
    check_step,
    checked_state,
    named_leaves,
)

__all__ = ["FreeRun", "free_run"]

# step(last output, state, memory) -> (output, stop, state, weights)
FrameStep: TypeAlias = Callable[[Tensor, Nested, Nested], tuple[Tensor, Tensor, Nested, Tensor]]


class FreeRun(NamedTuple):
    """What a decoder emitted.

    Sizes: B samples, at most L steps, Tk memory steps.

    Attributes:
        outputs: `(B, L, ...)`, zeros after the end.
        lengths: int32, `(B,)`: the number of steps, the one that stopped included; L for a sample
            that never stopped.
        weights: `(B, L, Tk)`, zeros after the end; None if the step returns no weights.

    Example:
        >>> from keras import ops
        >>> from keras_attention.search import free_run
        >>> def double(last, state, memory):
        ...     return 2 * last, 2 * last[:, 0] - 7, state, None
        >>> run = free_run(double, None, first=ops.convert_to_tensor([[1.0], [3.0]]), max_steps=9)
        >>> frames, lengths = (ops.convert_to_numpy(x) for x in (run.outputs, run.lengths))
        >>> [sample[:length, 0].tolist() for sample, length in zip(frames, lengths)]
        [[2.0, 4.0, 8.0], [6.0, 12.0]]
    """

    outputs: Tensor
    lengths: Tensor
    weights: Tensor | None


@without_gradients()
def free_run(
    step: FrameStep, state: Nested, memory: Nested = None, *, first: Tensor, max_steps: int
) -> FreeRun:
    """Feeds every output of a decoder back to it, until it says that it has finished.

        y[t], stop[t], state[t] = step(y[t-1], state[t-1], memory)

    A sample ends with the first step where stop > 0. The run ends when all samples have ended. It
    works eagerly, in `tf.function` with or without `jit_compile`, in `jax.jit` and in exported
    models.

    Sizes: B samples, at most L steps, Tk memory steps.

    Args:
        step: `step(last, state, memory) -> (output, stop, state, weights)`. The output and `last`
            are `(B, ...)`, stop is a logit `(B,)`, and weights are `(B, Tk)` or None. The state
            returns with the same nesting, shapes and dtypes.
        state: the initial state, tensors `(B, ...)` in any nesting, or None.
        memory: what every step reads, tensors `(B, ...)` in any nesting, or None.
        first: what the first step receives in place of an output, `(B, ...)`.
        max_steps: L, the largest number of steps.

    Returns:
        `FreeRun` with outputs `(B, L, ...)`, lengths `(B,)` and weights `(B, L, Tk)`.

    Raises:
        ValueError: `max_steps` is not a positive integer; `first`, state and memory differ in the
            batch size; the step returns something else.

    Example:
        >>> from keras import ops
        >>> from keras_attention.search import free_run
        >>> def double(last, state, memory):
        ...     return 2 * last, 2 * last[:, 0] - 7, state, None
        >>> run = free_run(double, None, first=ops.convert_to_tensor([[1.0], [3.0]]), max_steps=4)
        >>> [row.tolist() for row in ops.convert_to_numpy(run.outputs)[:, :, 0]]
        [[2.0, 4.0, 8.0, 0.0], [6.0, 12.0, 0.0, 0.0]]
    """
    check_step(step, "step(last, state, memory) -> (output, stop, state, weights)")
    check_int("free_run", "max_steps", max_steps, 1, LONGEST)
    if not hasattr(first, "shape") or len(first.shape) < 1:
        expected = "`first` must be one tensor (batch, ...), like an output"
        refuse("free_run", expected, first)
    first = ops.convert_to_tensor(first)
    names, leaves = named_leaves("state", state)
    more, constants = named_leaves("memory", memory)
    given = ["first", *names, *more], [first, *leaves, *constants]
    batch = batch_size(*given, "first, state and memory", "")

    def advance(last, leaves, living, lengths):
        found = step(last, pack_like(state, leaves), memory)
        output, stop, new, weights = _checked(found, last)
        emitted = [x if x is None else _kept(living, x) for x in (output, weights)]
        lengths = lengths + ops.cast(living, "int32")
        living = ops.logical_and(living, ops.logical_not(stop > 0))
        return (emitted[0], checked_state(new, names, leaves), living, lengths), emitted

    def body(t, carry, history):
        carry, emitted = advance(*carry)
        emitted = [x for x in emitted if x is not None]
        history = [
            ops.scatter_update(x, ops.reshape(t, (1, 1)), ops.expand_dims(y, 0))
            for x, y in zip(history, emitted, strict=True)
        ]
        return t + 1, carry, history

    carry = first, leaves, ops.ones((batch,), "bool"), ops.zeros((batch,), "int32")
    # The first step runs outside the loop, because its outputs tell the widths of the buffers.
    carry, emitted = advance(*carry)
    history = [
        ops.pad(ops.expand_dims(x, 0), [[0, max_steps - 1], *[[0, 0]] * len(x.shape)])
        for x in emitted
        if x is not None
    ]
    _, (_, _, _, lengths), history = ops.while_loop(
        lambda t, carry, history: ops.any(carry[2]),
        body,
        (ops.convert_to_tensor(1, dtype="int32"), carry, history),
        maximum_iterations=max_steps - 1,
    )
    outputs, *weights = (ops.moveaxis(x, 0, 1) for x in history)
    return FreeRun(outputs, lengths, weights[0] if weights else None)


def _kept(living, x):
    living = ops.reshape(living, (-1, *[1] * (len(x.shape) - 1)))
    return ops.where(living, x, ops.zeros_like(x))


def _checked(found, last):
    if not isinstance(found, tuple) or len(found) != 4:
        expected = "`step` must return the tuple (output, stop, state, weights)"
        refuse("free_run", f"{expected}, None for what is missing", Words(counted(found)))
    output, stop, _, weights = found
    batch = last.shape[0]
    wanted = [
        ("output", output, kind_of(last.dtype), last.shape),
        ("stop", stop, "float", (batch,)),
    ]
    wanted += [("weights", weights, "float", (batch, None))] * (weights is not None)
    for name, x, kind, shape in wanted:
        if not is_tensor(x, kind, *shape):
            expected = f"`step` must return {name}, {kind} of shape {tuple(shape)}"
            remedy = "The output must be like `first`. A sample ends where stop > 0."
            refuse("free_run", expected, x, remedy)
    return found
