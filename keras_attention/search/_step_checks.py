"""Checks of the step function of a decoder, when a search is traced."""

import inspect
from collections.abc import Callable
from typing import TypeAlias

from keras import tree

from keras_attention._spec import (
    Description,
    check_dense,
    describe,
    describe_length,
    dtype_of,
    fits,
    is_tensor,
    raise_value_error,
)
from keras_attention._typing import Nested, Size, Tensor
from keras_attention.backend import leaves, ops

SIGNATURE = "step(tokens, state, memory) -> (logits, state, weights)"
# See `keras_attention.search`.
Step: TypeAlias = Callable[[Tensor, Nested, Nested], tuple[Tensor, Nested, Tensor | None]]


def check_step(step: Callable, signature: str = SIGNATURE) -> None:
    try:
        inspect.signature(getattr(step, "call", step)).bind(None, None, None)
    except ValueError:  # a function that is not written in Python may have no signature
        pass
    except TypeError as error:
        received = Description(f"{describe(step)}: {error}")
        raise_value_error("search", f"`step` must be a function {signature}", received)


def named_leaves(name: str, structure: Nested) -> dict[str, Tensor]:
    """Return the tensors of a structure by name, without None, which no loop can carry."""
    tensors = {}
    for path, x in tree.flatten_with_path(structure):
        if x is not None:
            label = name + "".join(f"[{key!r}]" for key in path)
            check_dense("search", label, x)
            tensors[label] = ops.convert_to_tensor(x)
    return tensors


def batch_size(tensors: dict[str, Tensor], names: str = "state and memory") -> Size:
    """Return the number of samples in state and memory, which must agree."""
    shapes = {name: tuple(x.shape) for name, x in tensors.items()}
    if not shapes:
        expected = "`state` and `memory` hold no tensor that could tell the batch size"
        raise_value_error("search", expected, None)
    sizes = {shape[0] if shape else 0 for shape in shapes.values()} - {None}
    if 0 in sizes or len(sizes) > 1:
        expected = f"{names} must hold tensors of shape (batch, ...) with one batch size, not 0"
        remedy = "Do not repeat them for the beams. Use a constant tensor inside `step` instead."
        raise_value_error("search", expected, shapes, remedy)
    return ops.shape(next(iter(tensors.values())))[0]


def check_outputs(outputs: object, expected: dict[str, tuple | None]) -> None:
    """Check the outputs of a step: a tuple of tensors `name: (kind, *shape)`.

    Weights may be None, or nested for several memories. A value of None skips the check.
    """
    if not isinstance(outputs, tuple) or len(outputs) != len(expected):
        message = f"`step` must return the tuple ({', '.join(expected)}), None for what is missing"
        raise_value_error("search", message, Description(describe_length(outputs)))
    for (name, form), x in zip(expected.items(), outputs, strict=True):
        tensors = leaves(x) if name == "weights" else [x]
        if form and not all(is_tensor(one, *form) for one in tensors):
            message = f"`step` must return {name}, {form[0]} of shape {form[1:]}"
            raise_value_error("search", message, x)


def check_logits(logits: Tensor, end_token: int) -> None:
    size = logits.shape[-1]
    if size is None:
        expected = "`step` must return logits for a known number of tokens"
        raise_value_error("search", expected, logits)
    if size <= end_token:
        expected = f"`end_token` must be one of the {size} tokens of the logits, 0 to {size - 1}"
        raise_value_error("search", expected, end_token)


def check_weights(weights: Nested, mask: Tensor | None, needed: bool) -> None:
    """Check the weights `(N, Tk)` of a step, which a coverage penalty needs, and the mask."""
    nested = tree.is_nested(weights)
    if needed and (nested or weights is None):
        expected = "`coverage_penalty` needs the weights of one memory, the third output of `step`"
        raise_value_error("beam_search", expected, weights)
    one = None if nested else weights
    if one is not None and mask is not None and not fits(mask.shape[1:], one.shape[1:]):
        expected = f"`memory_mask` must have the shape (batch, {one.shape[1]})"
        raise_value_error("beam_search", expected, mask)


def state_leaves(state: Nested, before: dict[str, Tensor]) -> list[Tensor]:
    """Return the tensors of the state from a step, which must be like those before the step."""
    after = named_leaves("state", state)
    if list(after) != list(before):
        expected = f"`step` must return the state with the structure it was given, {list(before)}"
        raise_value_error("search", expected, list(after))
    for name, old in before.items():
        new = after[name]
        if not fits(tuple(new.shape), tuple(old.shape)) or dtype_of(new) != dtype_of(old):
            expected = f"`step` must return {name} as it was given, {describe(old)}"
            raise_value_error("search", expected, new)
    return list(after.values())
