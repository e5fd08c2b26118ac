"""The contract between a search and the step function of a decoder.

The search carries the state through its loop as a flat list of tensors, and checks the outputs of
the step function when it is traced.
"""

import inspect
from collections.abc import Callable
from typing import Any, TypeAlias

from keras import ops, tree

from keras_attention._spec import (
    Words,
    check_dense,
    counted,
    described,
    dtype_of,
    fits,
    is_tensor,
    refuse,
)
from keras_attention._typing import Nested, Size, Tensor

# Larger numbers are mistakes. The buffers would not fit into memory, every step ranks the square of
# the width, and a larger penalty overflows for the longest sequence.
LONGEST, WIDEST, LARGEST_PENALTY = 2**20, 2**12, 5
LARGEST_FACTOR = 10**6  # the factor of a coverage penalty
FORM = "step(tokens, state, memory) -> (logits, state, weights)"
# See `keras_attention.search`.
Step: TypeAlias = Callable[[Tensor, Nested, Nested], tuple[Tensor, Nested, Tensor | None]]


def check_step(step: Any, form: str = FORM) -> None:
    expected = f"`step` must be a function {form}"
    if not callable(step):
        refuse("search", expected, step)
    try:
        signature = inspect.signature(getattr(step, "call", step))
    except (TypeError, ValueError):  # functions that are not written in Python may have none
        return
    try:
        signature.bind(None, None, None)
    except TypeError:
        refuse("search", expected, Words(f"one that takes {signature}"))


def named_leaves(name: str, structure: Nested) -> tuple[list[str], list[Tensor]]:
    """The names and tensors of a structure. None leaves are left out: no loop can carry them."""
    found = [(path, x) for path, x in tree.flatten_with_path(structure) if x is not None]
    names = [name + "".join(f"[{key!r}]" for key in path) for path, _ in found]
    for label, (_, x) in zip(names, found, strict=True):
        check_dense("search", label, x)
    return names, [ops.convert_to_tensor(x) for _, x in found]


def batch_size(
    names: list[str],
    tensors: list[Tensor],
    what: str = "state and memory",
    hint: str = " Do not repeat them for the beams: the search does.",
) -> Size:
    """The number of samples in state and memory, which must agree."""
    shapes = [tuple(x.shape) for x in tensors]
    if not shapes:
        expected = "`state` and `memory` hold no tensor that could tell the batch size"
        refuse("search", expected, None, "Pass the outputs of the encoder as memory, for example.")
    if () in shapes or len({shape[0] for shape in shapes} - {None}) > 1:
        hint += " Use a tensor without a batch axis inside `step` instead of passing it."
        expected = f"{what} must hold tensors of shape (batch, ...) with one batch size"
        refuse("search", expected, dict(zip(names, shapes, strict=True)), hint.strip())
    return ops.shape(tensors[0])[0]


def checked(
    outputs: tuple[Tensor, Nested, Tensor | None],
    tokens: Tensor,
    names: list[str],
    leaves: list[Tensor],
    end_token: int,
) -> tuple[Tensor, list[Tensor], Tensor | None]:
    """Checks the outputs of a step and returns them, with the state as a list of tensors."""
    if not isinstance(outputs, tuple) or len(outputs) != 3:
        expected = "`step` must return the tuple (logits, state, weights), None for what is missing"
        refuse("search", expected, Words(counted(outputs)))
    logits, state, weights = outputs
    for name, x in (("logits", logits), ("weights", logits if weights is None else weights)):
        if not is_tensor(x, "float", tokens.shape[0], None):
            expected = f"`step` must return {name} of rank 2, a row for each of its "
            expected += f"{tokens.shape[0]} tokens"
            refuse("search", expected, x, "Squeeze the time axis, if there is one.")
    size = logits.shape[-1]
    if size is None:
        expected = "`step` must return logits for a known number of tokens"
        refuse("search", expected, logits, "End with keras.layers.Dense(vocabulary_size).")
    if size <= end_token:
        expected = f"`end_token` must be one of the {size} tokens of the logits, 0 to {size - 1}"
        refuse("search", expected, end_token)
    return logits, checked_state(state, names, leaves), weights


def checked_state(state: Nested, names: list[str], leaves: list[Tensor]) -> list[Tensor]:
    """The tensors of the state that a step returned, which must be like those it was given."""
    new_names, new_leaves = named_leaves("state", state)
    if names != new_names:
        expected = f"`step` must return the state with the structure it was given, {names}"
        remedy = "The initial state must hold every tensor that a step returns."
        refuse("search", expected, Words(new_names), remedy)
    for name, old, new in zip(names, leaves, new_leaves, strict=True):
        if not fits(tuple(new.shape), tuple(old.shape)) or dtype_of(new) != dtype_of(old):
            expected = f"`step` must return {name} as it was given, {described(old)}"
            remedy = "Cast the state to one dtype, and use buffers of fixed size."
            refuse("search", expected, new, remedy)
    return new_leaves
