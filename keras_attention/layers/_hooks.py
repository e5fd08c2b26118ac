"""Checks of the hooks of every attention: what they take, and what they return."""

import inspect
from collections.abc import Callable
from typing import Any

from keras import tree

from keras_attention._spec import (
    Words,
    check_result,
    described,
    is_integer,
    is_known,
    is_tensor,
    kind_of,
    refuse,
)
from keras_attention._typing import Nested, Shape, Tensor
from keras_attention.layers._types import Memory, Window
from keras_attention.ops._loops import leaves


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


def check_window(layer: str, window: Any, shape: Shape) -> None:
    """What the hook `window` returned for a query `(B, Tq, Dq)`."""
    width = isinstance(window, Window) and window.half_width
    if not is_integer(width) or width < 1 or not is_tensor(window.center, "float", *shape[:2]):
        given = described(window)
        if isinstance(window, Window):
            given = f"half_width={width!r:.80}, center={described(window.center)}"
        expected = "`window` must return None or Window(center, half_width): a center for each "
        expected += f"query, floating-point numbers of shape {tuple(shape[:2])}, and a positive int"
        refuse(layer, f"{expected}eger", Words(given))


def check_output(layer: str, output: Tensor, size: int) -> None:
    """What the hook `combine` returned."""
    if output.shape[-1] != size:
        expected = f"`combine` must return the {size} features of `output_size`"
        remedy = "Override output_size(query_size, value_size) to return the features of `combine`."
        refuse(layer, expected, output, remedy)


def check_position(layer: Any, position: Any, query_shape: Shape) -> None:
    """A layer that counts steps needs the number of a single step; nothing else takes one."""
    one_step, uses = len(query_shape) == 2, layer.uses_position
    if position is None:
        if uses and one_step:
            expected = "`position`, the number of the step, is missing: this attention counts steps"
            remedy = "Pass position=i, with i = 0, 1, 2 and so on, to the call or to attend()."
            refuse(layer.name, expected, position, remedy)
        return
    if not uses:
        expected = "`position` is for attentions that count steps, such as local-m"
        refuse(layer.name, expected, position, "Leave it out.")
    if one_step:
        right = is_integer(position) and position >= 0
        right = right or is_tensor(position, "int") or is_tensor(position, "int", query_shape[0])
        wanted = f"be an integer from 0, or integers of shape ({query_shape[0]},)"
    else:
        right = is_tensor(position, "int", *query_shape[:2])
        wanted = f"be integers of shape {query_shape[:2]}, the numbers of the steps of the query"
    if not right:
        remedy = "" if one_step else "Leave it out to count from 0."
        refuse(layer.name, f"`position` must {wanted}", position, remedy)


def check_given(layer: Any, **given: Any) -> None:
    """What only an attention with a state takes."""
    for name, x in given.items():
        if x is not None and not layer.has_state:
            refuse(layer.name, "this attention has no state", x, f"Leave `{name}` out.")


def check_leaves(layer: str, hook: str, result: Any, memory: Memory) -> None:
    """What the hooks `initial_state` and `draw` returned; those of `draw` are for all steps."""
    batch, first = memory.value.shape[0], int(hook == "draw")
    for x in leaves(result):
        shape = tuple(getattr(x, "shape", ()))
        if len(shape) <= first or not hasattr(x, "dtype") or not agree(shape[first], batch):
            axes = ("first axis is the batch", "first two axes are the steps and the batch")[first]
            refuse(layer, f"`{hook}` must return tensors whose {axes}, here {batch}", x)


def agree(size: Any, other: Any) -> bool:
    """Whether two sizes may be equal."""
    return size == other or not (is_known(size) and is_known(other))


def check_state(layer: str, given: Any, first: Nested) -> None:
    """A state, or a flat list of its tensors, beside the first state."""
    flat = isinstance(given, list) and not any(map(tree.is_nested, given))
    if not _same_form(given, leaves(first) if flat else first):
        wanted, received = (tree.map_structure(described, x) for x in (first, given))
        remedy = "A state is valid only for its memory. Pass None on the first step."
        expected = f"`state` must come from the previous step, {wanted}"
        refuse(layer, expected, Words(received), remedy)


def check_advanced(layer: str, found: Any, wanted: Shape, state: Any) -> None:
    """What the hook `advance` returned: the weights of one step and the next state."""
    if not isinstance(found, tuple) or len(found) != 2:
        refuse(layer, "`advance` must return the weights and the next state", found)
    check_result(layer, "advance", found[0], *wanted)
    if not _same_form(found[1], state):
        before, after = (tree.map_structure(described, x) for x in (state, found[1]))
        expected = "the next state must have the structure, shapes and dtypes of the current state"
        remedy = "Change `next_state`, or `initial_state`."
        refuse(layer, f"{expected}, {before}", Words(after), remedy)


def _same_form(new: Nested, old: Nested) -> bool:
    """Whether the tensors of two states have the same places, shapes and kinds of numbers."""
    (places, tensors), (wanted, first) = (
        ([path for path, x in found if x is not None], [x for _, x in found if x is not None])
        for found in map(tree.flatten_with_path, (new, old))
    )
    pairs = zip(tensors, first, strict=False)
    return places == wanted and all(is_tensor(x, kind_of(y.dtype), *y.shape) for x, y in pairs)
