"""Attention weights: out of models, and checked before they are drawn."""

import functools
import inspect

import keras
import numpy as np


def attention_weights(model, inputs):
    """The weights of all attention layers of a model for some inputs, without another model.

    Args:
        model: a `keras.Model`, functional or of one's own, called with `training=False`.
        inputs: what it is called with.

    Returns:
        A dictionary from the names of layers to what they return with `return_attention_scores`,
        an array or a tuple of arrays; a list of those for a layer that is called more than once.
        Of a layer inside another layer, not a model, only the outer one is listed.

    Raises:
        ValueError: no layer of the model has weights to return.
    """
    layers = [layer for layer in _layers(model) if _gives_weights(layer)]
    if not layers:
        raise ValueError(
            f"{model.name}: no layer has an argument `return_attention_scores`; layers: "
            f"{', '.join(layer.name for layer in _layers(model)) or 'none'}."
        )
    found = {layer.name: [] for layer in layers}

    def listen(layer):
        call = layer.call

        @functools.wraps(call)
        def heard(*args, return_attention_scores=False, **options):
            *outputs, weights = call(*args, return_attention_scores=True, **options)
            found[layer.name].append(keras.tree.map_structure(as_array, weights))
            if return_attention_scores:
                return *outputs, weights
            return outputs[0] if len(outputs) == 1 else outputs

        layer.call = heard

    for layer in layers:
        listen(layer)
    try:
        model(inputs, training=False)
    finally:
        for layer in layers:
            del layer.call
    return {name: x[0] if len(x) == 1 else x for name, x in found.items() if x}


def _layers(model):
    for layer in model.layers:
        if isinstance(layer, keras.Model):
            yield from _layers(layer)
        else:
            yield layer


def _gives_weights(layer):
    return "return_attention_scores" in inspect.signature(layer.call).parameters


def as_array(x):
    return np.asarray(keras.ops.convert_to_numpy(x), "float32")


def checked(weights, negative=False):
    """As an array of numbers that can be drawn; refuses those that cannot."""
    weights = as_array(weights)
    least = -np.inf if negative else 0
    if not np.isfinite(weights).all() or (weights < least).any():
        wanted = "finite" if negative else "finite and not negative"
        raise ValueError(
            f"weights must be {wanted}; received numbers from {weights.min()} to {weights.max()}."
        )
    return weights


def check_shape(name, weights, wanted, axes):
    if weights.shape == wanted:
        return
    advice = ""
    if weights.ndim == len(wanted) and all(
        given >= size for given, size in zip(weights.shape, wanted, strict=True)
    ):
        advice = f" Cut padding off: {name}[{', '.join(f':{size}' for size in wanted)}]."
    if weights.ndim > len(wanted):
        advice = f" Give those of one sample: {name}[0]."
    raise ValueError(
        f"{name} must be {axes}, here {wanted}; received {tuple(weights.shape)}.{advice}"
    )
