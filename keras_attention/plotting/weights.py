"""Reads attention weights from models."""

import functools
import inspect
from collections.abc import Iterator
from typing import Any

import keras

from keras_attention._spec import raise_value_error
from keras_attention._typing import Nested
from keras_attention.backend import is_symbolic

__all__ = ["attention_weights"]


def attention_weights(model: keras.Model, inputs: Nested) -> dict[str, Any]:
    """Reads the weights of all attention layers of a model, for some inputs.

    The model is called once, with `training=False`. Meanwhile its attention layers record their
    weights, so no other thread should call it. A model that is not built is called first.

    Args:
        model: a `keras.Model`: functional, sequential or a subclass.
        inputs: inputs of the model.

    Returns:
        A dictionary from layer names to weights: an array, or a tuple of arrays if the layer
        returns several. A layer that is called several times has a list of these. Layers inside
        other layers are found too, except inside a layer that returns weights itself. Calls inside
        a lambda function that the model stores are not recorded. If several layers share a name, a
        number follows the name of all but the first.

    Raises:
        ValueError: `model` is not a model; no layer of it returns weights; or the layers that do
            were not called, or only inside a compiled function.

    Example:
        >>> import keras, numpy
        >>> from keras_attention import AttentionPooling
        >>> from keras_attention.plotting import attention_weights
        >>> inputs = keras.Input((None, 3))
        >>> model = keras.Model(inputs, AttentionPooling(5, name="pooling")(inputs))
        >>> attention_weights(model, numpy.ones((2, 4, 3)))["pooling"].shape
        (2, 4)
    """
    if not isinstance(model, keras.layers.Layer) or _gives_weights(model):
        remedy = "Call an attention layer itself with return_attention_scores=True."
        raise_value_error("attention_weights", "`model` must be a keras.Model", model, remedy)
    if not all(layer.built for layer in (model, *_layers(model))):
        model(inputs, training=False)
    layers = list(_layers(model))
    attending = _unique_names([layer for layer in layers if _gives_weights(layer)])
    if not attending:
        raise ValueError(
            f"{model.name}: no layer has an argument `return_attention_scores`; layers: "
            f"{', '.join(layer.name for layer in layers) or 'none'}."
        )
    recorded = {name: [] for name in attending}
    try:
        for name, layer in attending.items():
            vars(layer)["call"] = _heard(layer.call, recorded[name])
        model(inputs, training=False)
    finally:
        for layer in attending.values():
            vars(layer).pop("call", None)
    recorded = {name: x[0] if len(x) == 1 else x for name, x in recorded.items() if x}
    if not recorded:
        raise ValueError(
            f"{model.name}: none of its attention layers ({', '.join(attending)}) gave numbers. "
            "They can be read where the model is called as it is, not in a function that is "
            "compiled: tf.function, jax.jit, or the loop of an RNN."
        )
    return recorded


def _heard(call, recorded):
    """Wraps the `call` of a layer so that it appends the weights to a list."""

    @functools.wraps(call)
    def heard(*args, return_attention_scores=False, **options):
        *outputs, weights = call(*args, return_attention_scores=True, **options)
        # A call that is only traced, for shapes or for a compiled function, has no numbers.
        if not any(map(is_symbolic, keras.tree.flatten(weights))):
            recorded.append(keras.tree.map_structure(_as_array, weights))
        if return_attention_scores:
            return *outputs, weights
        return outputs[0] if len(outputs) == 1 else outputs

    return heard


def _as_array(x):
    return keras.ops.convert_to_numpy(x).astype("float32")


def _layers(layer: keras.Layer, seen: set[int] | None = None) -> Iterator[keras.Layer]:
    """All layers inside a layer, each once, except those inside a layer that gives weights."""
    seen = set() if seen is None else seen
    for inner in _inner(layer):
        if id(inner) in seen:
            continue
        seen.add(id(inner))
        yield inner
        if not _gives_weights(inner):
            yield from _layers(inner, seen)


def _inner(layer):
    """The layers in the attributes of a layer, and in their lists and dictionaries."""
    if isinstance(layer, keras.Model):
        return layer.layers
    inside = []
    for value in list(vars(layer).values()):
        values = value.values() if isinstance(value, dict) else value
        inside += values if isinstance(value, list | tuple | dict) else [value]
    return [x for x in inside if isinstance(x, keras.layers.Layer)]


def _unique_names(layers):
    named = {}
    for layer in layers:
        name, number = layer.name, 2
        while name in named:
            name, number = f"{layer.name}_{number}", number + 1
        named[name] = layer
    return named


def _gives_weights(layer):
    call = inspect.signature(layer.call).parameters
    return "return_attention_scores" in call and not isinstance(layer, keras.Model)
