"""The translator of written dates that the scripts train, and its data."""

import string

import keras
import numpy as np

from examples.common.dates import make_pairs
from keras_attention import AttentionRNN, BahdanauAttention, RecurrentEncoder, Seq2Seq

CHARACTERS = "^$" + string.ascii_letters + string.digits + " ,.-/"  # "^" begins, "$" ends
VOCABULARY = 72  # 0 is padding, and 8 devices can share it evenly
START, END = 1, 2
LONGEST = 40  # characters of a written date


def make_data(size, seed=0):
    """Makes pairs of dates. All have one length, so that XLA compiles one program.

    Returns:
        Ids of the written dates, and of what the decoder has to write.
    """
    [(sources, targets)] = make_pairs([size], seed)
    return _encode(sources, LONGEST), _encode([target + "$" for target in targets])


def build_translator(units):
    """An encoder of both directions, and a decoder that attends to it at every step."""
    embedding = keras.layers.Embedding(VOCABULARY, units, name="source_embedding")
    gru = keras.layers.GRU(units, return_sequences=True)
    model = Seq2Seq(
        RecurrentEncoder(embedding, keras.layers.Bidirectional(gru)),
        AttentionRNN(keras.layers.GRUCell(2 * units), BahdanauAttention(units)),
        keras.layers.Embedding(VOCABULARY, units, name="target_embedding"),
        keras.layers.Dense(VOCABULARY, name="logits"),
        start_token=START,
        end_token=END,
    )
    model.compile(keras.optimizers.Adam(0.003))
    # A checkpoint can only be read into a model that has its weights.
    model((keras.Input((LONGEST,), dtype="int32"), keras.Input((11,), dtype="int32")))
    return model


def _encode(texts, length=None):
    ids = [[CHARACTERS.index(character) + 1 for character in text] for text in texts]
    return np.array(keras.utils.pad_sequences(ids, length, padding="post"))
