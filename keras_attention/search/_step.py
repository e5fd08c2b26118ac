"""The contract between a search and the step function of a decoder.

The search carries the state through its loop as a flat list of tensors, and checks the outputs of
the step function when it is traced.
"""

from collections.abc import Callable
from typing import TypeAlias

import keras
from keras import ops, tree

from keras_attention._checks import counted
from keras_attention._shapes import fits
from keras_attention._typing import Nested, Size, Tensor
from keras_attention.layers.tensors import check_dense

# step(tokens, state, memory) -> (logits, state, weights); see `keras_attention.search`.
Step: TypeAlias = Callable[[Tensor, Nested, Nested], tuple[Tensor, Nested, Tensor | None]]


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
        raise ValueError(
            "state and memory hold no tensor that could tell the batch size. Pass at least one of "
            "shape (batch, ...), for example the encoder's outputs as memory."
        )
    if () in shapes or len({shape[0] for shape in shapes} - {None}) > 1:
        raise ValueError(
            f"{what} must hold tensors of shape (batch, ...) with one batch size, but hold "
            f"{dict(zip(names, shapes, strict=True))}.{hint} Use a tensor without a batch axis "
            "inside `step` instead of passing it."
        )
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
        raise ValueError(
            "step must return the tuple (logits, state, weights), but returned "
            f"{counted(outputs)}. Return None for a state or weights that do not exist."
        )
    logits, state, weights = outputs
    for name, x in (("logits", logits), ("weights", logits if weights is None else weights)):
        shape = tuple(getattr(x, "shape", ()))
        if not fits(shape, (tokens.shape[0], None)):
            raise ValueError(
                f"step must return {name} of rank 2, with a row for each of its {tokens.shape[0]} "
                f"tokens, but returned the shape {shape}. Squeeze the time axis, if there is one."
            )
    size = logits.shape[-1]
    if size is None:
        raise ValueError(
            "step returned logits for an unknown number of tokens. It must be known when the "
            "search is traced: end with keras.layers.Dense(vocabulary_size)."
        )
    if size <= end_token:
        raise ValueError(
            f"end_token={end_token} must be one of the {size} tokens for which step returned "
            f"logits, 0 to {size - 1}. Write the id of the token that ends a sequence."
        )
    return logits, checked_state(state, names, leaves), weights


def checked_state(state: Nested, names: list[str], leaves: list[Tensor]) -> list[Tensor]:
    """The tensors of the state that a step returned, which must be like those it was given."""
    new_names, new_leaves = named_leaves("state", state)
    if names != new_names:
        raise ValueError(
            f"step must return the state with the structure it was given, {names}, but returned "
            f"{new_names}. The initial state must hold every tensor that a step returns."
        )
    for name, old, new in zip(names, leaves, new_leaves, strict=True):
        forms = [(tuple(x.shape), keras.backend.standardize_dtype(x.dtype)) for x in (old, new)]
        if not fits(forms[0][0], forms[1][0]) or forms[0][1] != forms[1][1]:
            raise ValueError(
                f"step was given {name} of shape and dtype {forms[0]}, but returned {forms[1]}. "
                "Neither may change: cast the state to one dtype, and use buffers of fixed size."
            )
    return new_leaves
