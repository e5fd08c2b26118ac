"""The model of Yang et al. (2016): words to sentences to a document to its class."""

import keras
from keras import layers, ops

from keras_attention import HierarchicalAttention

POOLINGS = ("attention", "average", "max")
# "gru" encodes words and sentences, "words" encodes words alone. "ngrams" has a model of its own.
ENCODERS = ("ngrams", "gru", "words", "none")


@keras.saving.register_keras_serializable(package="keras_attention_examples")
class PlainPooling(layers.Layer):
    """The average or the maximum of the valid steps, `(N, T, D)` to `(N, D)`.

    Without a valid step it is zero. The weight of a step is its share of the average, or the share
    of features whose maximum it holds.
    """

    def __init__(self, kind, **kwargs):
        super().__init__(**kwargs)
        self.kind = kind
        self.supports_masking = True

    def call(self, inputs, mask=None, return_attention_scores=False, training=None):
        valid = ops.ones_like(inputs[:, :, :1], "bool")
        if mask is not None:
            valid = ops.expand_dims(mask, 2)
        if self.kind == "average":
            given = ops.cast(valid, self.compute_dtype) + ops.zeros_like(inputs)
        else:
            floor = ops.where(valid, inputs, -1e4)
            given = ops.cast(floor == ops.max(floor, axis=1, keepdims=True, initial=-1e4), "bool")
            given = ops.cast(ops.logical_and(given, valid), self.compute_dtype)
        # Equal maxima share the weight, so that their sum is the maximum.
        shares = given / ops.maximum(ops.sum(given, axis=1, keepdims=True), 1)
        shares = ops.stop_gradient(shares)
        pooled = ops.sum(shares * ops.where(valid, inputs, 0.0), axis=1)
        return (pooled, ops.mean(shares, axis=2)) if return_attention_scores else pooled

    def compute_mask(self, inputs, mask=None):
        return None

    def compute_output_spec(self, *args, **kwargs):
        return keras.Operation.compute_output_spec(self, *args, **kwargs)

    def get_config(self):
        return {**super().get_config(), "kind": self.kind}


@keras.saving.register_keras_serializable(package="keras_attention_examples")
class PlainHierarchy(HierarchicalAttention):
    """The same hierarchy, with the average or the maximum in place of attention."""

    def __init__(self, units, kind, **kwargs):
        self.kind = kind
        super().__init__(units, **kwargs)

    def make_pooling(self, name, units, seed):
        return PlainPooling(self.kind, name=name, dtype=self.dtype_policy)

    def get_config(self):
        return {**super().get_config(), "kind": self.kind}


@keras.saving.register_keras_serializable(package="keras_attention_examples")
class WordDropout(layers.Layer):
    """Replaces some words by the id `unknown` in training. Padding, 0, stays."""

    def __init__(self, rate, unknown, seed=None, **kwargs):
        super().__init__(**kwargs)
        self.rate, self.unknown, self.seed = rate, unknown, seed
        self.seed_generator = keras.random.SeedGenerator(seed)

    def call(self, ids, training=None):
        if not training or not self.rate:
            return ids
        drawn = keras.random.uniform(ops.shape(ids), seed=self.seed_generator)
        return ops.where((drawn < self.rate) & (ids > 0), self.unknown, ids)

    def get_config(self):
        config = {"rate": self.rate, "unknown": self.unknown, "seed": self.seed}
        return {**super().get_config(), **config}


def build_model(
    words, classes, pooling, encoder, embedding, units, dropout, word_dropout, vectors=None
):
    """Builds the model that is trained, and a reader on the same layers that shows the weights.

    Args:
        words: the number of word ids; the last one is the unknown word.
        classes: the number of classes.
        pooling: one of `POOLINGS`.
        encoder: one of `ENCODERS` but "ngrams", which `ngrams.build_ngram_model` builds.
        embedding: the width of a word.
        units: the width of each direction of a GRU.
        dropout: the dropout rate of embedded words and of the document.
        word_dropout: the share of words that are replaced by the unknown word.
        vectors: fixed word vectors `(words, embedding)`, or None to learn them.

    Returns:
        `(model, reader)`. Both take word ids `(B, S, W)`. The model returns logits `(B, classes)`,
        the reader a dictionary of `probabilities`, `word_weights` `(B, S, W)` and
        `sentence_weights` `(B, S)`.
    """

    def encode(name):
        if encoder == "none" or (encoder, name) == ("words", "sentence_encoder"):
            return None
        return layers.Bidirectional(layers.GRU(units, return_sequences=True), name=name)

    ids = keras.Input((None, None), dtype="int32", name="ids")
    kept = WordDropout(word_dropout, words - 1, name="word_dropout")(ids)
    embed = layers.Embedding(words, embedding, mask_zero=True, name="embedding")
    # A feature is dropped in the whole document, so a word is the same everywhere in it.
    shared = layers.Dropout(dropout, noise_shape=(None, 1, 1, None), name="embedding_dropout")
    embedded = shared(embed(kept))
    options = {
        "units": 2 * units,
        "word_encoder": encode("word_encoder"),
        "sentence_encoder": encode("sentence_encoder"),
        "name": "hierarchy",
    }
    if pooling == "attention":
        hierarchy = HierarchicalAttention(**options)
    else:
        hierarchy = PlainHierarchy(kind=pooling, **options)
    document, (word_weights, sentence_weights) = hierarchy(embedded, return_attention_scores=True)
    document = layers.Dropout(dropout, name="document_dropout")(document)
    logits = layers.Dense(classes, name="classes")(document)
    reader = keras.Model(
        ids,
        {
            "probabilities": layers.Softmax(name="probabilities")(logits),
            "word_weights": word_weights,
            "sentence_weights": sentence_weights,
        },
    )
    if vectors is not None:
        embed.embeddings.assign(vectors)
        embed.trainable = False
    return keras.Model(ids, logits), reader
