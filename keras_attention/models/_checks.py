"""Checks of the parts of a model and of what it is called with."""

from typing import Any

import keras
import numpy as np
from keras import tree

from keras_attention._spec import check_token, counted, described, dtype_of, fits, is_floating
from keras_attention.models.hard_attention import HardAttention

INTERFACE = "prepare", "get_initial_state", "step"


def check_parts(encoder: Any, decoder: Any, target_embedding: Any, head: Any) -> None:
    for name, part in (("encoder", encoder), ("target_embedding", target_embedding)):
        if not isinstance(part, keras.layers.Layer):
            raise ValueError(f"Seq2Seq: `{name}` must be a layer; received {described(part)}.")
    missing = [name for name in INTERFACE if not hasattr(decoder, name)]
    if missing:
        raise ValueError(
            "Seq2Seq: `decoder` must be an AttentionRNN, or a layer with its methods "
            f"{', '.join(INTERFACE)}; received {described(decoder)}, without {', '.join(missing)}."
        )
    if getattr(decoder, "return_state", False):
        raise ValueError(
            "Seq2Seq: `decoder` must return its outputs alone; leave `return_state` out."
        )
    if head is not None and not isinstance(head, keras.layers.Layer):
        raise ValueError(
            "Seq2Seq: `head` must be a layer that returns logits, such as "
            f"keras.layers.Dense(vocabulary_size), or None; received {described(head)}."
        )
    function = getattr(head, "activation", None)
    if function in (keras.activations.softmax, keras.activations.sigmoid):
        raise ValueError(
            f"Seq2Seq: `head` must return logits, but its activation makes probabilities of them; "
            f"received activation={function.__name__!r}. Leave the activation out."
        )
    feeds = getattr(decoder, "query", None) == "previous" or getattr(decoder, "input_feeding", 0)
    if isinstance(head, HardAttention) and feeds:
        raise ValueError(
            "Seq2Seq: with a HardAttention head, `decoder` must not depend on what it reads. Pass "
            'AttentionRNN(cell, attention, query="current", output_mode="cell"), without '
            "input_feeding."
        )
    tied = head is None or getattr(head, "tied", False)
    if tied and not isinstance(target_embedding, keras.layers.ReversibleEmbedding):
        raise ValueError(
            "Seq2Seq: the head makes its logits with the transposed target embedding, so "
            "`target_embedding` must be a keras.layers.ReversibleEmbedding; received "
            f"{described(target_embedding)}. Or pass head=keras.layers.Dense(vocabulary_size)."
        )


def check_tokens(start_token: Any, end_token: Any, pad_token: Any) -> None:
    tokens = {"start_token": start_token, "end_token": end_token, "pad_token": pad_token}
    for name, token in tokens.items():
        check_token("Seq2Seq", name, token)
    if end_token in (start_token, pad_token):
        raise ValueError(
            f"Seq2Seq: `end_token` must differ from `start_token` and `pad_token`; "
            f"received {tokens}."
        )


def check_pair(model: str, inputs: Any) -> tuple[Any, Any]:
    if not isinstance(inputs, (tuple, list)) or len(inputs) != 2:
        raise ValueError(
            f"{model}: the model takes the pair (source, target); received "
            f"{described(inputs)}. A data set for `fit` yields ((source, target), target). To "
            "decode, call generate(source, max_length)."
        )
    source, target = inputs
    if len(getattr(target, "shape", ())) != 2:
        raise ValueError(
            f"{model}: the target must be ids of shape (batch, steps); received "
            f"{described(target)}. Pad lists of ids with keras.utils.pad_sequences."
        )
    return source, target


def check_encoded(model: str, found: Any) -> tuple[Any, Any, Any]:
    """What an encoder returned: a memory, a state and a mask."""
    several = isinstance(found, (tuple, list))
    if not several or len(found) != 3:
        raise ValueError(
            f"{model}: the encoder must return (memory, state, mask); received "
            f"{counted(found)}. A layer may return None for the state or "
            "the mask. A functional model may not: return zeros, and a mask of ones."
        )
    memory, _, mask = found
    shape = tuple(getattr(memory, "shape", ()))
    right = len(shape) == 3 and is_floating(memory)
    if right and mask is not None:
        shapes = fits(tuple(getattr(mask, "shape", ())), shape[:2])
        right = shapes and dtype_of(mask) == "bool"
    if not right:
        parts = tree.map_structure(described, tuple(found))
        raise ValueError(
            f"{model}: the encoder must return (memory, state, mask): vectors (batch, steps, "
            "features), the states of the decoder's cell as a list or None, and a boolean mask "
            f"(batch, steps) or None; received {parts}. Collect the states in one list, and make "
            "the mask of ids, such as source != 0."
        )
    return tuple(found)


def check_started(model: str, **given: Any) -> None:
    """State and memory, which are pairs: one part is that of the decoder, one that of the head."""
    for name, pair in given.items():
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise ValueError(
                f"{model}: `{name}` must come from `start`; received {described(pair)}. Write "
                "state, memory = model.start(source)."
            )


def check_logits(model: str, logits: Any, end_token: int) -> None:
    """Whether the head has a logit for the end token."""
    if isinstance(logits.shape[-1], int) and logits.shape[-1] <= end_token:
        raise ValueError(
            f"{model}: `head` must return a logit for every token of the vocabulary; received "
            f"{logits.shape[-1]}, without the end token, {end_token}. Pass "
            "keras.layers.Dense(vocabulary_size)."
        )


def check_padding(pad_token: int, **parts: Any) -> None:
    """A part with a `pad_token` must have the `pad_token` of the model."""
    for name, part in parts.items():
        own = getattr(part, "pad_token", pad_token)
        if own != pad_token:
            raise ValueError(
                f"Seq2Seq: `pad_token` must be the same in the model and in its {name}; received "
                f"{pad_token} and {own}."
            )


def check_source(model: str, source: Any, form: Any) -> None:
    """One array of ids must hold integers, as it did when the model was built."""
    ids = isinstance(source, np.ndarray) and source.ndim == 2 and isinstance(form, dict)
    if ids and source.dtype.kind == "f" and "int" in form.get("dtype", ""):
        raise ValueError(
            f"{model}: the source must be integer ids, as in training; received "
            f"{described(source)}. Cast them: source.astype(int)."
        )


def check_target_ids(model: str, target: Any) -> None:
    if getattr(target, "ndim", 0) != 2 or target.dtype.kind not in "iu":
        raise ValueError(
            f"{model}: the target must be integer ids of shape (batch, steps); received "
            f"{described(target)}. Pass lists of ids, or cast them: target.astype(int)."
        )


def check_targets(
    model: str, target: Any, start_token: int, end_token: int, pad_token: int
) -> None:
    """Every row of an array must have an end token, otherwise the model never learns to end.

    It holds no start token, to which a search gives no probability.
    """
    if not isinstance(target, np.ndarray):
        return
    check_target_ids(model, target)
    wrong = np.flatnonzero((target == start_token).any(axis=1) & (start_token != pad_token))
    if wrong.size:
        raise ValueError(
            f"{model}: the target must not contain the start token, {start_token}: the model puts "
            f"it in front itself. {wrong.size} of {len(target)} do, the first in row {wrong[0]}. "
            "Leave it out."
        )
    ended = np.cumsum(target == end_token, axis=1) > 0
    wrong = np.flatnonzero(~ended.any(axis=1) | (~ended & (target == pad_token)).any(axis=1))
    if wrong.size:
        raise ValueError(
            f"{model}: every target must contain the end token, {end_token}, before its padding; "
            f"{wrong.size} of {len(target)} do not, the first in row {wrong[0]}. Append it to each "
            "sequence before you pad it."
        )


def check_class_weight(model: str, given: Any) -> None:
    if given is not None:
        raise ValueError(
            f"{model}: `class_weight` must be None, because Keras would treat the position of the "
            f"largest id of a target as its class; received {given!r:.80}. Weigh samples with "
            "sample_weight, an array (batch,), or tokens with one (batch, steps)."
        )


def check_loss(loss: Any) -> None:
    config = loss.get_config() if isinstance(loss, keras.losses.Loss) else {}
    if isinstance(loss, str) or config.get("from_logits") is False:
        given = repr(loss) if isinstance(loss, str) else "a loss with from_logits=False"
        raise ValueError(
            f"Seq2Seq: `loss` must take logits; received {given}. Leave it out, or pass "
            " keras.losses.SparseCategoricalCrossentropy(from_logits=True)."
        )
