"""Checks of the states that a decoder is given."""

from typing import Any

from keras_attention._spec import (
    Description,
    dtype_of,
    fits,
    is_dense,
    kind_of,
    raise_value_error,
)

__all__ = ["check_states"]


def check_states(layer: str, name: str, states: list, groups: dict, batch: Any) -> None:
    """Checks a flat list of states.

    Args:
        name: the argument that holds the states.
        groups: the shapes of the states of each kind, in tuples, without the batch. An initial
            state may hold nothing, only the first kind, or all.
        batch: the batch size of the memory.
    """
    vectors = len(groups["cell state"]) + len(groups["fed vector"])
    vectors = vectors if "attention state" in groups else len(states)
    initial = name == "initial_state"
    for n, state in enumerate(states):
        if not hasattr(state, "shape") or not hasattr(state, "dtype") or not is_dense(state):
            raise_value_error(
                layer, f"`{name}` must hold tensors", state, "Leave it out to start from zeros."
            )
        kind = kind_of(state.dtype)
        if n < vectors and (kind == "bool" or (initial and kind != "float")):
            expected = f"`{name}` must hold vectors of floating-point numbers, as of an encoder"
            remedy = 'Cast other numbers: keras.ops.cast(state, "float32").'
            if kind == "bool":
                remedy = "Pass a mask by its name: `sequences_mask` or `memory_mask`."
            raise_value_error(layer, expected, Description(f"dtype {dtype_of(state)}"), remedy)
    shapes = sum(groups.values(), ())
    right = len(states) == len(shapes)
    right = right or (initial and len(states) in (0, len(groups["cell state"])))
    for state, size in zip(states, shapes, strict=False):
        right = right and fits(tuple(state.shape), (batch, *size))
    if right:
        return
    wanted = ", ".join(
        f"{len(group)} {kind}{'s' * (len(group) > 1)} [{', '.join(map(_with_batch, group))}]"
        for kind, group in groups.items()
        if group
    )
    received = [tuple(x.shape) for x in states]
    remedy = _remedy(received, shapes) if initial else ""
    if any(not fits(shape[:1], (batch,)) for shape in received):
        remedy = f"The batch size must be {batch}, as in the memory."
    raise_value_error(
        layer, f"`{name}` must hold {wanted}", Description(f"{len(received)}, {received}"), remedy
    )


def _remedy(received, shapes):
    """Returns how to fix an initial state of these shapes."""
    pairs = zip(shapes, received, strict=False)
    sizes = [size for (size, *_), shape in pairs if shape[1:] != (size,)]
    if sizes and len(received) <= len(shapes) and all(len(shape) == 2 for shape in received):
        return f"Project a state of another size: keras.layers.Dense({sizes[0]})(state)."
    return (
        "A list of the cell states alone suffices; a GRU has one, an LSTM has two. Leave "
        "`initial_state` out to start from zeros."
    )


def _with_batch(shape):
    return f"(batch, {', '.join(map(str, shape))})"
