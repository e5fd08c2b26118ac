"""Checks of the parts of a model and of what it is called with."""

import inspect
from typing import Any

import keras
import numpy as np
from keras import tree

from keras_attention._spec import Description, check_token, is_tensor, kind_of, raise_value_error
from keras_attention.attention.checked_layer import check_directions
from keras_attention.decoder import DecoderStack
from keras_attention.seq2seq.hard_attention import HardAttention

INTERFACE = "prepare", "get_initial_state", "step"
PROBABILITIES = keras.activations.softmax, keras.activations.sigmoid
READABLE = {"inputs", "tokens", "context", "weights", "memory", "memory_mask", "source", "targets"}
# What must hold. How to fix it.
CONSTRAINTS = {
    # The parts.
    "encoder": "`encoder` must be a layer. Make one, such as RecurrentEncoder(embedding, rnn).",
    "embedding": "`target_embedding` must be a layer. Make one, such as "
    "keras.layers.Embedding(vocabulary_size, features).",
    "decoder": "`decoder` must be an AttentionRNN, or a layer with prepare, get_initial_state, "
    "step",
    "outputs": "`decoder` must return its outputs alone. Leave `return_state` out.",
    "head": "`head` must be a layer that returns logits, or None. Pass "
    "keras.layers.Dense(vocabulary_size).",
    "logits": "`head` must return logits. Leave the activation out.",
    "hard": "with a HardAttention head, `decoder` must not depend on what it reads. Pass "
    'AttentionRNN(cell, attention, query="current", output_mode="cell"), without input_feeding.',
    "tied": "the head makes its logits with the transposed target embedding, so `target_embedding` "
    "must be a keras.layers.ReversibleEmbedding, or another layer whose call has `reverse`. Or "
    "pass head=keras.layers.Dense(vocabulary_size).",
    "reads": f"`reads` of the head must name what a head can read: {', '.join(sorted(READABLE))}",
    "end": "`end_token` must differ from `start_token` and `pad_token`",
    "padding": "`pad_token` must be the same in the model, its encoder and its head",
    "models": "`models` must be a list of Seq2Seq models. To join both directions, make an "
    "Ensemble of each direction first.",
    "tokens": "the models must have the same start_token, end_token and pad_token",
    "vocabulary": "both models must have one vocabulary",
    # What they return.
    "encoded": "the encoder must return (memory, state, mask), (memory, state) or one memory: "
    "vectors (batch, steps, features), states of the cell as a list or None, and a boolean mask or "
    "None; of several memories, lists of vectors and of masks. Make the mask of ids, such as "
    "source != 0. A functional model cannot return None: leave the mask out, and return zeros.",
    "mask": "the encoder must return a mask, as at the first call, because padding is cut off. "
    "Make a new Seq2Seq of the same parts.",
    "all logits": "`head` must return a logit for every token, the end token too. Pass "
    "keras.layers.Dense(vocabulary_size).",
    # Calls and training.
    "pair": "the model takes the pair (source, target). Train with fit(source, target), or with a "
    "data set of ((source, target), target); several sources are one, ((first, second), target). "
    "To decode, call generate(source, max_length).",
    "alone": "training and evaluation need a source and its target. Call fit(source, target), or "
    "pass a data set of ((source, target), target).",
    "again": "the target must stand in the pair too. A data set yields ((source, target), target); "
    "with two sources, (((first, second), target), target).",
    "sources": "the encoder reads several sources. Pass them as one, fit((first, second), target) "
    "or generate((first, second), max_length); a data set yields "
    "(((first, second), target), target).",
    "one argument": "several sources are one argument. Call generate((first, second), max_length).",
    "source ids": "the source must be integer ids, as in training. Cast them: source.astype(int).",
    "target ids": "the target must be integer ids of shape (batch, steps). Pass lists of ids, or "
    "cast them: target.astype(int).",
    "start_token": "the target must not contain the start token. Leave it out: the model puts it "
    "in front itself.",
    "end_token": "every target must contain the end token before its padding. Append it to each "
    "sequence before you pad it.",
    "class_weight": "`class_weight` must be None, because Keras would take the position of the "
    "largest id of a target for its class. Weigh samples with sample_weight, (batch,), or tokens "
    "with one (batch, steps).",
    "loss": "`loss` must be one loss and must take logits. Leave it out. Pass "
    "keras.losses.SparseCategoricalCrossentropy(from_logits=True).",
    # Generating.
    "started": "`state` and `memory` must come from `start`. Write state, memory = "
    "model.start(source).",
    "traced": "generate and log_probability take arrays. Inside a compiled function, call "
    "`search_batch`.",
    "strings": "generate and log_probability take ids. Look the tokens up in the vocabulary. An "
    "export takes strings: export_generate(tokenize=...).",
    "batch": "generate and log_probability take arrays whose first axis is the sample. Write "
    "[[3, 4, 5]] for one sample.",
    "samples": "all arrays must have the same number of samples as their first axis, at least one. "
    "Pass one target, or one prefix, for each source.",
    # Exporting.
    "backend": "the backend must be tensorflow. Save the model as a .keras file, and load it with "
    "KERAS_BACKEND=tensorflow.",
    "path": "`path` must be a new or empty folder, or a SavedModel, which is replaced. Choose "
    "another path.",
    "tokenize": "`tokenize` must be a function or None",
    "detokenize": "`detokenize` must be a function or None",
    "tracked": "`tracked` must be a list of tables, tokenizers and layers. Write tracked=[...].",
    "tokenized": "`tokenize` must return ids (batch, steps). Look strings up in the vocabulary, "
    "and pad ragged ids: ids.to_tensor().",
}


def check(model: str, rule: str, right: Any, received: Any) -> None:
    """Refuses what breaks one of the `CONSTRAINTS`."""
    if not right:
        expected, _, remedy = CONSTRAINTS[rule].partition(". ")
        raise_value_error(model, expected, received, remedy)


def check_parts(
    encoder: Any, decoder: Any, target_embedding: Any, head: Any, tokens: dict[str, Any]
) -> None:
    """The arguments of a `Seq2Seq`."""
    for name, token in tokens.items():
        check_token("Seq2Seq", name, token)
    start, end, pad = tokens.values()
    padding = [getattr(part, "pad_token", pad) for part in (encoder, head)]
    function, reads = getattr(head, "activation", None), getattr(head, "reads", ())
    feeds = getattr(decoder, "query", None) == "previous" or getattr(decoder, "input_feeding", 0)
    feeds = feeds or isinstance(decoder, DecoderStack)
    tied = head is None or getattr(head, "tied", False)
    call = getattr(target_embedding, "call", check_parts)
    reversible = "reverse" in inspect.signature(call).parameters
    for rule, right, received in (
        ("encoder", isinstance(encoder, keras.layers.Layer), encoder),
        ("embedding", isinstance(target_embedding, keras.layers.Layer), target_embedding),
        ("decoder", all(hasattr(decoder, name) for name in INTERFACE), decoder),
        ("outputs", not getattr(decoder, "return_state", False), decoder),
        ("head", head is None or isinstance(head, keras.layers.Layer), head),
        ("logits", function not in PROBABILITIES, getattr(function, "__name__", None)),
        ("hard", not (isinstance(head, HardAttention) and feeds), decoder),
        ("tied", not tied or reversible, target_embedding),
        ("reads", READABLE.issuperset(reads), reads),
        ("end", end not in (start, pad), tokens),
        ("padding", padding == [pad, pad], [pad, *padding]),
    ):
        check("Seq2Seq", rule, right, received)
    check_directions("Seq2Seq", encoder)


def check_pair(model: str, inputs: Any) -> tuple[Any, Any]:
    check(model, "pair", isinstance(inputs, (tuple, list)) and len(inputs) == 2, inputs)
    source, target = inputs
    check(model, "target ids", len(getattr(target, "shape", ())) == 2, target)
    return source, target


def check_encoded(model: str, encoded: Any) -> tuple[Any, Any, Any]:
    """Returns (memory, state, mask) of what an encoder returned, lists for several memories.

    An omitted mask is the one that Keras passes on with the memory, which training reads too.
    """
    parts = (encoded, None) if hasattr(encoded, "shape") else encoded
    right = isinstance(parts, (tuple, list)) and len(parts) in (2, 3)
    memory, state, mask = (*parts, None)[:3] if right else (None, None, None)
    memories = tree.flatten(memory)
    masks = [None] * len(memories) if mask is None else tree.flatten(mask)
    right = len(masks) == len(memories) and all(
        is_tensor(x, "float", None, None, None)
        and (one is None or is_tensor(one, "bool", *x.shape[:2]))
        for x, one in zip(memories, masks, strict=True)
    )
    kinds = [kind_of(getattr(x, "dtype", "")) for x in tree.flatten(state)]
    check(model, "encoded", right and "bool" not in kinds, encoded)
    pairs = zip(memories, masks, strict=True)
    masks = [_mask_of(x) if one is None else one for x, one in pairs]
    return (memories, state, masks) if tree.is_nested(memory) else (memory, state, *masks)


def _mask_of(memory):
    """Returns the mask that Keras passes on with a memory, or None."""
    return _Masked(name="masked", autocast=False)(memory)[1]


class _Masked(keras.layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True

    def call(self, memory, mask=None):
        return memory, mask


def check_targets(model: Any, target: Any) -> None:
    """Every row of an array must have an end token, otherwise the model never learns to end.

    It holds no start token, to which a search gives no probability.
    """
    if not isinstance(target, np.ndarray):
        return
    check(model.name, "target ids", target.ndim == 2 and target.dtype.kind in "iu", target)
    started = (target == model.start_token).any(axis=1) & (model.start_token != model.pad_token)
    unpadded = np.cumsum(target == model.pad_token, axis=1) == 0
    endless = ~((target == model.end_token) & unpadded).any(axis=1)
    for rule, wrong in (("start_token", started), ("end_token", endless)):
        if wrong.any():
            rows = f"{wrong.sum()} wrong rows of {len(target)}, the first is row {wrong.argmax()}"
            check(model.name, rule, False, Description(f"{rows} (token {getattr(model, rule)})"))
