"""Checks of the layers of a `Seq2Seq`, of its calls and of its targets."""

import inspect

import keras
import numpy as np
from keras import tree

from keras_attention._spec import Description, check_token, is_tensor, kind_of, raise_value_error
from keras_attention._typing import Nested, Tensor
from keras_attention.attention.checked_layer import check_directions
from keras_attention.decoder import DecoderStack
from keras_attention.seq2seq.hard_attention import HardAttention

INTERFACE = "prepare", "get_initial_state", "step"
PROBABILITIES = keras.activations.softmax, keras.activations.sigmoid
ARGUMENTS = (
    *("encoder", "decoder", "target_embedding", "head"),
    *("start_token", "end_token", "pad_token"),
)
INDEPENDENT = 'have query="current", output_mode="cell" and no input_feeding for a HardAttention'
REVERSIBLE = (
    "keras.layers.ReversibleEmbedding, or another layer whose call has `reverse`, for this head"
)
TARGET_IDS = "the target must be integer ids of shape (batch, steps)"


def check(where: str, right: object, expected: str, received: object, remedy: str = "") -> None:
    """Raise the error of an argument unless `right`."""
    if not right:
        raise_value_error(where, expected, received, remedy)


def check_layers(*values: object) -> None:
    """Check the `ARGUMENTS` of a `Seq2Seq`."""
    arguments = dict(zip(ARGUMENTS, values, strict=True))
    encoder, decoder, embedding, head, start, end, pad = values
    for name in ARGUMENTS[4:]:
        check_token("Seq2Seq", name, arguments[name])
    layer = keras.layers.Layer
    feeds = getattr(decoder, "query", None) == "previous" or getattr(decoder, "input_feeding", 0)
    feeds = feeds or isinstance(decoder, DecoderStack)
    hard = isinstance(head, HardAttention)
    tied = head is None or getattr(head, "tied", False)
    call = getattr(embedding, "call", check_layers)
    reversible = "reverse" in inspect.signature(call).parameters
    pads = [getattr(x, "pad_token", pad) for x in (encoder, head)]
    logits = getattr(head, "activation", None) not in PROBABILITIES
    usable = all(hasattr(decoder, name) for name in INTERFACE)
    alone = not getattr(decoder, "return_state", False)
    for name, right, expected in (
        ("encoder", isinstance(encoder, layer), "must be a layer"),
        ("target_embedding", isinstance(embedding, layer), "must be a layer"),
        ("decoder", usable, f"must be an AttentionRNN, or a layer with {', '.join(INTERFACE)}"),
        ("decoder", alone, "must return its outputs alone, without `return_state`"),
        ("head", head is None or isinstance(head, layer), "must be a layer or None"),
        ("head", logits, "must return logits, without an activation"),
        ("decoder", not (hard and feeds), f"must {INDEPENDENT}"),
        ("target_embedding", not tied or reversible, f"must be a {REVERSIBLE}"),
        ("end_token", end not in (start, pad), "must differ from `start_token` and `pad_token`"),
        ("pad_token", pads == [pad, pad], "must be that of the encoder and of the head"),
    ):
        check("Seq2Seq", right, f"`{name}` {expected}", arguments[name])
    check_directions("Seq2Seq", encoder)


def check_pair(model: str, inputs: Nested) -> tuple[Nested, Tensor]:
    """Return the source and the target of a call."""
    pair = isinstance(inputs, (tuple, list)) and len(inputs) == 2
    remedy = "Train with fit(source, target), or with a data set of ((source, target), target); "
    remedy += "several sources are one, ((first, second), target). Decode with generate(source)."
    check(model, pair, "the model takes the pair (source, target)", inputs, remedy)
    source, target = inputs
    check(model, len(getattr(target, "shape", ())) == 2, TARGET_IDS, target)
    return source, target


def check_encoded(model: str, encoded: Nested) -> tuple[Nested, Nested, Nested]:
    """Return (memory, state, mask) of the outputs of an encoder, lists for several memories.

    An omitted mask is the one that Keras passes on with the memory, which training reads too.
    """
    outputs = (encoded, None) if hasattr(encoded, "shape") else encoded
    right = isinstance(outputs, (tuple, list)) and len(outputs) in (2, 3)
    memory, state, mask = (*outputs, None)[:3] if right else (None, None, None)
    memories = tree.flatten(memory)
    masks = [None] * len(memories) if mask is None else tree.flatten(mask)
    right = right and len(masks) == len(memories)
    for x, mask in zip(memories, masks, strict=False):
        right = right and is_tensor(x, "float", None, None, None)
        right = right and (mask is None or is_tensor(mask, "bool", *x.shape[:2]))
    right = right and "bool" not in [kind_of(getattr(x, "dtype", "")) for x in tree.flatten(state)]
    expected = "the encoder must return (memory, state, mask), (memory, state) or one memory: "
    expected += "vectors (batch, steps, features), states of the cell as a list or None, and a "
    expected += "boolean mask or None; of several memories, lists of vectors and of masks"
    remedy = "A functional model cannot return None: leave the mask out, and return zeros."
    check(model, right, expected, encoded, remedy)
    masks = [_mask_of(x) if y is None else y for x, y in zip(memories, masks, strict=True)]
    return (memories, state, masks) if tree.is_nested(memory) else (memory, state, *masks)


def _mask_of(memory):
    """Return the mask that Keras passes on with a memory, or None."""
    return _ReturnMask(name="mask", autocast=False)(memory)[1]


class _ReturnMask(keras.layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True

    def call(self, memory, mask=None):
        return memory, mask


def check_ids(model: str, name: str, ids: object, *sizes: int | None) -> None:
    """Check that the ids of an array are smaller than all sizes, of which None is unknown.

    A lookup of another id reads another row on TensorFlow and PyTorch, and NaN on JAX.
    """
    if not isinstance(ids, np.ndarray) or ids.dtype.kind not in "iu" or not ids.size:
        return
    size = min([x for x in sizes if x is not None], default=2**31)
    least, most = ids.min(), ids.max()
    expected = f"the ids of the {name} must be from 0 to {size - 1}"
    received = Description(f"ids from {least} to {most}")
    check(model, least >= 0 and most < size, expected, received)


def input_dim(embedding: keras.layers.Layer) -> int | None:
    """Return the number of ids of an embedding with the lookup of Keras; else None."""
    kinds = keras.layers.Embedding, keras.layers.ReversibleEmbedding
    looks_up = getattr(type(embedding), "call", None) in [x.call for x in kinds]
    return embedding.input_dim if looks_up else None


def check_targets(model: keras.Model, target: object) -> None:
    """Check that every row of an array has an end token, and no start token.

    Without an end token the model never learns to end; the start token has no probability.
    """
    if not isinstance(target, np.ndarray):
        return
    check(model.name, target.ndim == 2 and target.dtype.kind in "iu", TARGET_IDS, target)
    started = (target == model.start_token).any(axis=1) & (model.start_token != model.pad_token)
    unpadded = np.cumsum(target == model.pad_token, axis=1) == 0
    endless = ~((target == model.end_token) & unpadded).any(axis=1)
    for wrong, token, expected in (
        (started, model.start_token, "the target must not contain the start token"),
        (endless, model.end_token, "every target must contain the end token before its padding"),
    ):
        rows = f"{wrong.sum()} wrong rows of {len(target)}, the first is row {wrong.argmax()}"
        check(model.name, not wrong.any(), expected, Description(f"{rows} (token {token})"))
