"""Warnings of masks that Keras drops silently.

Up to Keras 3.15, the mask of an `Embedding(mask_zero=True)` propagates through recurrent layers.
From 3.16 on it does not, and an attention after them reads the padding.
"""

import contextlib
import warnings
from collections.abc import Iterator

import keras

__all__ = ["MASKS", "warn_of_dropped_masks"]

# For each argument that may be padded, the argument that takes its mask.
MASKS = {
    "value": "value_mask",
    "memory": "memory_mask",
    "context": "context_mask",
    "inputs": "mask",
}


def warn_of_dropped_masks(layer: str, arguments: dict[str, object]) -> None:
    """Warn if a call has no mask for an argument that would have one up to Keras 3.15.

    Args:
        layer: the name of the layer that is called.
        arguments: the arguments of the call by name, with the masks that Keras found. Only symbolic
            tensors record the layers that produced them.
    """
    masks = MASKS | ({"query": "query_mask"} if "context" in arguments else {})
    masked = arguments.get("attention_mask") is not None
    for name in masks.keys() & arguments.keys():
        # Of several memories, each has a mask of its own.
        given, known = (keras.tree.flatten(arguments.get(x)) for x in (name, masks[name]))
        pairs = zip(given, known if len(known) == len(given) else [None] * len(given), strict=True)
        unmasked = [x for x, mask in pairs if mask is None and not masked]
        operations = [one for x in unmasked for one in _operations_before(x)]
        # Other operations may change the steps, so that the mask does not fit any more.
        if all(_keeps_steps(x) for x in operations):
            dropped = [x.name for x in operations if _drops(x)]
            marking = [x.name for x in operations if _marks(x)]
            if dropped and marking:
                warnings.warn(
                    f"{layer}: `{name}` has no mask, so its padding will be read. From Keras "
                    f"3.16 on, recurrent layers such as '{dropped[-1]}' do not propagate masks. "
                    f"Compute the mask with compute_mask(...) of '{marking[-1]}', and pass it as "
                    f"{masks[name]}=... here and as mask=... to the recurrent layers.",
                    stacklevel=2,
                )


def _operations_before(x: object) -> Iterator[keras.Operation]:
    """Yield the layers and operations that a symbolic tensor comes from, inside models too."""
    if not keras.utils.is_keras_tensor(x):
        return
    # A KerasTensor that no layer produced is its own source.
    sources = keras.tree.flatten(keras.utils.get_source_inputs(x))
    if any(source is x for source in sources):
        return
    # Layers of the same name are an error of the model, which Keras reports when it is made. An
    # explicit name keeps Keras from using up a default one.
    with contextlib.suppress(ValueError):
        yield from _inside(keras.Function(sources, x, name="operations_before"))


def _inside(function: keras.Function) -> Iterator[keras.Operation]:
    for operation in function.operations:
        if isinstance(operation, keras.Function):
            yield from _inside(operation)
        else:
            yield operation


def _keeps_steps(operation: keras.Operation) -> bool:
    """Return whether the output has the steps of the input and, up to Keras 3.15, its mask."""
    if not isinstance(operation, keras.layers.Layer):
        return keras.tree.flatten(operation.output)[0].dtype == "bool"  # computes a mask
    if isinstance(operation, keras.layers.InputLayer) or _marks(operation):
        return True
    ours = type(operation).call.__module__.startswith("keras_attention.")
    return not ours and (_drops(operation) or operation.supports_masking)


def _drops(operation: keras.Operation) -> bool:
    recurrent = isinstance(operation, (keras.layers.RNN, keras.layers.Bidirectional))
    return recurrent and not operation.supports_masking


def _marks(operation: keras.Operation) -> bool:
    if isinstance(operation, keras.layers.Embedding):
        return operation.mask_zero
    return isinstance(operation, keras.layers.Masking)
