"""Run a decoder that emits frames, such as a speech synthesizer."""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from keras_attention._spec import check_int, kind_of, raise_value_error
from keras_attention._typing import Nested, Size, Tensor
from keras_attention.backend import leaves, no_grad, ops, unflatten_as, where_valid
from keras_attention.search._decoding_loop import run_steps
from keras_attention.search._step_checks import (
    batch_size,
    check_outputs,
    check_step,
    named_leaves,
    state_leaves,
)
from keras_attention.search.options import MAX_LENGTH, check_count

__all__ = ["FreeRun", "free_run"]

# step(last output, state, memory) -> (output, stop, state, weights)
FrameStep: TypeAlias = Callable[[Tensor, Nested, Nested], tuple[Tensor, Tensor, Nested, Tensor]]


class FreeRun(NamedTuple):
    """The outputs of a decoder.

    Sizes: B samples, at most L steps, Tk memory steps.

    Attributes:
        outputs: `(B, L, ...)`, zeros after the end.
        lengths: int32, `(B,)`: the number of steps, the one that stopped included; L for a sample
            that never stopped.
        weights: `(B, L, Tk)`, zeros after the end; for several memories a list of them; None if the
            step returns no weights.

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
    weights: Nested


@no_grad()
def free_run(
    step: FrameStep,
    state: Nested,
    memory: Nested = None,
    *,
    first: Tensor,
    max_steps: int,
    limit: Size | None = None,
) -> FreeRun:
    """Feed every output of a decoder back to it, until it returns a positive `stop`.

        y[t], stop[t], state[t] = step(y[t-1], state[t-1], memory)

    A sample ends with the first step where stop > 0. The run ends when all samples have ended. It
    works eagerly, in `tf.function` with or without `jit_compile`, in `jax.jit` and in exported
    models.

    Sizes: B samples, at most L steps, Tk memory steps.

    Args:
        step: `step(last, state, memory) -> (output, stop, state, weights)`. The output and `last`
            are `(B, ...)`, stop is a logit `(B,)`, and weights are `(B, Tk)`, a list of
            them or None. The state returns with the same nesting, shapes and dtypes.
        state: the initial state, tensors `(B, ...)` in any nesting, or None.
        memory: what every step reads, tensors `(B, ...)` in any nesting, or None.
        first: what the first step receives in place of an output, `(B, ...)`.
        max_steps: L, the largest number of steps.
        limit: the run stops after this number of steps, at most L; see `beam_search`.

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
    check_int("free_run", "max_steps", max_steps, 1, MAX_LENGTH)
    limit = None if limit is None else check_count("free_run", "limit", limit, 1, max_steps)
    if not hasattr(first, "shape") or len(first.shape) < 1:
        expected = "`first` must be one tensor (batch, ...), like an output"
        raise_value_error("free_run", expected, first)
    first = ops.convert_to_tensor(first)
    states, memories = named_leaves("state", state), named_leaves("memory", memory)
    batch = batch_size({"first": first, **states, **memories}, "first, state and memory")
    nesting = []

    def advance(t, carry):
        last, carried, active, lengths = carry
        outputs = step(last, unflatten_as(state, carried), memory)
        kind, size = kind_of(last.dtype), last.shape[0]
        expected = {"output": (kind, *last.shape), "stop": ("float", size)}
        expected |= {"state": None, "weights": ("float", size, None)}
        check_outputs(outputs, expected)
        output, stop, new_state, weights = outputs
        nesting[:] = [weights]
        emitted = leaves([output, weights])
        emitted = where_valid(active, emitted, [ops.zeros_like(x) for x in emitted])
        lengths = lengths + ops.cast(active, "int32")
        active = ops.logical_and(active, ops.logical_not(stop > 0))
        return (emitted[0], state_leaves(new_state, states), active, lengths), emitted

    carry = first, list(states.values()), ops.ones((batch,), "bool"), ops.zeros((batch,), "int32")
    (*_, lengths), history = run_steps(advance, carry, max_steps, lambda carry: carry[2], limit)
    outputs, *weights = (ops.moveaxis(x, 0, 1) for x in history)
    return FreeRun(outputs, lengths, unflatten_as(nesting[0], weights))
