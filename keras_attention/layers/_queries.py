"""Checks of a query, and of the prepared memory that it attends to."""

from typing import Any

import keras

from keras_attention._checks import check_bool, described, dtype_of, is_integer
from keras_attention._shapes import (
    check_batch,
    check_memory,
    check_query,
    check_width,
    fits,
    shape_of,
)
from keras_attention._typing import Shape, Tensor
from keras_attention.layers.tensors import check_mask, check_tensor, check_vectors
from keras_attention.layers.types import Memory, Window


def check_attend(
    layer: keras.layers.Layer,
    query: Tensor,
    memory: Memory,
    query_mask: Tensor,
    attention_mask: Tensor,
    use_causal_mask: bool,
    position: Any,
) -> None:
    """The arguments of `ScoringMixin.attend`."""
    name = layer.name
    check_tensor(name, "query", query)
    check_vectors(name, "query", query)
    if not isinstance(memory, Memory):
        raise ValueError(
            f"{name}: `memory` must come from prepare(value, value_mask=mask), called once before "
            f"the first query; received {type(memory).__name__}. Or call layer(query, value)."
        )
    check_bool(name, "use_causal_mask", use_causal_mask)
    check_query(name, query.shape)
    check_batch(name, query=query.shape, value=memory.value.shape)
    check_query_fits(
        layer, query, memory.value, query_mask, attention_mask, use_causal_mask, position
    )


def check_query_fits(
    layer: keras.layers.Layer,
    query: Tensor,
    value: Tensor,
    query_mask: Tensor,
    attention_mask: Tensor,
    use_causal_mask: bool,
    position: Any,
) -> None:
    """Whether a query and its masks fit the layer and the values."""
    name = layer.name
    _check_built(layer, "query", query.shape)
    _check_position(name, position, layer.uses_position, query.shape)
    batch, steps, length = query.shape[0], query.shape[1], value.shape[1]
    one_step = len(query.shape) == 2
    if one_step and use_causal_mask:
        raise ValueError(
            f"{name}: `use_causal_mask=True` needs a query of rank 3, (batch, steps, features); "
            f"received one step, {tuple(query.shape)}."
        )
    check_mask(name, "query_mask", query_mask, [(batch,) if one_step else (batch, steps)])
    pairs = [(batch, length)] if one_step else [(steps, length), (batch, steps, length)]
    check_mask(name, "attention_mask", attention_mask, pairs)


def check_prepare(
    layer: keras.layers.Layer, value: Tensor, key: Tensor, value_mask: Tensor
) -> None:
    """The arguments of `ScoringMixin.prepare`."""
    for name, x in (("value", value), ("key", key)):
        check_tensor(layer.name, name, x, " Call layer.prepare(value).")
        check_vectors(layer.name, name, x, " Pass a mask by its name: `value_mask`.")
    check_memory(layer.name, shape_of(value), shape_of(key))
    check_memory_fits(layer, shape_of(value), shape_of(key), value_mask)


def check_memory_fits(
    layer: keras.layers.Layer, value_shape: Shape, key_shape: Shape, value_mask: Tensor
) -> None:
    """Whether a memory and its mask fit the layer."""
    check_mask(layer.name, "value_mask", value_mask, [value_shape[:2]])
    _check_built(layer, "value", value_shape)
    _check_built(layer, "key", key_shape or value_shape)


def check_window(layer: str, window: Any, shape: Shape) -> None:
    """What the hook `window` returned for a query `(B, Tq, Dq)`."""
    if window is None:
        return
    center, width = getattr(window, "center", None), getattr(window, "half_width", None)
    if isinstance(window, Window) and hasattr(center, "shape") and is_integer(width) and width > 0:
        if fits(tuple(center.shape), shape[:2]) and "float" in dtype_of(center):
            return
        given = f"a center of {described(center)}"
    elif isinstance(window, Window):
        given = f"half_width={width!r:.80}, center={described(center)}"
    else:
        given = described(window)
    raise ValueError(
        f"{layer}: `window` must return None or Window(center, half_width): a center for each "
        f"query, floating-point numbers of shape {tuple(shape[:2])}, and a positive integer; "
        f"received {given}."
    )


def check_output(layer: str, output: Tensor, size: int) -> None:
    """What the hook `combine` returned."""
    if output.shape[-1] != size:
        raise ValueError(
            f"{layer}: `combine` returned {output.shape[-1]} features, but `output_size` returned "
            f"{size}. Override output_size(query_size, value_size) to return the features of "
            "combine(query, context)."
        )


def _check_built(layer: keras.layers.Layer, name: str, shape: Shape) -> None:
    """Whether the layer has weights, and they fit the input of that name."""
    if not layer.built:
        raise ValueError(
            f"{layer.name}: the layer has no weights yet. Call it once, or its build(), before "
            "prepare() and attend()."
        )
    # A subclass may build without the mixin.
    sizes = getattr(layer, "_sizes", {name: shape[-1]})
    check_width(layer.name, name, shape, sizes[name])


def _check_position(layer: str, position: Any, uses_position: bool, query_shape: Shape) -> None:
    """A layer that counts steps needs the number of a single step; nothing else takes one."""
    one_step, given = len(query_shape) == 2, described(position)
    if position is None:
        if uses_position and one_step:
            raise ValueError(
                f"{layer}: `position`, the number of the step, is missing. This attention counts "
                "steps, and a single step does not tell its number. Pass position=i, with i = 0, "
                "1, 2 and so on, to layer(query, value) or attend()."
            )
        return
    if not uses_position:
        raise ValueError(
            f"{layer}: `position` is for attentions that count steps, such as local-m; received "
            f"{given}. Leave it out."
        )
    if not one_step:
        numbers = hasattr(position, "dtype") and "int" in dtype_of(position)
        if numbers and fits(tuple(position.shape), query_shape[:2]):
            return
        raise ValueError(
            f"{layer}: `position` numbers the steps of a query of shape {tuple(query_shape)}. It "
            f"must be integers of shape {tuple(query_shape[:2])}; received {given}. Leave it out "
            "to count from 0."
        )
    batch = query_shape[0]
    if is_integer(position):
        right = position >= 0
    else:
        right = hasattr(position, "dtype") and "int" in dtype_of(position)
        right = right and any(fits(tuple(position.shape), x) for x in ((), (batch,)))
    if not right:
        raise ValueError(
            f"{layer}: `position` must be an integer from 0, or integers of shape ({batch},); "
            f"received {given}."
        )
