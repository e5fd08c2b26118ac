"""Checks of the parts of a model and of what it is called with."""

from typing import Any

import keras
import numpy as np

from keras_attention._checks import check_token, described
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
        check_token(name, token)
    if end_token in (start_token, pad_token):
        raise ValueError(
            f"Seq2Seq: `end_token` must differ from `start_token` and `pad_token`; "
            f"received {tokens}."
        )


def check_pair(inputs: Any) -> tuple[Any, Any]:
    if not isinstance(inputs, (tuple, list)) or len(inputs) != 2:
        raise ValueError(
            "Seq2Seq: the model takes the pair (source, target); received "
            f"{described(inputs)}. A data set for `fit` yields ((source, target), target). To "
            "decode, call generate(source, max_length)."
        )
    source, target = inputs
    if len(getattr(target, "shape", ())) != 2:
        raise ValueError(
            "Seq2Seq: the target must be ids of shape (batch, steps); received "
            f"{described(target)}. Pad lists of ids with keras.utils.pad_sequences."
        )
    return source, target


def check_padding(pad_token: int, **parts: Any) -> None:
    """A part that has a `pad_token` must have that of the model."""
    for name, part in parts.items():
        own = getattr(part, "pad_token", pad_token)
        if own != pad_token:
            raise ValueError(
                f"Seq2Seq: `pad_token` must be the same in the model and in its {name}; received "
                f"{pad_token} and {own}."
            )


def check_targets(model: str, target: Any, end_token: int, pad_token: int) -> None:
    """Every row of an array must have an end token, otherwise the model never learns to end."""
    if not isinstance(target, np.ndarray):
        return
    if target.ndim != 2 or target.dtype.kind not in "iu":
        raise ValueError(
            f"{model}: the target must be integer ids of shape (batch, steps); received "
            f"{described(target)}."
        )
    ended = np.cumsum(target == end_token, axis=1) > 0
    wrong = np.flatnonzero(~ended.any(axis=1) | (~ended & (target == pad_token)).any(axis=1))
    if wrong.size:
        raise ValueError(
            f"{model}: every target must contain the end token, {end_token}, before its padding; "
            f"{wrong.size} of {len(target)} do not, the first in row {wrong[0]}. Append it to each "
            "sequence before you pad it."
        )


def check_loss(loss: Any) -> None:
    config = loss.get_config() if isinstance(loss, keras.losses.Loss) else {}
    if isinstance(loss, str) or config.get("from_logits") is False:
        given = repr(loss) if isinstance(loss, str) else "a loss with from_logits=False"
        raise ValueError(
            f"Seq2Seq: `loss` must take logits; received {given}. Leave it out, or pass "
            " keras.losses.SparseCategoricalCrossentropy(from_logits=True)."
        )
