"""Checks of the hooks of every attention: what they take, and what they return."""

import inspect
from collections.abc import Callable
from typing import Any

from keras_attention._checks import described, is_floating
from keras_attention._shapes import fits
from keras_attention._typing import Shape


def check_hook(layer: type, name: str, original: Callable) -> None:
    """Whether a hook takes as many arguments as the one that it overrides."""
    if not inspect.isfunction(inspect.getattr_static(layer, name)):
        return
    parameters = inspect.signature(getattr(layer, name)).parameters
    wanted = list(inspect.signature(original).parameters)
    open_end = any(x.kind is x.VAR_POSITIONAL for x in parameters.values())
    needed = [x for x in wanted if x != "key_shape"]  # a layer without keys may leave it out
    if len(parameters) < len(needed) and not open_end:
        raise TypeError(
            f"{layer.__name__}: an attention must define {name}({', '.join(wanted)}); found "
            f"{name}({', '.join(parameters)}). Add the missing arguments, even if it ignores them."
        )


def check_projected(layer: str, hook: str, projected: Any, wanted: Shape) -> None:
    """What the hooks `project_query` and `project_key` returned; `wanted`: batch size and steps."""
    shape = tuple(projected.shape) if hasattr(projected, "dtype") else ()
    if len(shape) < 3 or not fits(shape[:2], tuple(wanted)):
        steps = "query steps" if hook == "project_query" else "memory steps"
        raise ValueError(
            f"{layer}: `{hook}` must return (batch, {steps}, features), here "
            f"({', '.join(map(str, wanted))}, features); it returned {described(projected)}."
        )


def check_weighed(layer: str, weights: Any, wanted: Shape) -> None:
    """What the hook `weigh` returned for scores of a shape."""
    tensor = hasattr(weights, "dtype") and fits(tuple(weights.shape), wanted)
    if not tensor or not is_floating(weights):
        raise ValueError(
            f"{layer}: `weigh` must return floating-point weights of the shape of the scores, here "
            f"{tuple(wanted)}; it returned {described(weights)}."
        )
