"""The pronouncer: a bidirectional LSTM reads the letters, an `AttentionRNN` says the phones."""

from functools import partial

import keras
from keras import layers, ops

from examples.common.training import combine
from examples.pronunciation.data import PAD, START
from keras_attention import (
    AttentionRNN,
    BahdanauAttention,
    LuongAttention,
    MonotonicAttention,
    Seq2Seq,
)
from keras_attention.search import reverse_tokens
from keras_attention.seq2seq import HardAttention, Readout

ATTENTIONS = ("hard-monotonic", "hard", "soft", "monotonic")
SPREAD = keras.initializers.RandomNormal(stddev=0.3)  # of embeddings; Keras's 0.05 learns slowly


def build_model(options, letters, phones, backward=False):
    """Builds a `Seq2Seq` from letters to phones, from left to right or backward.

    The encoder reads a sign before each word, as the model writes one after it, so that attention
    can read the ends.
    """
    attention, units, dropout = options.attention, options.units, options.dropout
    embed = partial(layers.Embedding, output_dim=options.embedding, embeddings_initializer=SPREAD)
    source = keras.Input((None,), dtype="int32", name="letters")
    ids = ops.pad(source, [[0, 0], [1, 0]], constant_values=START)
    mask = ops.not_equal(ids, PAD)
    ids = reverse_tokens(ids, PAD, PAD) if backward else ids
    x = layers.Dropout(dropout)(embed(letters.vocabulary_size)(ids))
    for _ in range(options.layers):
        rnn = layers.LSTM(units, return_sequences=True, use_cudnn=False)
        x = layers.Dropout(dropout)(layers.Bidirectional(rnn)(x, mask=mask))
    zeros = ops.zeros_like(x[:, 0, :units])  # the decoder's LSTM has two states
    encoder = keras.Model(source, (x, [zeros, zeros], mask), name="encoder")

    cell = layers.LSTMCell(units, dropout=dropout)
    if attention.startswith("hard"):
        # The decoder reads no letter, so that the head can sum over all letters exactly.
        decoder = AttentionRNN(cell, LuongAttention("general"), output_mode="cell")
        head = HardAttention(phones.vocabulary_size, units, monotonic=attention == "hard-monotonic")
    else:
        kind = BahdanauAttention if attention == "soft" else MonotonicAttention
        decoder = AttentionRNN(cell, kind(units), output_mode="concat")
        head = Readout(units, phones.vocabulary_size, dropout=dropout)
    table = embed(phones.vocabulary_size)
    return Seq2Seq(encoder, decoder, table, head, source_text=letters, target_text=phones)


class Pronouncer:
    """Pairs of a trained model and whether it writes from right to left, which decide together."""

    def __init__(self, models, beam, longest):
        left, right = ([x for x, back in models if back == way] for way in (False, True))
        self.models, self.model = [*left, *right], combine(left, right)
        self.turned = not left  # the model writes the last phone first
        # Without a length penalty the score is the log probability of the phones.
        self.options = {"max_length": longest, "beam_width": beam, "length_penalty": 0.0}

    def __call__(self, words):
        """The phones of each word, a list of strings."""
        step = -1 if self.turned else 1
        return [text.split()[::step] for text in self.model.generate(words, **self.options).texts]
