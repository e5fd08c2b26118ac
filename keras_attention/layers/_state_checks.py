"""Checks of what the hooks of an attention with a state return."""

from typing import Any

from keras import tree

from keras_attention._checks import described, dtype_of, is_floating
from keras_attention._shapes import check_batch, fits
from keras_attention._typing import Nested, Shape
from keras_attention.layers.types import Memory
from keras_attention.ops.loops import leaves


def check_state(layer: str, state: Any, memory: Memory) -> None:
    """What the hook `initial_state` returned."""
    for x in leaves(state):
        if not hasattr(x, "shape") or not hasattr(x, "dtype") or len(x.shape) == 0:
            raise ValueError(
                f"{layer}: `initial_state` must return tensors whose first axis is the batch; "
                f"received {described(x)}."
            )
        check_batch(layer, value=memory.value.shape, state=x.shape)


def check_drawn(layer: str, drawn: Any, memory: Memory) -> None:
    """What the hook `draw` returned."""
    for x in leaves(drawn):
        if not hasattr(x, "shape") or len(x.shape) < 2:
            raise ValueError(
                f"{layer}: `draw` must return tensors whose first two axes are the steps and the "
                f"batch; received {described(x)}."
            )
        check_batch(layer, value=memory.value.shape, drawn=x.shape[1:])


def check_given_state(layer: str, given: Any, first: Nested) -> None:
    """A state, or a flat list of its tensors, beside the first state."""
    flat = isinstance(given, list) and not any(map(tree.is_nested, given))
    if not _same_form(given, leaves(first) if flat else first):
        wanted, received = (tree.map_structure(described, x) for x in (first, given))
        raise ValueError(
            f"{layer}: `state` must come from the previous step, {wanted}; received {received}. A "
            "state is valid only for the memory that it was made for. Pass None on the first step."
        )


def _same_form(new, old):
    """Whether the tensors of two states have the same places, shapes and kinds of numbers."""
    (places, tensors), (wanted, first) = map(_places, (new, old))
    return places == wanted and all(map(_alike, tensors, first))


def _places(state):
    found = [(path, x) for path, x in tree.flatten_with_path(state) if x is not None]
    return [path for path, _ in found], [x for _, x in found]


def _alike(x, y):
    if not hasattr(x, "shape") or not hasattr(x, "dtype"):
        return False
    return fits(tuple(x.shape), tuple(y.shape)) and _kind(x) == _kind(y)


def _kind(x):
    """The dtype without its precision."""
    return "float" if is_floating(x) else dtype_of(x).rstrip("0123456789")


def check_weights(layer: str, weights: Any, wanted: Shape) -> None:
    """The weights of one step."""
    given = tuple(weights.shape) if hasattr(weights, "shape") else described(weights)
    if isinstance(given, str) or not fits(given, wanted):
        raise ValueError(
            f"{layer}: the weights of one step must have shape (batch, 1, memory steps), here "
            f"{wanted}; received {given}."
        )


def check_advanced(layer: str, found: Any, wanted: Shape, state: Any) -> None:
    """What the hook `advance` returned: the weights of one step and the next state."""
    if not isinstance(found, tuple) or len(found) != 2:
        raise ValueError(
            f"{layer}: `advance` must return the weights and the next state; received "
            f"{described(found)}."
        )
    check_weights(layer, found[0], wanted)
    if not _same_form(found[1], state):
        before, after = (tree.map_structure(described, x) for x in (state, found[1]))
        raise ValueError(
            f"{layer}: the next state must have the structure, shapes and dtypes of the current "
            f"state, {before}; received {after}. Change `next_state`, or `initial_state`."
        )
