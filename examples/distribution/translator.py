"""The translator of written dates that the scripts train, and its data."""

import string

import keras
import numpy as np

from examples.common.dates import make_pairs
from keras_attention import AttentionRNN, BahdanauAttention

CHARACTERS = "^$" + string.ascii_letters + string.digits + " ,.-/"  # "^" begins, "$" ends
VOCABULARY = 72  # 0 is padding, and 8 devices can share it evenly
LONGEST = 40  # characters of a written date


def make_data(size, seed=0):
    """Makes pairs of dates. All have one length, so that XLA compiles one program.

    Returns:
        Ids of the written dates, of the decoder's inputs, and of what it has to write.
    """
    [(sources, targets)] = make_pairs([size], seed)
    inputs, outputs = (["^" + x for x in targets], [x + "$" for x in targets])
    return _encode(sources, LONGEST), _encode(inputs), _encode(outputs)


def build_translator(units):
    """An encoder of both directions, and a decoder that attends to it at every step."""
    source = keras.Input((LONGEST,), dtype="int32")
    written = keras.Input((11,), dtype="int32")
    mask = keras.ops.not_equal(source, 0)
    read = keras.layers.Embedding(VOCABULARY, units, name="source_embedding")(source)
    gru = keras.layers.GRU(units, return_sequences=True)
    encoded = keras.layers.Bidirectional(gru)(read, mask=mask)
    decoder = AttentionRNN(keras.layers.GRUCell(2 * units), BahdanauAttention(units))
    inputs = keras.layers.Embedding(VOCABULARY, units, name="target_embedding")(written)
    outputs = decoder(inputs, encoded, memory_mask=mask)
    logits = keras.layers.Dense(VOCABULARY, name="logits")(outputs)
    model = keras.Model([source, written], logits)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.003), loss)
    return model


def _encode(texts, length=None):
    ids = [[CHARACTERS.index(character) + 1 for character in text] for text in texts]
    return np.array(keras.utils.pad_sequences(ids, length, padding="post"))
