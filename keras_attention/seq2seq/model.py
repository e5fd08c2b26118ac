"""A sequence-to-sequence model: it trains on pairs of ids, and generates."""

from typing import Unpack

import keras
from keras import tree

from keras_attention._typing import LayerOptions, Nested, Tensor
from keras_attention.backend import ops, tree_map
from keras_attention.ops.masks import zero_masked
from keras_attention.seq2seq._batches import at_least_one_step
from keras_attention.seq2seq._checks import (
    check,
    check_encoded,
    check_ids,
    check_layers,
    check_pair,
    input_dim,
)
from keras_attention.seq2seq._generation import Generator
from keras_attention.seq2seq._input_signature import FirstCall, signature_of
from keras_attention.seq2seq._teacher_forcing import PairTrainer
from keras_attention.seq2seq._text import check_vocabularies, special_tokens, to_ids
from keras_attention.text import Tokenizer

__all__ = ["Seq2Seq"]


@keras.saving.register_keras_serializable(package="keras_attention")
class Seq2Seq(PairTrainer, Generator):
    """Turn one sequence into another, with attention (Bahdanau et al., 2015; Luong et al., 2015).

        memory, s[0], mask = encoder(x)
        o[i], s[i] = decoder(embedding(y[i-1]), s[i-1], memory)    y[-1] is the start token
        p(y[i] | y[<i], x) = softmax(head(o[i]))

    `fit(source, target)` trains it on padded ids. The model shifts the target, and masks padding in
    the memory, the decoder, the loss and the metrics. `generate(source, max_length)` searches.
    `save`, `keras.saving.load_model` and `export_generate` keep the whole model. Before
    `load_weights`, call `build()`, or the model once if its source is not ids `(B, S)`.

    With tokenizers of `keras_attention.text`, `source_text` and `target_text`, it takes and returns
    strings, and ids still. Texts are lists or arrays of strings, or data sets of TensorFlow. The
    model ends every source and target text with the end token. Text of any length fits, though
    quality falls beyond the lengths of training.

    Sizes: B samples, S source and T target steps, Tk memory steps, V tokens in the vocabulary.

    Args:
        encoder: a layer or model from the source to `(memory, state, mask)`: memory `(B, Tk, D)`;
            the initial state of the decoder, as `AttentionRNN` takes it, or None for zeros; mask
            `(B, Tk)` boolean, or None for the mask that Keras passes on with the memory; if there
            is none, all memory steps are valid. `RecurrentEncoder` is one. A functional model,
            which cannot return None, returns `(memory, state)`, or the memory alone. For a decoder
            with `MultiSource`, memory and mask are lists.
        decoder: an `AttentionRNN`, or a layer with its call, `prepare`, `get_initial_state` and
            `step`.
        target_embedding: a layer from ids to vectors, such as `keras.layers.Embedding`.
        head: a layer from the output of the decoder to logits `(B, T, V)`, such as `Dense`; see
            `keras_attention.seq2seq` for heads that read more. None multiplies the output by the
            transposed table of a `keras.layers.ReversibleEmbedding`.
        start_token: the id that the first step reads. Do not put it in a target: `fit` raises an
            error for it in arrays, and its probability is zero.
        end_token: the id that ends every target.
        pad_token: the id that fills the rest of a target, 0 by default. Use it in the source too.
        source_text: the tokenizer of the source; texts in a dictionary of sources share it.
        target_text: the tokenizer of the target, which knows the three tokens above.

    Call arguments:
        inputs: the pair `(source, target)`. The source is what the encoder takes, any nesting of
            tensors whose first axis is the batch. The target is `(B, T)` integers: y, its end
            token, padding.
        training: whether dropout is active.

    Returns:
        Logits `(B, T, V)`. Step i predicts target i.

    Raises:
        ValueError: the decoder lacks a method; the head is a `Dense` with a softmax; two
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

    # The embedding comes first, so that one which the encoder shares is loaded once.
    _arguments = (
        *("target_embedding", "decoder", "head", "encoder"),
        *("start_token", "end_token", "pad_token", "source_text", "target_text"),
    )

    def __init__(
        self,
        encoder: keras.layers.Layer,
        decoder: keras.layers.Layer,
        target_embedding: keras.layers.Layer,
        head: keras.layers.Layer | None,
        start_token: int | None = None,
        end_token: int | None = None,
        pad_token: int | None = None,
        source_text: Tokenizer | None = None,
        target_text: Tokenizer | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        given = start_token, end_token, pad_token
        tokens = special_tokens(source_text, target_text, *given)
        check_layers(encoder, decoder, target_embedding, head, *tokens)
        self.encoder, self.decoder = encoder, decoder
        self.target_embedding, self.head = target_embedding, head
        self.start_token, self.end_token, self.pad_token = tokens
        self.source_text, self.target_text = source_text, target_text
        table = getattr(encoder, "embedding", None)
        check_vocabularies(self, table and input_dim(table), input_dim(target_embedding))

    def call(self, inputs: Nested, training: bool | None = None) -> Tensor:
        return self._teacher_forcing(inputs, training, False)[0]

    def _teacher_forcing(self, inputs, training, needs_weights):
        """Return the logits and weights of all steps, each of which reads the target before it."""
        source, target = check_pair(self.name, inputs)
        target = ops.cast(target, "int32")
        if target.shape[1] == 0:  # some heads cannot read no steps
            step = ops.full((ops.shape(target)[0], 1), self.pad_token, dtype="int32")
            logits, weights = self._teacher_forcing((source, step), training, needs_weights)
            return logits[:, :0], tree_map(lambda x: x[:, :0], weights)
        tokens = ops.pad(target, [[0, 0], [1, 0]], constant_values=self.start_token)[:, :-1]
        # The first step stays valid, so that a target of padding alone causes no empty row.
        first = ops.arange(ops.shape(target)[1]) == 0
        valid = ops.logical_or(ops.not_equal(target, self.pad_token), first)
        memory, state, mask = self._encode(source, training)
        # Without the mask of the embedding: a loss of Keras would apply it to the logits too.
        vectors = ops.copy(self._embed(tokens, training))
        needs_weights = needs_weights or bool({"weights", "context"}.intersection(self._reads))
        decoded = self.decoder(
            vectors,
            memory,
            initial_state=state,
            sequences_mask=valid,
            memory_mask=mask,
            return_attention_scores=needs_weights,
            training=training,
        )
        output, weights = decoded if needs_weights else (decoded, None)
        features = {"inputs": vectors, "tokens": tokens, "weights": weights}
        features |= {"targets": target if training else None}
        features |= self._source_features(source, memory, mask)
        logits, _ = self._logits(output, features, training=training)
        if self._first_call is None:
            size = logits.shape[-1]
            expected = "`head` must return a logit for every token, the end token too"
            check(self.name, size > self.end_token, expected, size)
            self._first_call = FirstCall(signature_of(tuple(inputs)), _masks_all(mask), size)
        return logits, weights

    def _encode(self, source, training=None):
        encoded = self.encoder(self._to_unk(source), training=training)
        memory, state, mask = check_encoded(self.name, encoded)
        right = self._cut_token is None or _masks_all(mask)
        check(self.name, right, "the encoder must return a mask, as at the first call", mask)
        return tree.map_structure(zero_masked, memory, mask), state, mask

    def _check_ids(self, source, target=None, name="target"):
        """Check the ids of arrays. The head may replace those beyond the embeddings."""
        extended = hasattr(self.head, "to_unk")
        logits = self._first_call and self._first_call.vocabulary
        tables = (getattr(self.encoder, "embedding", None), self.target_embedding)
        sizes = [None if extended else input_dim(x) for x in tables]
        if tables[0] is not None:
            check_ids(self.name, "source", source, sizes[0], logits if extended else None)
        check_ids(self.name, name, target, sizes[1], logits)

    @property
    def _reads(self):
        return getattr(self.head, "reads", ())

    def _source_features(self, source, memory, mask):
        """Select the features of a source that the head reads.

        The memory is that of the encoder. A prepared `Memory` may hold other values.
        """
        names = *self._reads, *["memory"] * ("context" in self._reads)
        features = {"memory": memory, "memory_mask": mask, "source": source}
        return {name: x for name, x in features.items() if name in names}

    def _embed(self, tokens, training=None):
        return self.target_embedding(self._to_unk(tokens), training=training)

    def _to_unk(self, ids):
        """Replace ids beyond the embedding, for a head with an extended vocabulary."""
        return tree.map_structure(getattr(self.head, "to_unk", lambda x: x), ids)

    def _logits(self, output, features, state=None, training=None):
        """Return the logits of an output of the decoder, and the next state of the head."""
        if self.head is None:
            return self.target_embedding(output, reverse=True), None
        if "context" in self._reads:
            features["context"] = _context(features["weights"], features["memory"])
        options = {name: features[name] for name in self._reads}
        if state is None:
            logits = self.head(output, **options, training=training)
        else:
            logits, state = self.head(output, **options, state=state, training=training)
        if getattr(self.head, "tied", False):
            logits = self.target_embedding(logits, reverse=True)
        return logits, state

    def start(self, source: Nested) -> tuple[Nested, Nested]:
        """Encode a source. Return `(state, memory)`, from which a search over `step` starts.

        For example, `beam_search(model.step, *model.start(source), start_token=1, end_token=2,
        max_length=9)`.
        """
        source = at_least_one_step(to_ids(self, source).source, self._cut_token)
        memory, state, mask = self._encode(source, training=False)
        prepared = self.decoder.prepare(memory, mask)
        initial = getattr(self.head, "initial_state", None)
        head_state = None if initial is None else initial(memory, mask)
        state = self.decoder.get_initial_state(prepared, state), head_state
        return state, (prepared, self._source_features(source, memory, mask))

    def step(self, tokens: Tensor, state: Nested, memory: Nested) -> tuple[Tensor, Nested, Nested]:
        """Predict the next token, as the step of a search does; see `keras_attention.search`.

        Args:
            tokens: `(N,)` int32, the last tokens.
            state, memory: from `start`; then the state of the step before.

        Returns:
            `(logits, state, weights)`. The logits of the padding and of the start token are -inf.
        """
        (decoder_state, head_state), (prepared, source_features) = state, memory
        vectors = self._embed(tokens, training=False)
        output, decoder_state, weights = self.decoder.step(vectors, decoder_state, prepared)
        features = {"inputs": vectors, "tokens": tokens, "weights": weights, "targets": None}
        features |= source_features
        logits, head_state = self._logits(output, features, head_state, training=False)
        return self._allowed(logits), (decoder_state, head_state), weights

    def _memory_mask(self, memory):
        mask = memory[0].mask
        return None if tree.is_nested(mask) else mask  # no penalty covers several memories

    def _log_distribution(self, source, target):
        source = at_least_one_step(source, self._cut_token)
        logits, weights = self._teacher_forcing((source, target), False, True)
        return ops.log_softmax(ops.cast(self._allowed(logits), "float32")), weights

    def _allowed(self, logits):
        """Forbid the padding and the start token."""
        token = ops.arange(logits.shape[-1])
        forbidden = ops.logical_or(token == self.pad_token, token == self.start_token)
        return ops.where(forbidden, ops.cast(-float("inf"), logits.dtype), logits)


def _masks_all(mask):
    """Return True if all memories have a mask."""
    return all(x is not None for x in tree.flatten(mask))


def _context(weights, memory):
    """Multiply the weights by the memory; concatenate the contexts of several memories."""
    if tree.is_nested(memory):
        return ops.concatenate(list(map(_context, weights, memory)), axis=-1)
    weights = ops.cast(weights, memory.dtype)
    if len(weights.shape) == 2:
        return ops.squeeze(ops.matmul(ops.expand_dims(weights, 1), memory), 1)
    return ops.matmul(weights, memory)
