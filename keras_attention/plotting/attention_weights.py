"""Read attention weights from models."""

import functools
import inspect
from collections.abc import Iterator

import keras
import numpy as np

from keras_attention._spec import raise_value_error
from keras_attention._typing import Nested
from keras_attention.backend import is_symbolic
from keras_attention.seq2seq import Seq2Seq

__all__ = ["attention_weights"]


def attention_weights(model: keras.Model, inputs: Nested) -> dict[str, Nested]:
    """Read the weights of all attention layers of a model, for some inputs.

    The model is called once, with `training=False`. Meanwhile its attention layers record their
    weights, so no other thread should call it. A model that is not built is called first.

    Args:
        model: a `keras.Model`: functional, sequential or a subclass.
        inputs: inputs of the model, of a `Seq2Seq` also texts.

    Returns:
        A dictionary from layer names to weights: an array, or a tuple of arrays if the layer
        returns several. A layer that is called several times has a list of these. Layers inside
        other layers are found too, except inside a layer that returns weights itself. Calls inside
        a lambda function that the model stores are not recorded. If several layers share a name, a
        number follows the name of all but the first.

    Raises:
        ValueError: `model` is not a model; or no layer that returns weights was called, other than
            inside a compiled function.

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
        expected = "`model` must be a keras.Model, with attention layers inside"
        raise_value_error("attention_weights", expected, model)
    if isinstance(model, Seq2Seq) and isinstance(inputs, (list, tuple)) and len(inputs) == 2:
        inputs = model.tokenize(*inputs)
    if not all(layer.built for layer in (model, *_inside(model))):
        model(inputs, training=False)
    recorded = {}
    layers = [layer for layer in _inside(model) if _gives_weights(layer)]
    try:
        for layer in layers:
            suffixes = "", *(f"_{n}" for n in range(2, len(layers) + 1))
            name = next(x for end in suffixes if (x := layer.name + end) not in recorded)
            layer.__dict__["call"] = _recording(layer.call, recorded.setdefault(name, []))
        model(inputs, training=False)
    finally:
        for layer in layers:
            layer.__dict__.pop("call", None)
    recorded = {name: x[0] if len(x) == 1 else x for name, x in recorded.items() if x}
    if not recorded:
        raise ValueError(
            f"{model.name}: no layer with an argument `return_attention_scores` was called, other "
            "than in a function that is compiled: tf.function, jax.jit, or the loop of an RNN. "
            f"Such layers: {', '.join(layer.name for layer in layers) or 'none'}."
        )
    return recorded


def _recording(call, recorded):
    """Wrap the `call` of a layer so that it appends the weights to a list."""

    @functools.wraps(call)
    def wrapper(*args, return_attention_scores=False, **options):
        *outputs, weights = call(*args, return_attention_scores=True, **options)
        # A call that is only traced, for shapes or for a compiled function, has no values.
        if not any(map(is_symbolic, keras.tree.flatten(weights))):
            recorded.append(keras.tree.map_structure(_as_array, weights))
        if return_attention_scores:
            return *outputs, weights
        return outputs[0] if len(outputs) == 1 else outputs

    return wrapper


def _as_array(x):
    return np.asarray(keras.ops.convert_to_numpy(x), "float32")


def _inside(layer: keras.Layer, seen: set[int] | None = None) -> Iterator[keras.Layer]:
    """Yield all layers inside a layer, each once, but none inside one returning weights."""
    seen = set() if seen is None else seen
    values = layer.layers if isinstance(layer, keras.Model) else [*vars(layer).values()]
    for value in values:
        value = list(value.values()) if isinstance(value, dict) else value
        for inner in value if isinstance(value, (list, tuple)) else [value]:
            if isinstance(inner, keras.layers.Layer) and id(inner) not in seen:
                seen.add(id(inner))
                yield inner
                if not _gives_weights(inner):
                    yield from _inside(inner, seen)


def _gives_weights(layer):
    call = inspect.signature(layer.call).parameters
    return "return_attention_scores" in call and not isinstance(layer, keras.Model)
