"""The model of Yang et al. (2016): words to sentences to a document to its class."""

import keras
from keras import layers, ops

from keras_attention import HierarchicalAttention

POOLINGS = ("attention", "average")
# "gru" encodes words and sentences, "words" encodes words alone. "ngrams" has a model of its own.
ENCODERS = ("ngrams", "gru", "words")


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

    encoders = {name: encode(name) for name in ("word_encoder", "sentence_encoder")}
    hierarchy = HierarchicalAttention(2 * units, **encoders, name="hierarchy")
    ids = keras.Input((None, None), dtype="int32", name="ids")
    x = layers.Embedding(words, embedding, mask_zero=True, name="embedding")(ids)
    x = layers.Dropout(word_dropout, noise_shape=(None, None, None, 1))(x)
    # A feature is dropped in the whole document, so a word is the same everywhere in it.
    x = layers.Dropout(dropout, noise_shape=(None, 1, 1, None))(x)
    x, (word_weights, sentence_weights) = hierarchy(x, return_attention_scores=True)
    for weight in hierarchy.weights if pooling == "average" else ():
        if weight.name == "query_vector":  # without one, all words weigh alike
            weight.assign(ops.zeros_like(weight))
            weight.trainable = False
    x = layers.Dropout(dropout)(x)
    logits = layers.Dense(classes, name="classes")(x)
    found = {"word_weights": word_weights, "sentence_weights": sentence_weights}
    found["probabilities"] = layers.Softmax(name="probabilities")(logits)
    return keras.Model(ids, logits), keras.Model(ids, found)
