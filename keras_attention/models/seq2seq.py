"""A sequence-to-sequence model: it trains on pairs of ids, and generates."""

from typing import Any, Self

import keras
from keras import ops, tree

from keras_attention._typing import Nested, Tensor
from keras_attention.models._batches import padded, with_a_step
from keras_attention.models._checks import (
    check_encoded,
    check_logits,
    check_padding,
    check_pair,
    check_parts,
    check_started,
    check_tokens,
)
from keras_attention.models._heads import decoded_logits, first_head_state
from keras_attention.models._pairs import PairTrainer
from keras_attention.models._stepper import Stepper
from keras_attention.ops.masks import blanked

__all__ = ["Seq2Seq"]

# In this order, so that an embedding that the encoder shares is loaded once.
PARTS = "target_embedding", "decoder", "head", "encoder"


@keras.saving.register_keras_serializable(package="keras_attention")
class Seq2Seq(PairTrainer, Stepper):
    """Turns one sequence into another, with attention (Bahdanau et al., 2015; Luong et al., 2015).

        memory, s[0], mask = encoder(x)
        o[i], s[i] = decoder(embedding(y[i-1]), s[i-1], memory)    y[-1] is the start token
        p(y[i] | y[<i], x) = softmax(head(o[i]))

    `fit(source, target)` trains it on padded ids. The model shifts the target, and masks padding in
    the memory, the decoder, the loss and the metrics. `generate(source, max_length)` searches.
    `save`, `keras.saving.load_model` and `export_generate` keep the whole model.

    Sizes: B samples, S source and T target steps, Tk memory steps, V tokens in the vocabulary.

    Args:
        encoder: a layer or model from the source to `(memory, state, mask)`: memory `(B, Tk, D)`;
            the initial state of the decoder, as `AttentionRNN` takes it, or None for zeros; mask
            `(B, Tk)` boolean, or None if all memory steps are valid. `RecurrentEncoder` is one.
        decoder: an `AttentionRNN`, or a layer with its call, `prepare`, `get_initial_state` and
            `step`.
        target_embedding: a layer from ids to vectors, such as `keras.layers.Embedding`.
        head: a layer from the output of the decoder to logits `(B, T, V)`, such as `Dense`; see
            `keras_attention.models` for heads that read more. None multiplies the output by the
            transposed table of a `keras.layers.ReversibleEmbedding`.
        start_token: the id that the first step reads. Do not put it in a target: `fit` refuses it
            in arrays, and its probability is zero.
        end_token: the id that ends every target.
        pad_token: the id that fills the rest of a target. Use it in the source too.

    Call arguments:
        inputs: the pair `(source, target)`. The source is what the encoder takes, any nesting of
            tensors whose first axis is the batch. The target is `(B, T)` integers: y, its end
            token, padding.
        training: whether dropout is active.

    Returns:
        Logits `(B, T, V)`. Step i predicts target i.

    Raises:
        ValueError: a part lacks a method; the head is a `Dense` that returns probabilities; two
            tokens are equal; a token is not an id; the encoder returns something else than a
            memory, a state and a mask; a target is missing; a target of `fit` has no end token, or
            a start token.

    Example:
        >>> import keras, numpy
        >>> from keras_attention import AttentionRNN, BahdanauAttention, RecurrentEncoder, Seq2Seq
        >>> gru = keras.layers.GRU(7, return_sequences=True, return_state=True)
        >>> model = Seq2Seq(
        ...     RecurrentEncoder(keras.layers.Embedding(11, 5), keras.layers.Bidirectional(gru)),
        ...     AttentionRNN(keras.layers.GRUCell(14), BahdanauAttention(5)),
        ...     target_embedding=keras.layers.Embedding(13, 5),
        ...     head=keras.layers.Dense(13),
        ...     start_token=1,
        ...     end_token=2,
        ... )
        >>> source, target = numpy.array([[3, 4, 5, 6]]), numpy.array([[7, 8, 2]])
        >>> model((source, target)).shape
        TensorShape([1, 3, 13])
        >>> model.generate(source, max_length=6).tokens.shape
        (1, 6)

    References: https://arxiv.org/abs/1409.0473, https://arxiv.org/abs/1508.04025.
    """

    def __init__(
        self,
        encoder: keras.layers.Layer,
        decoder: keras.layers.Layer,
        target_embedding: keras.layers.Layer,
        head: keras.layers.Layer | None,
        start_token: int,
        end_token: int,
        pad_token: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_parts(encoder, decoder, target_embedding, head)
        check_tokens(start_token, end_token, pad_token)
        check_padding(pad_token, encoder=encoder, head=head)
        self.encoder, self.decoder = encoder, decoder
        self.target_embedding, self.head = target_embedding, head
        self.start_token, self.end_token, self.pad_token = start_token, end_token, pad_token

    def call(self, inputs: Any, training: bool | None = None) -> Tensor:
        return self._teach(inputs, training, False)[0]

    def _teach(self, inputs, training, weights_wanted):
        """Logits and weights of all steps, each of which reads the target before it."""
        source, target = check_pair(self.name, inputs)
        self._note_form(inputs)
        target = ops.cast(target, "int32")
        tokens = ops.pad(target[:, :-1], [[0, 0], [1, 0]], constant_values=self.start_token)
        # The first step stays valid, so that a target of padding alone causes no empty row.
        valid = ops.logical_or(ops.not_equal(target, self.pad_token), _first(target))
        memory, state, mask = self._encode(source, training)
        memory = blanked(memory, mask)
        inputs = self._embed(tokens, training)
        reads = getattr(self.head, "reads", ())
        weights_wanted = weights_wanted or bool({"weights", "context"} & set(reads))
        found = self.decoder(
            inputs,
            memory,
            initial_state=state,
            sequences_mask=valid,
            memory_mask=mask,
            return_attention_scores=weights_wanted,
            training=training,
        )
        output, weights = found if weights_wanted else (found, None)
        features = {
            "inputs": inputs,
            "tokens": tokens,
            "weights": weights,
            "memory": memory,
            "memory_mask": mask,
            "source": source,
            "targets": target if training else None,
        }
        logits = decoded_logits(self, output, features, training=training)
        check_logits(self.name, logits, self.end_token)
        self._vocabulary = logits.shape[-1]
        return logits, weights

    def _encode(self, source, training=None):
        found = self.encoder(self._known(source), training=training)
        memory, state, mask = check_encoded(self.name, found)
        self._masked = mask is not None
        return memory, state, mask

    def _embed(self, tokens, training=None):
        return self.target_embedding(self._known(tokens), training=training)

    def _known(self, ids):
        known = getattr(self.head, "known", None)
        return ids if known is None else tree.map_structure(known, ids)

    def start(self, source: Nested) -> tuple[Nested, Nested]:
        """Encodes a source. Returns `(state, memory)`, with which a search over `step` starts.

        For example, `beam_search(model.step, *model.start(source), start_token=1, end_token=2,
        max_length=9)`.
        """
        source = with_a_step(padded(source, self.pad_token), self._cut_token)
        values, state, mask = self._encode(source, training=False)
        memory = self.decoder.prepare(values, mask)
        head_state = first_head_state(self.head, memory.value, mask)
        kept = source if "source" in getattr(self.head, "reads", ()) else None
        return (self.decoder.get_initial_state(memory, state), head_state), (memory, kept)

    def step(
        self, tokens: Tensor, state: Nested, memory: Nested
    ) -> tuple[Tensor, Nested, Tensor | None]:
        """Predicts the next token, as the step of a search does; see `keras_attention.search`.

        Args:
            tokens: `(N,)` int32, the last tokens.
            state, memory: from `start`; then the state of the step before.

        Returns:
            `(logits, state, weights)`. The logits of the padding and of the start token are -inf.
        """
        check_started(self.name, state=state, memory=memory)
        (decoder_state, head_state), (prepared, source) = state, memory
        inputs = self._embed(tokens, training=False)
        output, decoder_state, weights = self.decoder.step(inputs, decoder_state, prepared)
        features = {
            "inputs": inputs,
            "tokens": tokens,
            "weights": weights,
            "memory": prepared.value,
            "memory_mask": prepared.mask,
            "source": source,
            "targets": None,
        }
        logits = decoded_logits(self, output, features, state=head_state, training=False)
        if head_state is not None:
            logits, head_state = logits
        return self._allowed(logits), (decoder_state, head_state), weights

    @property
    def _cut_token(self):
        return self.pad_token if getattr(self, "_masked", False) else None

    def _memory_mask(self, memory):
        return memory[0].mask

    def _distribution(self, source, target):
        source = with_a_step(source, self._cut_token)
        logits, weights = self._teach((source, target), False, True)
        return ops.log_softmax(ops.cast(self._allowed(logits), "float32")), weights

    def _allowed(self, logits):
        """Forbids the padding and the start token."""
        token = ops.arange(logits.shape[-1])
        forbidden = ops.logical_or(token == self.pad_token, token == self.start_token)
        return ops.where(forbidden, ops.cast(-float("inf"), logits.dtype), logits)

    def get_config(self) -> dict[str, Any]:
        parts = {name: getattr(self, name) for name in PARTS}
        return {
            **super().get_config(),
            **{name: keras.saving.serialize_keras_object(part) for name, part in parts.items()},
            **{name: getattr(self, name) for name in ("start_token", "end_token", "pad_token")},
        }

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Self:
        parts = {
            name: keras.saving.deserialize_keras_object(config[name], custom_objects)
            for name in PARTS
        }
        return cls(**{**config, **parts})


def _first(target):
    return ops.arange(ops.shape(target)[1]) == 0
