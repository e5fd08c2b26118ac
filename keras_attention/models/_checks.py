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
# What must hold. How to fix it.
RULES = {
    "decoder": "`decoder` must be an AttentionRNN, or a layer with prepare, get_initial_state, "
    "step",
    "outputs": "`decoder` must return its outputs alone. Leave `return_state` out.",
    "head": "`head` must be a layer that returns logits, or None. Pass "
    "keras.layers.Dense(vocabulary_size).",
    "logits": "`head` must return logits. Leave the activation out.",
    "hard": "with a HardAttention head, `decoder` must not depend on what it reads. Pass "
    'AttentionRNN(cell, attention, query="current", output_mode="cell"), without input_feeding.',
    "tied": "the head makes its logits with the transposed target embedding, so `target_embedding` "
    "must be a keras.layers.ReversibleEmbedding. Or pass "
    "head=keras.layers.Dense(vocabulary_size).",
    "pair": "the model takes the pair (source, target). A data set for `fit` yields ((source, "
    "target), target). To decode, call generate(source, max_length).",
    "target": "the target must be ids of shape (batch, steps). Pad lists of ids with "
    "keras.utils.pad_sequences.",
    "three": "the encoder must return (memory, state, mask). A layer may return None for the state "
    "or the mask. A functional model may not: return zeros, and a mask of ones.",
    "encoded": "the encoder must return (memory, state, mask): vectors (batch, steps, features), "
    "states of the cell as a list or None, and a boolean mask or None. Make the mask of ids, such "
    "as source != 0.",
    "all logits": "`head` must return a logit for every token of the vocabulary. Pass "
    "keras.layers.Dense(vocabulary_size).",
    "source ids": "the source must be integer ids, as in training. Cast them: source.astype(int).",
    "target ids": "the target must be integer ids of shape (batch, steps). Pass lists of ids, or "
    "cast them: target.astype(int).",
    "class_weight": "`class_weight` must be None, because Keras would take the position of the "
    "largest id of a target for its class. Weigh samples with sample_weight, (batch,), or tokens "
    "with one (batch, steps).",
    "loss": "`loss` must take logits. Leave it out. Pass "
    "keras.losses.SparseCategoricalCrossentropy(from_logits=True).",
    "start token": "the target must not contain the start token. Leave it out: the model puts it "
    "in front itself.",
    "end token": "every target must contain the end token before its padding. Append it to each "
    "sequence before you pad it.",
}


def check(model: str, rule: str, right: Any, given: Any) -> None:
    """Refuses what breaks one of the `RULES`."""
    if not right:
        expected, _, remedy = RULES[rule].partition(". ")
        refuse(model, expected, given, remedy)


def check_parts(encoder: Any, decoder: Any, target_embedding: Any, head: Any) -> None:
    for name, part in (("encoder", encoder), ("target_embedding", target_embedding)):
        if not isinstance(part, keras.layers.Layer):
            refuse("Seq2Seq", f"`{name}` must be a layer", part, made(part))
    function = getattr(head, "activation", None)
    feeds = getattr(decoder, "query", None) == "previous" or getattr(decoder, "input_feeding", 0)
    tied = head is None or getattr(head, "tied", False)
    reversible = isinstance(target_embedding, keras.layers.ReversibleEmbedding)
    check("Seq2Seq", "decoder", all(hasattr(decoder, name) for name in INTERFACE), decoder)
    check("Seq2Seq", "outputs", not getattr(decoder, "return_state", False), decoder)
    check("Seq2Seq", "head", head is None or isinstance(head, keras.layers.Layer), head)
    check("Seq2Seq", "logits", function not in PROBABILITIES, getattr(function, "__name__", None))
    check("Seq2Seq", "hard", not (isinstance(head, HardAttention) and feeds), decoder)
    check("Seq2Seq", "tied", not tied or reversible, target_embedding)


def check_tokens(start_token: Any, end_token: Any, pad_token: Any) -> None:
    tokens = {"start_token": start_token, "end_token": end_token, "pad_token": pad_token}
    for name, token in tokens.items():
        check_token("Seq2Seq", name, token)
    if end_token in (start_token, pad_token):
        refuse("Seq2Seq", "`end_token` must differ from `start_token` and `pad_token`", tokens)


def check_pair(model: str, inputs: Any) -> tuple[Any, Any]:
    check(model, "pair", isinstance(inputs, (tuple, list)) and len(inputs) == 2, inputs)
    source, target = inputs
    check(model, "target", len(getattr(target, "shape", ())) == 2, target)
    return source, target


def check_encoded(model: str, found: Any) -> tuple[Any, Any, Any]:
    """What an encoder returned: a memory, a state and a mask."""
    if not isinstance(found, (tuple, list)) or len(found) != 3:
        check(model, "three", False, Words(counted(found)))
    memory, _, mask = found
    right = is_tensor(memory, "float", None, None, None)
    if not right or not (mask is None or is_tensor(mask, "bool", *memory.shape[:2])):
        check(model, "encoded", False, Words(tree.map_structure(described, tuple(found))))
    return tuple(found)


def check_started(model: str, **given: Any) -> None:
    """State and memory, which are pairs: one part is that of the decoder, one that of the head."""
    for name, pair in given.items():
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            remedy = "Write state, memory = model.start(source)."
            refuse(model, f"`{name}` must come from `start`", pair, remedy)


def check_logits(model: str, logits: Any, end_token: int) -> None:
    """Whether the head has a logit for the end token."""
    size = logits.shape[-1]
    if is_known(size) and size <= end_token:
        check(model, "all logits", False, Words(f"{size}, without the end token, {end_token}"))


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
    cut = ids and source.dtype.kind == "f" and "int" in form.get("dtype", "")
    check(model, "source ids", not cut, source)


def check_target_ids(model: str, target: Any) -> None:
    right = getattr(target, "ndim", 0) == 2 and target.dtype.kind in "iu"
    check(model, "target ids", right, target)


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
    for rule, token, wrong in (("start", start_token, started), ("end", end_token, endless)):
        if wrong.any():
            rows = f"{wrong.sum()} wrong rows of {len(target)}, the first is row {wrong.argmax()}"
            check(model, f"{rule} token", False, Words(f"{rows} (token {token})"))


def check_class_weight(model: str, given: Any) -> None:
    check(model, "class_weight", given is None, given)


def check_loss(loss: Any) -> None:
    config = loss.get_config() if isinstance(loss, keras.losses.Loss) else {}
    check("Seq2Seq", "loss", not isinstance(loss, str), loss)
    given = Words("a loss with from_logits=False")
    check("Seq2Seq", "loss", config.get("from_logits") is not False, given)
