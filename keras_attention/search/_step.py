"""The contract between a search and the step function of a decoder.

The search carries the state through its loop as a flat list of tensors, and checks the outputs of
the step function when it is traced.
"""

import inspect
from collections.abc import Callable
from typing import Any, TypeAlias

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

# Larger numbers are mistakes. The buffers would not fit into memory, every step ranks the square of
# the width, and a larger penalty overflows for the longest sequence.
LONGEST, WIDEST, LARGEST_PENALTY = 2**20, 2**12, 5
LARGEST_FACTOR = 10**6  # the factor of a coverage penalty
FORM = "step(tokens, state, memory) -> (logits, state, weights)"
# See `keras_attention.search`.
Step: TypeAlias = Callable[[Tensor, Nested, Nested], tuple[Tensor, Nested, Tensor | None]]


def check_step(step: Any, form: str = FORM) -> None:
    try:
        inspect.signature(getattr(step, "call", step)).bind(None, None, None)
    except ValueError:  # a function that is not written in Python may have no signature
        pass
    except TypeError as error:
        received = Description(f"{describe(step)}: {error}")
        raise_value_error("search", f"`step` must be a function {form}", received)


def named_leaves(name: str, structure: Nested) -> dict[str, Tensor]:
    """The tensors of a structure by name. None is left out: no loop can carry it."""
    leaves = {}
    for path, x in tree.flatten_with_path(structure):
        if x is not None:
            label = name + "".join(f"[{key!r}]" for key in path)
            check_dense("search", label, x)
            leaves[label] = ops.convert_to_tensor(x)
    return leaves


def batch_size(
    tensors: dict[str, Tensor],
    what: str = "state and memory",
    remedy: str = "Do not repeat them for the beams: the search does.",
) -> Size:
    """The number of samples in state and memory, which must agree."""
    shapes = {name: tuple(x.shape) for name, x in tensors.items()}
    if not shapes:
        expected = "`state` and `memory` hold no tensor that could tell the batch size"
        raise_value_error(
            "search", expected, None, "Pass the outputs of the encoder as memory, for example."
        )
    if () in shapes.values() or len({shape[0] for shape in shapes.values()} - {None}) > 1:
        expected = f"{what} must hold tensors of shape (batch, ...) with one batch size"
        remedy += " Use a tensor without a batch axis inside `step` instead of passing it."
        raise_value_error("search", expected, shapes, remedy.strip())
    return ops.shape(next(iter(tensors.values())))[0]


def check_outputs(outputs: Any, wanted: dict[str, tuple | None], remedy: str) -> None:
    """The outputs of a step: a tuple of tensors, of a kind and a shape. Weights may be None.

    Weights of several memories are nested.
    """
    if not isinstance(outputs, tuple) or len(outputs) != len(wanted):
        expected = f"`step` must return the tuple ({', '.join(wanted)}), None for what is missing"
        raise_value_error("search", expected, Description(describe_length(outputs)))
    for (name, form), x in zip(wanted.items(), outputs, strict=True):
        each = leaves(x) if name == "weights" else [x]
        if form and not all(is_tensor(one, *form) for one in each):
            expected = f"`step` must return {name}, {form[0]} of shape {form[1:]}"
            raise_value_error("search", expected, x, remedy)


def check_logits(logits: Tensor, end_token: int) -> None:
    size = logits.shape[-1]
    if size is None:
        expected = "`step` must return logits for a known number of tokens"
        raise_value_error(
            "search", expected, logits, "End with keras.layers.Dense(vocabulary_size)."
        )
    if size <= end_token:
        expected = f"`end_token` must be one of the {size} tokens of the logits, 0 to {size - 1}"
        raise_value_error("search", expected, end_token)


def check_weights(weights: Tensor | None, mask: Tensor | None, wanted: bool) -> None:
    """The weights `(N, Tk)` of a step, which the coverage of a memory needs, and its mask."""
    if tree.is_nested(weights):
        if wanted:
            expected = "`coverage_penalty` counts the weights of one memory"
            remedy = "Leave it out, or write a `step` that returns the weights of one memory."
            raise_value_error("beam_search", expected, weights, remedy)
        return
    if weights is None and wanted:
        expected = "`coverage_penalty` needs the weights, the third output of `step`"
        raise_value_error("beam_search", expected, None)
    if weights is not None and mask is not None and not fits(mask.shape[1:], weights.shape[1:]):
        expected = f"`memory_mask` must have a place for each weight, (batch, {weights.shape[1]})"
        raise_value_error(
            "beam_search", expected, mask, "Make it of the source that the memory encodes."
        )


def leaves_of(state: Nested, before: dict[str, Tensor]) -> list[Tensor]:
    """The tensors of the state that a step returned, which must be like those before it."""
    after = named_leaves("state", state)
    if list(after) != list(before):
        expected = f"`step` must return the state with the structure it was given, {list(before)}"
        remedy = "The initial state must hold every tensor that a step returns."
        raise_value_error("search", expected, list(after), remedy)
    for name, old in before.items():
        new = after[name]
        if not fits(tuple(new.shape), tuple(old.shape)) or dtype_of(new) != dtype_of(old):
            expected = f"`step` must return {name} as it was given, {describe(old)}"
            remedy = "Cast the state to one dtype, and use buffers of fixed size."
            raise_value_error("search", expected, new, remedy)
    return list(after.values())
