"""Hierarchical attention over documents."""

import contextlib
import dataclasses
import functools
import inspect
import re
import warnings
from collections.abc import Iterator
from typing import Unpack

import keras

from keras_attention._spec import (
    MAX_SEED,
    Spec,
    check_choice,
    check_int,
    check_rate,
    check_seed,
    fits,
    instance_hint,
    is_cell,
    raise_value_error,
)
from keras_attention._typing import LayerOptions, Tensor, TensorShape
from keras_attention.attention.checked_layer import CheckedLayer, check_directions, traced
from keras_attention.attention.scoring import NORMALIZERS
from keras_attention.backend import ops
from keras_attention.layers.pooling import AttentionPooling
from keras_attention.ops.masks import zero_masked

__all__ = ["HierarchicalAttention"]

PROBE = 7  # trial length for an encoder of unknown length


@keras.saving.register_keras_serializable(package="keras_attention")
class HierarchicalAttention(CheckedLayer):
    """Encode a document of sentences to a vector (Yang et al., 2016).

        h[b,i,:] = word_encoder(x[b,i,:])
        s[b,i]   = sum_t a[b,i,t] h[b,i,t]        a from `AttentionPooling` over the words
        g[b,:]   = sentence_encoder(s[b,:])
        v[b]     = sum_i a'[b,i] g[b,i]           a' from `AttentionPooling` over the sentences

    Sizes: B documents, S sentences, W words, D features of a word, E of an encoded word, F of an
    encoded sentence.

    A sentence is valid if one of its words is. The word encoder reads all sentences of a batch in
    one call, as `(B S, W, D)`. It receives the mask if its call takes one, and zeros where words
    are masked. So padding changes nothing for recurrent encoders, for per-step encoders and for one
    convolution. A second convolution sees the bias of the first in the padding.

    Args:
        units: the width in which words are compared with the query of the words.
        sentence_units: the same for sentences; defaults to `units`.
        word_encoder: a layer or model from `(N, W, D)` to `(N, W, E)`, such as a bidirectional GRU
            with `return_sequences=True`. Without one, words are read as they are, and E = D.
        sentence_encoder: likewise from `(B, S, E)` to `(B, S, F)`.
        normalizer, dropout, seed: see `ScoringMixin`; used by both attentions.

    Weights:
        word_attention, sentence_attention: an `AttentionPooling` each, with its weights.

    Call arguments:
        inputs: x, `(B, S, W, D)`.
        mask: `(B, S, W)` boolean; words where it is False are not read. By default the mask of an
            `Embedding(mask_zero=True)` on word ids `(B, S, W)`.
        return_attention_scores: whether to return the weights too, as they are before dropout.
        training: whether dropout is active.

    Returns:
        v `(B, F)`; with `return_attention_scores` `(v, (a, a'))`, a `(B, S, W)` and a' `(B, S)`. A
        sentence without a valid word is not read, and its weights are zero. A document without a
        valid word has a vector and weights of zeros.

    Raises:
        ValueError: `units` or `sentence_units` is not a positive integer; an encoder is not a
            layer, or does not return a vector for every step; `inputs` is not of rank 4, or has
            another width than the layer was built for; the mask is not boolean or has another
            shape.

    Example:
        >>> import keras, numpy
        >>> from keras_attention import HierarchicalAttention
        >>> words = keras.layers.Embedding(50, 8, mask_zero=True)
        >>> gru = keras.layers.Bidirectional(keras.layers.GRU(5, return_sequences=True))
        >>> documents = numpy.array([[[7, 2, 0], [3, 9, 4]], [[1, 0, 0], [0, 0, 0]]])
        >>> vectors, (a, b) = HierarchicalAttention(6, word_encoder=gru)(
        ...     words(documents), return_attention_scores=True
        ... )
        >>> vectors.shape, b[1].numpy().tolist()
        (TensorShape([2, 10]), [1.0, 0.0])

    Reference: https://aclanthology.org/N16-1174, section 2.2.
    """

    CALL = Spec("inputs: float[B S W D]", "mask: bool[B S W]?")

    def __init__(
        self,
        units: int,
        sentence_units: int | None = None,
        word_encoder: keras.layers.Layer | None = None,
        sentence_encoder: keras.layers.Layer | None = None,
        normalizer: str = "softmax",
        dropout: float = 0.0,
        seed: int | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.units = check_int(self.name, "units", units)
        self.sentence_units = sentence_units
        if sentence_units is not None:
            self.sentence_units = check_int(self.name, "sentence_units", sentence_units)
        self.word_encoder = check_encoder(self.name, "word", word_encoder)
        self.sentence_encoder = check_encoder(self.name, "sentence", sentence_encoder)
        self.normalizer = check_choice(self.name, "normalizer", normalizer, tuple(NORMALIZERS))
        self.dropout = check_rate(self.name, "dropout", dropout)
        self.seed = check_seed(self.name, seed)
        # With one seed, both attentions would drop the same positions.
        other_seed = None if seed is None else (seed + 1) % (MAX_SEED + 1)
        other_units = self.sentence_units or self.units
        self.word_attention = self.make_pooling("word_attention", self.units, self.seed)
        self.sentence_attention = self.make_pooling("sentence_attention", other_units, other_seed)
        self._words = Level(self.name, "word", word_encoder, self.word_attention)
        self._sentences = Level(self.name, "sentence", sentence_encoder, self.sentence_attention)
        self.supports_masking = True

    def make_pooling(self, name: str, units: int, seed: int | None) -> keras.layers.Layer:
        """Make the attention of one level, `(N, T, D)` to `(N, D)`.

        A subclass may override it; the layer must take the call arguments of `AttentionPooling`.
        """
        return AttentionPooling(
            units,
            normalizer=self.normalizer,
            dropout=self.dropout,
            seed=seed,
            name=name,
            dtype=self.dtype_policy,
        )

    def build(self, inputs_shape: TensorShape) -> None:
        self._sizes = self.CALL.check_shapes(self.name, {"inputs": inputs_shape})
        batch, sentences, words, features = inputs_shape
        size = self._words.build((None, words, features), self.compute_dtype)
        self._sentences.build((batch, sentences, size), self.compute_dtype)

    def call(
        self,
        inputs: Tensor,
        mask: Tensor = None,
        return_attention_scores: bool = False,
        training: bool | None = None,
    ) -> Tensor | tuple[Tensor, tuple[Tensor, Tensor]]:
        batch, sentences, words, features = ops.shape(inputs)
        rows = ops.reshape(inputs, (batch * sentences, words, features))
        word_mask = sentence_mask = None
        if mask is not None:
            word_mask = ops.reshape(mask, (batch * sentences, words))
            sentence_mask = ops.any(mask, axis=-1)
        vectors, word_weights = self._words.read(rows, word_mask, training)
        vectors = ops.reshape(vectors, (batch, sentences, vectors.shape[-1]))
        document, sentence_weights = self._sentences.read(vectors, sentence_mask, training)
        if not return_attention_scores:
            return document
        return document, (ops.reshape(word_weights, (batch, sentences, words)), sentence_weights)

    def compute_mask(self, inputs: Tensor, previous_mask: Tensor = None) -> None:
        return None  # the axes of words and sentences are gone

    def compute_output_shape(self, inputs_shape: TensorShape) -> TensorShape:
        size = self.CALL.check_shapes(self.name, {"inputs": inputs_shape})["D"]
        size = self._words.output_size(size)
        return (inputs_shape[0], self._sentences.output_size(size))


@dataclasses.dataclass(frozen=True)
class Level:
    """Encode a sequence `(N, T, D)` of words or sentences, and pool it to `(N, F)`.

        h[n,:] = encoder(x[n,:])
        s[n]   = sum_t a[n,t] h[n,t]        a from the attention

    Args:
        layer: the name of the layer, for error messages.
        name: "word" or "sentence".
        encoder: a Keras layer, or None to read the sequence itself.
        attention: an `AttentionPooling`.
    """

    layer: str
    name: str
    encoder: keras.layers.Layer | None
    attention: keras.layers.Layer

    def build(self, shape: TensorShape, dtype: str) -> int | None:
        """Build encoder and attention, and return the features of the encoded sequence."""
        rows, steps, features = shape
        if self.encoder is not None:
            # Tracing builds any layer and tells the shape of its result. A second one, of known
            # length, finds a layer that shortens the sequence.
            encode_one = functools.partial(encode, self.encoder)
            for length in (steps, steps or PROBE):
                tensor = keras.KerasTensor((rows, length, shape[2]), dtype)
                mask = keras.KerasTensor((rows, length), "bool")
                encoded = traced(encode_one, tensor, mask)
                features = self._check_encoded(encoded, tensor).shape[-1]
        if not self.attention.built:
            self.attention.build((rows, steps, features))
        return features

    def read(self, sequence: Tensor, mask: Tensor, training: bool | None) -> tuple[Tensor, Tensor]:
        """Return the vectors `(N, F)` and the weights `(N, T)`."""
        if self.encoder is not None:
            # An encoder that takes no mask must not mix padding into the words beside it.
            encoded = encode(self.encoder, zero_masked(sequence, mask), mask)
            sequence = self._check_encoded(encoded, sequence)
            if mask is None:
                # Otherwise the attention would use a mask that the encoder computes itself.
                mask = ops.ones_like(sequence[:, :, 0], "bool")
        return self.attention(sequence, mask=mask, return_attention_scores=True, training=training)

    def output_size(self, features: int) -> int:
        """Return the features of the encoded sequence."""
        if self.encoder is None:
            return features
        # Without a length: a Sequential encoder keeps the one that it was built with.
        return self.encoder.compute_output_shape((None, None, features))[-1]

    def _check_encoded(self, encoded: Tensor, sequence: Tensor) -> Tensor:
        """Check that the encoder returned a vector for every step of a sequence."""
        shape = getattr(encoded, "shape", None)
        if shape is None or not fits(shape, (*sequence.shape[:2], None)) or shape[-1] is None:
            wanted = f"({sequence.shape[0]}, {sequence.shape[1]}, features)"
            expected = f"`{self.name}_encoder` must return values of shape {wanted}"
            remedy = "RNN layers do so with return_sequences=True and without return_state."
            raise_value_error(self.layer, expected, encoded, remedy)
        return encoded


def encode(encoder: keras.layers.Layer, sequence: Tensor, mask: Tensor) -> Tensor:
    """Encode a sequence, with its mask if the encoder takes one."""
    options = {}
    if mask is not None and "mask" in inspect.signature(encoder.call).parameters:
        # An empty row reads one step of zeros, because cuDNN needs a step in every row.
        first = ops.cumsum(ops.ones_like(mask, "int32"), axis=1) == 1
        empty = ops.logical_not(ops.any(mask, axis=1, keepdims=True))
        options = {"mask": ops.logical_or(mask, ops.logical_and(empty, first))}
    with _mask_warning_ignored(encoder):
        return encoder(sequence, **options)


def check_encoder(
    layer: str, name: str, encoder: keras.layers.Layer | None
) -> keras.layers.Layer | None:
    """Return the encoder, which must be None or a layer that is not a cell."""
    cell = is_cell(encoder)
    if encoder is not None and (cell or not isinstance(encoder, keras.layers.Layer)):
        remedy = "A cell makes one step: pass keras.layers.RNN(cell, return_sequences=True)."
        expected = f"`{name}_encoder` must be None, or a layer that returns a vector for every step"
        expected += ", such as keras.layers.GRU(50, return_sequences=True)"
        raise_value_error(layer, expected, encoder, instance_hint(encoder) or remedy * cell)
    check_directions(layer, encoder)
    return encoder


@contextlib.contextmanager
def _mask_warning_ignored(encoder: keras.layers.Layer) -> Iterator[None]:
    """Silence the warning of models about a mask: the level passes it to the attention itself."""
    with warnings.catch_warnings():
        for layer in _last_layers(encoder):
            if not layer.supports_masking:
                message = f"Layer '{re.escape(layer.name)}'.*does not support masking"
                warnings.filterwarnings("ignore", message)
        yield


def _last_layers(layer):
    """Yield the layers from which the output of the encoder comes."""
    yield layer
    if isinstance(layer, keras.Sequential):
        yield from _last_layers(layer.layers[-1])
    elif isinstance(layer, keras.layers.Bidirectional):
        yield from (layer.forward_layer, layer.backward_layer)
