"""The pronouncer: a bidirectional LSTM reads the letters, an `AttentionRNN` says the phones."""

import keras
from keras import layers, ops

from examples.pronunciation.data import END, PAD, START
from keras_attention import (
    AttentionRNN,
    BahdanauAttention,
    HardAttention,
    LuongAttention,
    MonotonicAttention,
    Readout,
    Seq2Seq,
)
from keras_attention.search import reverse_tokens

ATTENTIONS = ("hard-monotonic", "hard", "soft", "monotonic", "local-m")
HALF_WIDTH = 3  # letters on each side of the window of local-m
SPREAD = keras.initializers.RandomNormal(stddev=0.3)  # of embeddings; Keras's 0.05 learns slowly


def build_model(attention, letters, phones, units, embedding, depth, dropout, backward=False):
    """Builds a `Seq2Seq` from letters to phones.

    Args:
        attention: a name in `ATTENTIONS`.
        letters, phones: the numbers of symbols.
        units: the width of the decoder, and of each direction of the encoder.
        embedding: the width of letters and phones.
        depth: the number of layers of the encoder.
        dropout: the dropout rate.
        backward: whether the model reads and writes from right to left.
    """
    table = layers.Embedding(phones, embedding, embeddings_initializer=SPREAD, name="phones")
    decoder, head = make_decoder(attention, phones, units, dropout)
    encoder = make_encoder(letters, units, embedding, depth, dropout, backward)
    return Seq2Seq(encoder, decoder, table, head, START, END, PAD)


def make_encoder(letters, units, embedding, depth, dropout, backward):
    """From ids `(B, S)` to the memory, the decoder's first state and the mask."""
    source = keras.Input((None,), dtype="int32", name="letters")
    mask = ops.not_equal(source, PAD)
    ids = reverse_tokens(source, PAD, PAD) if backward else source
    x = layers.Embedding(letters, embedding, embeddings_initializer=SPREAD)(ids)
    x = layers.Dropout(dropout)(x)
    for _ in range(depth):
        rnn = layers.LSTM(units, return_sequences=True, use_cudnn=False)
        x = layers.Dropout(dropout)(layers.Bidirectional(rnn)(x, mask=mask))
    zeros = ops.zeros_like(x[:, 0, :units])  # the decoder's LSTM has two states
    return keras.Model(source, (x, [zeros, zeros], mask), name="encoder")


def make_decoder(attention, phones, units, dropout):
    """Returns the decoder and the head."""
    cell = layers.LSTMCell(units, dropout=dropout)
    if attention.startswith("hard"):
        # The decoder reads no letter, so that the head can sum over all letters exactly.
        decoder = AttentionRNN(cell, LuongAttention("general"), output_mode="cell")
        return decoder, HardAttention(phones, units, monotonic=attention == "hard-monotonic")
    if attention == "local-m":
        local = LuongAttention("general", "local-m", half_width=HALF_WIDTH, units=units)
        decoder = AttentionRNN(cell, local, input_feeding=True)
    else:
        kind = BahdanauAttention if attention == "soft" else MonotonicAttention
        decoder = AttentionRNN(cell, kind(units), output_mode="concat")
    return decoder, Readout(units, phones, dropout=dropout)
