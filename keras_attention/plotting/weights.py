"""Attention weights: out of models, and checked before they are drawn."""

import contextlib
import functools
import inspect

import keras
import numpy as np

from keras_attention._checks import described

__all__ = ["attention_weights"]


def attention_weights(model, inputs):
    """The weights of all attention layers of a model for some inputs, without another model.

    Args:
        model: a `keras.Model`, functional or of one's own, called with `training=False`.
        inputs: what it is called with.

    Returns:
        A dictionary from the names of layers to what they return with `return_attention_scores`,
        an array or a tuple of arrays; a list of those for a layer that is called more than once.
        Layers in other layers are found too, but for those in one that returns weights itself. Of
        several layers of one name, all but the first have a number after it.

    Raises:
        ValueError: `model` is no model; no layer of it has weights to return, or none was called,
            or only in a function that is compiled.

    Example:
        >>> import keras, numpy
        >>> from keras_attention import AttentionPooling
        >>> from keras_attention.plotting import attention_weights
        >>> inputs = keras.Input((None, 3))
        >>> model = keras.Model(inputs, AttentionPooling(5, name="pooling")(inputs))
        >>> attention_weights(model, numpy.ones((2, 4, 3)))["pooling"].shape
        (2, 4)
    """
    if not isinstance(model, keras.layers.Layer):
        raise ValueError(
            f"model must be a keras.Model; received {_kind(model)}. Call attention_weights(model, "
            "inputs)."
        )
    if _gives_weights(model):
        raise ValueError(
            f"{model.name}: expected a keras.Model; received a layer that returns its weights "
            "itself. Call the layer with return_attention_scores=True."
        )
    layers = list(_layers(model))
    attending = _unique_names([layer for layer in layers if _gives_weights(layer)])
    if not attending:
        raise ValueError(
            f"{model.name}: no layer has an argument `return_attention_scores`; layers: "
            f"{', '.join(layer.name for layer in layers) or 'none'}."
        )
    found = {name: [] for name in attending}
    before = {name: vars(layer).get("call") for name, layer in attending.items()}
    try:
        for name, layer in attending.items():
            layer.call = _heard(layer.call, found[name])
        model(inputs, training=False)
    finally:
        for name, layer in attending.items():
            if before[name] is not None:
                layer.call = before[name]
            elif "call" in vars(layer):
                del layer.call
    found = {name: x[0] if len(x) == 1 else x for name, x in found.items() if x}
    if not found:
        raise ValueError(
            f"{model.name}: none of its attention layers ({', '.join(attending)}) gave numbers. "
            "They can be read where the model is called as it is, not in a function that is "
            "compiled: tf.function, jax.jit, or the loop of an RNN."
        )
    return found


def _heard(call, found):
    """The `call` of a layer that also appends the weights to a list."""

    @functools.wraps(call)
    def heard(*args, return_attention_scores=False, **options):
        *outputs, weights = call(*args, return_attention_scores=True, **options)
        # What is only traced, for shapes or for a function that is compiled, has no numbers.
        with contextlib.suppress(Exception):
            found.append(keras.tree.map_structure(as_array, weights))
        if return_attention_scores:
            return *outputs, weights
        return outputs[0] if len(outputs) == 1 else outputs

    return heard


def _layers(layer, seen=None):
    """The layers in a layer, and those in them, each once; not those in one that gives weights."""
    seen = set() if seen is None else seen
    for inner in _inner(layer):
        if id(inner) in seen:
            continue
        seen.add(id(inner))
        yield inner
        if not _gives_weights(inner):
            yield from _layers(inner, seen)


def _inner(layer):
    """The layers that are attributes of a layer, or in lists and dictionaries that are."""
    if isinstance(layer, keras.Model):
        yield from layer.layers
        return
    for value in list(vars(layer).values()):
        values = value.values() if isinstance(value, dict) else value
        several = isinstance(value, list | tuple | dict)
        yield from (x for x in (values if several else [value]) if isinstance(x, keras.Layer))


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


def as_array(x):
    return np.asarray(keras.ops.convert_to_numpy(x), "float32")


def checked(weights, negative=False):
    """As an array of numbers that can be drawn; refuses those that cannot."""
    try:
        if weights is None:  # of which NumPy makes a number
            raise TypeError
        weights = as_array(weights)
    except (TypeError, ValueError):
        found, remedy = f"{weights!r:.80}", ""
        if isinstance(weights, tuple) and all(hasattr(x, "shape") for x in weights):
            found = f"a tuple of {len(weights)} tensors"
            remedy = " Pass the second of (output, weights)."
        raise ValueError(f"weights must be numbers; received {found}.{remedy}") from None
    check_numbers(weights, negative=negative)
    return weights


def check_numbers(weights, name="weights", negative=False):
    least = -np.inf if negative else 0
    if not np.isfinite(weights).all() or (weights < least).any():
        wanted = "finite" if negative else "finite and not negative"
        raise ValueError(
            f"{name} must be {wanted}; received numbers from {weights.min()} to {weights.max()}."
        )


def string_list(name, strings, of="tokens", remedy=None):
    """As a list; refuses a string, which is a list of letters to Python."""
    if isinstance(strings, (str, bytes)):
        raise ValueError(
            f"{name} must be a list of {of}; received the string {strings!r:.80}. Write "
            f"{remedy or f'{name}.split()'}."
        )
    return list(strings)


def _kind(x):
    return described(x) if isinstance(x, type) else type(x).__name__


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
