"""The model of Yang et al. (2016): words to sentences to a document to its class."""

import keras
from keras import layers, ops

from keras_attention import HierarchicalAttention

POOLINGS = ("attention", "average")
# "gru" encodes words and sentences, "words" encodes words alone. "ngrams" has a model of its own.
ENCODERS = ("ngrams", "gru", "words")


@keras.saving.register_keras_serializable(package="keras_attention_examples")
class AveragePooling(layers.Layer):
    """The average of the valid steps, `(N, T, D)` to `(N, D)`; zero where there is none."""

    def call(self, inputs, mask=None, return_attention_scores=False, training=None):
        valid = ops.ones_like(inputs[..., 0], "bool") if mask is None else mask
        shares = ops.cast(valid, self.compute_dtype)
        shares /= ops.maximum(ops.sum(shares, axis=1, keepdims=True), 1)
        # Padding may hold anything, which a weight of zero would not remove.
        inputs = ops.where(ops.expand_dims(valid, 2), inputs, 0.0)
        pooled = ops.einsum("nt,ntd->nd", shares, inputs)
        return (pooled, shares) if return_attention_scores else pooled

    def compute_mask(self, inputs, mask=None):
        return None


@keras.saving.register_keras_serializable(package="keras_attention_examples")
class AverageHierarchy(HierarchicalAttention):
    """The same hierarchy, with the average in place of attention."""

    def make_pooling(self, name, units, seed):
        return AveragePooling(name=name, dtype=self.dtype_policy)


def build_model(words, classes, pooling, encoder, embedding, units, dropout, word_dropout):
    """Builds the model that is trained, and a reader on the same layers that shows the weights.

    Both take word ids `(B, S, W)`, 0 for padding. The model returns logits `(B, classes)`, the
    reader `probabilities`, `word_weights` `(B, S, W)` and `sentence_weights` `(B, S)`. `units` is
    the width of each direction of a GRU; `dropout` drops features of all words and of the document,
    `word_dropout` words.
    """

    def encode(name):
        if (encoder, name) == ("words", "sentence_encoder"):
            return None
        return layers.Bidirectional(layers.GRU(units, return_sequences=True), name=name)

    hierarchy_class = HierarchicalAttention if pooling == "attention" else AverageHierarchy
    hierarchy = hierarchy_class(
        2 * units,
        word_encoder=encode("word_encoder"),
        sentence_encoder=encode("sentence_encoder"),
        name="hierarchy",
    )
    ids = keras.Input((None, None), dtype="int32", name="ids")
    x = layers.Embedding(words, embedding, mask_zero=True, name="embedding")(ids)
    x = layers.Dropout(word_dropout, noise_shape=(None, None, None, 1))(x)
    # A feature is dropped in the whole document, so a word is the same everywhere in it.
    x = layers.Dropout(dropout, noise_shape=(None, 1, 1, None))(x)
    x, (word_weights, sentence_weights) = hierarchy(x, return_attention_scores=True)
    x = layers.Dropout(dropout)(x)
    logits = layers.Dense(classes, name="classes")(x)
    reader = keras.Model(
        ids,
        {
            "probabilities": layers.Softmax(name="probabilities")(logits),
            "word_weights": word_weights,
            "sentence_weights": sentence_weights,
        },
    )
    return keras.Model(ids, logits), reader
