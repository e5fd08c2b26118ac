"""Words to sentences, sentences to a document."""

import contextlib
import inspect
import re
import warnings

import keras
from keras import ops

from keras_attention._checks import (
    LAST_SEED,
    check_choice,
    check_positive_int,
    check_rate,
    check_seed,
    check_width,
    described,
    fits,
    is_cell,
    made,
    shape_of,
)
from keras_attention.layers._calls import CheckedLayer, check_mask
from keras_attention.layers.pooling import AttentionPooling
from keras_attention.layers.scoring import NORMALIZERS
from keras_attention.ops.masks import blanked

__all__ = ["HierarchicalAttention"]

# A length to try an encoder with where it is not known yet.
_PROBE = 7


@keras.saving.register_keras_serializable(package="keras_attention")
class HierarchicalAttention(CheckedLayer, keras.layers.Layer):
    """A vector for a document of sentences of words (Yang et al., 2016).

        h[b,i,:] = word_encoder(x[b,i,:])
        s[b,i]   = sum_t a[b,i,t] h[b,i,t]        a from `AttentionPooling` over the words
        g[b,:]   = sentence_encoder(s[b,:])
        v[b]     = sum_i a'[b,i] g[b,i]           a' from `AttentionPooling` over the sentences

    Sizes: B documents, S sentences, W words, D features of a word, E of an encoded word, F of an
    encoded sentence.

    A sentence is valid if one of its words is. All sentences of a batch go through the word encoder
    in one call, as `(B S, W, D)`; an encoder whose call has a `mask` gets it, and padding is zeros
    to it. Padding then changes nothing for recurrent and per-step encoders, and for one
    convolution; behind a first layer with a bias a convolution sees padding that is zero no more.

    Args:
        units: the width in which words are compared with the query of the words; required.
        sentence_units: the same of the sentences; `units` if not given.
        word_encoder: a layer or model from `(N, W, D)` to `(N, W, E)`, such as a bidirectional GRU
            with `return_sequences=True`; if not given, words are read as they are, and E = D.
        sentence_encoder: likewise from `(B, S, E)` to `(B, S, F)`.
        normalizer, dropout, seed: of both attentions: "softmax" or "sparsemax"; the fraction of
            weights dropped in training; an integer.

    Call arguments:
        inputs: x, `(B, S, W, D)`.
        mask: `(B, S, W)` boolean; words where it is False are not read. It comes by itself from
            `Embedding(mask_zero=True)` on word ids `(B, S, W)`.
        return_attention_scores: also return the weights, as they are before dropout.
        training: whether dropout is active.

    Returns:
        v `(B, F)`; with `return_attention_scores` `(v, (a, a'))`, a `(B, S, W)` and a' `(B, S)`. A
        sentence without a valid word is never read and its weights are zero; so are the vector and
        the weights of a document without a valid word.

    Raises:
        ValueError: a number of units is not a positive integer; an encoder is no layer, or does
            not return a vector for every step; `inputs` is not of rank 4, or has another width
            than the layer was built for; the mask is not boolean or has another shape.

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

    def __init__(
        self,
        units=None,
        sentence_units=None,
        word_encoder=None,
        sentence_encoder=None,
        normalizer="softmax",
        dropout=0.0,
        seed=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        hint = (
            " It is the width in which words are compared with the learned query; write "
            "HierarchicalAttention(64)."
        )
        self.units = check_positive_int(self.name, "units", units, hint=hint)
        self.sentence_units = sentence_units
        if sentence_units is not None:
            self.sentence_units = check_positive_int(self.name, "sentence_units", sentence_units)
        for name, encoder in (("word", word_encoder), ("sentence", sentence_encoder)):
            cell = is_cell(encoder)
            if encoder is not None and (cell or not isinstance(encoder, keras.layers.Layer)):
                remedy = (
                    " A cell makes one step: pass keras.layers.RNN(cell, return_sequences=True)."
                )
                raise ValueError(
                    f"{self.name}: `{name}_encoder` must be a Keras layer or model that returns a "
                    "vector for every step, such as keras.layers.GRU(50, return_sequences=True), "
                    f"or None; received {described(encoder)}.{made(encoder) or remedy * cell}"
                )
        self.word_encoder = word_encoder
        self.sentence_encoder = sentence_encoder
        self.normalizer = check_choice(self.name, "normalizer", normalizer, tuple(NORMALIZERS))
        self.dropout = check_rate(self.name, "dropout", dropout)
        self.seed = check_seed(self.name, seed)
        # Of one seed both would draw the same numbers, and drop alike.
        seeds = (self.seed, None if seed is None else (self.seed + 1) % (LAST_SEED + 1))
        self.word_attention = self.make_pooling("word_attention", self.units, seeds[0])
        self.sentence_attention = self.make_pooling(
            "sentence_attention", self.sentence_units or self.units, seeds[1]
        )
        self.supports_masking = True

    def make_pooling(self, name, units, seed):
        """The layer that reads the words, or the sentences: `(N, T, D)` to `(N, D)`.

        For subclasses that pool otherwise; its call takes what that of `AttentionPooling` takes.
        """
        return AttentionPooling(
            units,
            normalizer=self.normalizer,
            dropout=self.dropout,
            seed=seed,
            name=name,
            dtype=self.dtype_policy,
        )

    def build(self, inputs_shape):
        self._check_shape(inputs_shape)
        batch, sentences, words, features = inputs_shape
        self._size = features
        for name, rows, steps in (("word", None, words), ("sentence", batch, sentences)):
            attention = getattr(self, f"{name}_attention")
            shape = (rows, steps, features)
            encoder = getattr(self, f"{name}_encoder")
            if encoder is not None:
                # A symbolic call builds any layer and tells the shape of its result; one more, of
                # a known length, finds a layer that shortens.
                for length in (steps, steps or _PROBE):
                    tensor = keras.KerasTensor((rows, length, shape[2]), self.compute_dtype)
                    mask = keras.KerasTensor((rows, length), "bool")
                    features = self._encoded(name, tensor, mask).shape[-1]
            if not attention.built:
                attention.build((rows, steps, features))
        self._output_size = features

    def call(self, inputs, mask=None, return_attention_scores=False, training=None):
        self._check_shape(shape_of(inputs))
        check_width(self.name, "inputs", inputs.shape, self._size)
        check_mask(self.name, "mask", mask, [inputs.shape[:3]])
        batch, sentences, words, features = ops.shape(inputs)
        inputs = ops.reshape(inputs, (batch * sentences, words, features))
        word_mask = sentence_mask = None
        if mask is not None:
            word_mask = ops.reshape(mask, (batch * sentences, words))
            sentence_mask = ops.any(mask, axis=-1)

        vectors, word_weights = self._read("word", inputs, word_mask, training)
        vectors = ops.reshape(vectors, (batch, sentences, vectors.shape[-1]))
        document, sentence_weights = self._read("sentence", vectors, sentence_mask, training)
        if not return_attention_scores:
            return document
        word_weights = ops.reshape(word_weights, (batch, sentences, words))
        return document, (word_weights, sentence_weights)

    def _read(self, name, sequence, mask, training):
        if getattr(self, f"{name}_encoder") is not None:
            # Padding must not reach the words beside it in an encoder that knows no mask.
            sequence = self._encoded(name, blanked(sequence, mask), mask)
            if mask is None:
                # A mask that the encoder makes for itself stays its own.
                mask = ops.ones_like(sequence[:, :, 0], "bool")
        return getattr(self, f"{name}_attention")(
            sequence, mask=mask, return_attention_scores=True, training=training
        )

    def _encoded(self, name, sequence, mask):
        encoder, options = getattr(self, f"{name}_encoder"), {}
        if mask is not None and "mask" in inspect.signature(encoder.call).parameters:
            # Of an empty row one step, of zeros: cuDNN takes no row without a step.
            first = ops.cumsum(ops.ones_like(mask, "int32"), axis=1) == 1
            empty = ops.logical_not(ops.any(mask, axis=1, keepdims=True))
            options = {"mask": ops.logical_or(mask, ops.logical_and(empty, first))}
        with _unwarned(encoder):
            encoded = encoder(sequence, **options)
        given = getattr(encoded, "shape", None)
        if given is None or not fits(given, (*sequence.shape[:2], None)) or given[-1] is None:
            found = given and tuple(given)
            raise ValueError(
                f"{self.name}: `{name}_encoder` must return (batch, {name}s, features), one vector "
                f"for every {name}, the features known; for {tuple(sequence.shape)} it returned "
                f"{found or type(encoded).__name__}. RNN layers do so with return_sequences=True "
                "and without return_state."
            )
        return encoded

    def _check_shape(self, shape):
        one = not any(isinstance(size, (list, tuple)) for size in shape)
        if not one or len(shape) != 4 or shape[-1] is None:
            raise ValueError(
                f"{self.name}: `inputs` must be one tensor of shape (batch, sentences, words, "
                f"features), its features known; received {tuple(shape)}."
            )

    def compute_mask(self, inputs, mask=None):
        # Words and sentences are gone.
        return None

    def compute_output_shape(self, inputs_shape):
        self._check_shape(inputs_shape)
        size = inputs_shape[-1]
        for encoder in (self.word_encoder, self.sentence_encoder):
            if encoder is not None:
                # Of no length: a Sequential encoder keeps the one that it was built with.
                size = encoder.compute_output_shape((None, None, size))[-1]
        return (inputs_shape[0], size)

    def compute_output_spec(self, *args, **kwargs):
        # By tracing: what is returned depends on return_attention_scores and on the encoders.
        return keras.Operation.compute_output_spec(self, *args, **kwargs)

    def get_config(self):
        encoders = {"word_encoder": self.word_encoder, "sentence_encoder": self.sentence_encoder}
        return {
            **super().get_config(),
            "units": self.units,
            "sentence_units": self.sentence_units,
            "normalizer": self.normalizer,
            "dropout": self.dropout,
            "seed": self.seed,
            **{
                name: None if encoder is None else keras.saving.serialize_keras_object(encoder)
                for name, encoder in encoders.items()
            },
        }

    @classmethod
    def from_config(cls, config):
        config = dict(config)
        for name in ("word_encoder", "sentence_encoder"):
            if config.get(name) is not None:
                config[name] = keras.saving.deserialize_keras_object(config[name])
        return cls(**config)


@contextlib.contextmanager
def _unwarned(encoder):
    """Models warn of any mask that they are given; where it goes on from here is known."""
    if encoder.supports_masking:
        yield
        return
    with warnings.catch_warnings():
        message = f"Layer '{re.escape(encoder.name)}'.*does not support masking"
        warnings.filterwarnings("ignore", message)
        yield
