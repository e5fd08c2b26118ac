"""Warns if a recurrent layer has dropped the mask of a memory.

Up to Keras 3.15, the mask of an `Embedding(mask_zero=True)` propagates through recurrent layers.
From 3.16 on it does not, and an attention after them reads the padding.
"""

import warnings
from typing import Any

import keras

# The mask of each argument whose padding must not be read.
MASKS = {
    "value": "value_mask",
    "memory": "memory_mask",
    "context": "context_mask",
    "inputs": "mask",
}

DROPPING = keras.layers.RNN, keras.layers.Bidirectional, keras.layers.TimeDistributed


def warn_of_dropped_masks(layer: str, given: dict[str, Any]) -> None:
    """Warns if a call gets no mask for an argument whose padding an embedding has marked.

    Args:
        layer: the name of the layer that is called.
        given: the arguments of the call by name, the masks that Keras found included. Only symbolic
            tensors know the layers that they come from.
    """
    masks = MASKS | ({"query": "query_mask"} if "context" in given else {})
    for name in masks.keys() & given.keys():
        if given.get(masks[name]) is None and keras.utils.is_keras_tensor(given[name]):
            operations = _operations_before(given[name])
            dropped = [x.name for x in operations if _drops(x)]
            marking = [x.name for x in operations if _marks(x)]
            if dropped and marking:
                warnings.warn(
                    f"{layer}: `{name}` has no mask, because layers such as '{dropped[-1]}' "
                    "drop it from Keras 3.16 on, so the padding will be read. Pass "
                    f"{masks[name]}=..., the result of compute_mask(...) of '{marking[-1]}'.",
                    stacklevel=2,
                )


def _operations_before(x):
    """The layers and operations that a symbolic tensor comes from."""
    # A tensor that comes from nowhere is its own source.
    sources = keras.tree.flatten(keras.utils.get_source_inputs(x))
    if any(source is x for source in sources):
        return []
    # A name of its own leaves the counter of default names as it is.
    return keras.Function(sources, x, name="operations_before").operations


def _drops(operation):
    return isinstance(operation, DROPPING) and not operation.supports_masking


def _marks(operation):
    if isinstance(operation, keras.layers.Embedding):
        return operation.mask_zero
    return isinstance(operation, keras.layers.Masking)
