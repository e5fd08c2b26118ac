"""Checks of the hooks of an attention with a state."""

import inspect
from collections.abc import Callable
from typing import Any

from keras_attention._checks import described, dtype_of
from keras_attention._shapes import check_batch, fits
from keras_attention._typing import Shape, Tensor
from keras_attention.layers._types import Memory
from keras_attention.ops._loops import leaves


def check_hook(layer: type, name: str, original: Callable) -> None:
    """Whether a hook takes as many arguments as the one that it overrides."""
    parameters = inspect.signature(getattr(layer, name)).parameters
    wanted = list(inspect.signature(original).parameters)
    open_end = any(x.kind is x.VAR_POSITIONAL for x in parameters.values())
    if len(parameters) < len(wanted) and not open_end:
        raise TypeError(
            f"{layer.__name__}: an attention with a state must define {name}"
            f"({', '.join(wanted)}); found {name}({', '.join(parameters)})."
        )


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


def check_given_state(layer: str, given: list[Any], first: list[Tensor]) -> None:
    """A state, beside the tensors of the first one."""
    tensors = all(hasattr(x, "shape") and hasattr(x, "dtype") for x in given)
    if not tensors or len(given) != len(first) or not all(map(_alike, given, first)):
        wanted, received = ([described(x) for x in state] for state in (first, given))
        raise ValueError(
            f"{layer}: `state` must come from the previous step, {wanted}; received {received}. A "
            "state is valid only for the memory that it was made for. Pass None on the first step."
        )


def _alike(x, y):
    floating = all("float" in dtype_of(z) for z in (x, y))
    return fits(tuple(x.shape), tuple(y.shape)) and (floating or dtype_of(x) == dtype_of(y))


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
    before, after = ([tuple(x.shape) for x in leaves(z)] for z in (state, found[1]))
    if len(before) != len(after) or not all(map(fits, after, before)):
        raise ValueError(
            f"{layer}: the next state must have the same shapes as the current state, {before}; "
            f"received {after}. Change `next_state`, or `initial_state`."
        )
