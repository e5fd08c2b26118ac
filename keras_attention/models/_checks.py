"""Checks of the parts of a model and of what it is called with."""

from typing import Any

import keras
import numpy as np
from keras import tree

from keras_attention._spec import (
    Words,
    check_token,
    counted,
    described,
    is_known,
    is_tensor,
    made,
    refuse,
)
from keras_attention.models.hard_attention import HardAttention

INTERFACE = "prepare", "get_initial_state", "step"
PROBABILITIES = keras.activations.softmax, keras.activations.sigmoid


def check_parts(encoder: Any, decoder: Any, target_embedding: Any, head: Any) -> None:
    for name, part in (("encoder", encoder), ("target_embedding", target_embedding)):
        if not isinstance(part, keras.layers.Layer):
            refuse("Seq2Seq", f"`{name}` must be a layer", part, made(part))
    if not all(hasattr(decoder, name) for name in INTERFACE):
        expected = f"`decoder` must be an AttentionRNN, or a layer with {', '.join(INTERFACE)}"
        refuse("Seq2Seq", expected, decoder, made(decoder))
    if getattr(decoder, "return_state", False):
        refuse("Seq2Seq", "`decoder` must return its outputs alone", Words("return_state=True"))
    if head is not None and not isinstance(head, keras.layers.Layer):
        expected = "`head` must be a layer that returns logits, such as "
        refuse("Seq2Seq", f"{expected}keras.layers.Dense(vocabulary_size), or None", head)
    function = getattr(head, "activation", None)
    if function in PROBABILITIES:
        given = Words(f"activation={function.__name__!r}")
        refuse("Seq2Seq", "`head` must return logits", given, "Leave the activation out.")
    feeds = getattr(decoder, "query", None) == "previous" or getattr(decoder, "input_feeding", 0)
    if isinstance(head, HardAttention) and feeds:
        expected = "with a HardAttention head, `decoder` must not depend on what it reads"
        remedy = 'Pass AttentionRNN(cell, attention, query="current", output_mode="cell"), without '
        refuse("Seq2Seq", expected, decoder, f"{remedy}input_feeding.")
    tied = head is None or getattr(head, "tied", False)
    if tied and not isinstance(target_embedding, keras.layers.ReversibleEmbedding):
        expected = "the head makes its logits with the transposed target embedding, so "
        expected += "`target_embedding` must be a keras.layers.ReversibleEmbedding"
        remedy = "Or pass head=keras.layers.Dense(vocabulary_size)."
        refuse("Seq2Seq", expected, target_embedding, remedy)


def check_tokens(start_token: Any, end_token: Any, pad_token: Any) -> None:
    tokens = {"start_token": start_token, "end_token": end_token, "pad_token": pad_token}
    for name, token in tokens.items():
        check_token("Seq2Seq", name, token)
    if end_token in (start_token, pad_token):
        refuse("Seq2Seq", "`end_token` must differ from `start_token` and `pad_token`", tokens)


def check_pair(model: str, inputs: Any) -> tuple[Any, Any]:
    if not isinstance(inputs, (tuple, list)) or len(inputs) != 2:
        remedy = "A data set for `fit` yields ((source, target), target). To decode, call "
        expected = "the model takes the pair (source, target)"
        refuse(model, expected, inputs, f"{remedy}generate(source, max_length).")
    source, target = inputs
    if len(getattr(target, "shape", ())) != 2:
        remedy = "Pad lists of ids with keras.utils.pad_sequences."
        refuse(model, "the target must be ids of shape (batch, steps)", target, remedy)
    return source, target


def check_encoded(model: str, found: Any) -> tuple[Any, Any, Any]:
    """What an encoder returned: a memory, a state and a mask."""
    if not isinstance(found, (tuple, list)) or len(found) != 3:
        remedy = "A layer may return None for the state or the mask. A functional model may not: "
        remedy += "return zeros, and a mask of ones."
        expected = "the encoder must return (memory, state, mask)"
        refuse(model, expected, Words(counted(found)), remedy)
    memory, _, mask = found
    right = is_tensor(memory, "float", None, None, None)
    if not right or not (mask is None or is_tensor(mask, "bool", *memory.shape[:2])):
        expected = "the encoder must return (memory, state, mask): vectors (batch, steps, "
        expected += "features), states of the cell as a list or None, and a boolean mask or None"
        parts = Words(tree.map_structure(described, tuple(found)))
        refuse(model, expected, parts, "Make the mask of ids, such as source != 0.")
    return tuple(found)


def check_started(model: str, **given: Any) -> None:
    """State and memory, which are pairs: one part is that of the decoder, one that of the head."""
    for name, pair in given.items():
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            remedy = "Write state, memory = model.start(source)."
            refuse(model, f"`{name}` must come from `start`", pair, remedy)


def check_logits(model: str, logits: Any, end_token: int) -> None:
    """Whether the head has a logit for the end token."""
    if is_known(logits.shape[-1]) and logits.shape[-1] <= end_token:
        expected = "`head` must return a logit for every token of the vocabulary"
        received = Words(f"{logits.shape[-1]}, without the end token, {end_token}")
        refuse(model, expected, received, "Pass keras.layers.Dense(vocabulary_size).")


def check_padding(pad_token: int, **parts: Any) -> None:
    """A part with a `pad_token` must have the `pad_token` of the model."""
    for name, part in parts.items():
        own = getattr(part, "pad_token", pad_token)
        if own != pad_token:
            expected = f"`pad_token` must be the same in the model and in its {name}"
            refuse("Seq2Seq", expected, Words(f"{pad_token} and {own}"))


def check_source(model: str, source: Any, form: Any) -> None:
    """One array of ids must hold integers, as it did when the model was built."""
    ids = isinstance(source, np.ndarray) and source.ndim == 2 and isinstance(form, dict)
    if ids and source.dtype.kind == "f" and "int" in form.get("dtype", ""):
        expected = "the source must be integer ids, as in training"
        refuse(model, expected, source, "Cast them: source.astype(int).")


def check_target_ids(model: str, target: Any) -> None:
    if getattr(target, "ndim", 0) != 2 or target.dtype.kind not in "iu":
        remedy = "Pass lists of ids, or cast them: target.astype(int)."
        refuse(model, "the target must be integer ids of shape (batch, steps)", target, remedy)


def check_targets(
    model: str, target: Any, start_token: int, end_token: int, pad_token: int
) -> None:
    """Every row of an array must have an end token, otherwise the model never learns to end.

    It holds no start token, to which a search gives no probability.
    """
    if not isinstance(target, np.ndarray):
        return
    check_target_ids(model, target)
    started = (target == start_token).any(axis=1) & (start_token != pad_token)
    ended = np.cumsum(target == end_token, axis=1) > 0
    endless = ~ended.any(axis=1) | (~ended & (target == pad_token)).any(axis=1)
    rules = [
        (
            started,
            f"the target must not contain the start token, {start_token}",
            "Leave it out: the model puts it in front itself.",
        ),
        (
            endless,
            f"every target must contain the end token, {end_token}, before its padding",
            "Append it to each sequence before you pad it.",
        ),
    ]
    for wrong, expected, remedy in rules:
        if wrong.any():
            rows = f"{wrong.sum()} wrong of {len(target)}, the first in row {wrong.argmax()}"
            refuse(model, expected, Words(rows), remedy)


def check_class_weight(model: str, given: Any) -> None:
    if given is not None:
        expected = "`class_weight` must be None, because Keras would take the position of the "
        expected += "largest id of a target for its class"
        remedy = "Weigh samples with sample_weight, (batch,), or tokens with one (batch, steps)."
        refuse(model, expected, given, remedy)


def check_loss(loss: Any) -> None:
    config = loss.get_config() if isinstance(loss, keras.losses.Loss) else {}
    if isinstance(loss, str) or config.get("from_logits") is False:
        given = loss if isinstance(loss, str) else Words("a loss with from_logits=False")
        remedy = "Pass keras.losses.SparseCategoricalCrossentropy(from_logits=True)."
        refuse("Seq2Seq", "`loss` must take logits", given, f"Leave it out. {remedy}")
