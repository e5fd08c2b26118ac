"""The pronouncer: a bidirectional LSTM reads the letters, an `AttentionRNN` says the phones."""

from functools import partial

import keras
from keras import layers, ops

from examples.common.training import combine, pad
from examples.pronunciation.data import END, PAD, START, encode_words
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
    """Builds a `Seq2Seq` from letters to phones, from left to right or backward."""
    attention, units, dropout = options.attention, options.units, options.dropout
    embed = partial(layers.Embedding, output_dim=options.embedding, embeddings_initializer=SPREAD)
    source = keras.Input((None,), dtype="int32", name="letters")
    mask = ops.not_equal(source, PAD)
    ids = reverse_tokens(source, PAD, PAD) if backward else source
    x = layers.Dropout(dropout)(embed(letters)(ids))
    for _ in range(options.layers):
        rnn = layers.LSTM(units, return_sequences=True, use_cudnn=False)
        x = layers.Dropout(dropout)(layers.Bidirectional(rnn)(x, mask=mask))
    zeros = ops.zeros_like(x[:, 0, :units])  # the decoder's LSTM has two states
    encoder = keras.Model(source, (x, [zeros, zeros], mask), name="encoder")

    cell = layers.LSTMCell(units, dropout=dropout)
    if attention.startswith("hard"):
        # The decoder reads no letter, so that the head can sum over all letters exactly.
        decoder = AttentionRNN(cell, LuongAttention("general"), output_mode="cell")
        head = HardAttention(phones, units, monotonic=attention == "hard-monotonic")
    else:
        kind = BahdanauAttention if attention == "soft" else MonotonicAttention
        decoder = AttentionRNN(cell, kind(units), output_mode="concat")
        head = Readout(units, phones, dropout=dropout)
    return Seq2Seq(encoder, decoder, embed(phones), head, START, END, PAD)


class Pronouncer:
    """Pairs of a trained model and whether it writes from right to left, which decide together."""

    def __init__(self, models, letters, phones, beam, longest):
        left, right = ([x for x, back in models if back == way] for way in (False, True))
        self.models, self.model = [*left, *right], combine(left, right)
        self.turned = not left  # the model writes the last phone first
        self.letters, self.phones = letters, phones
        # Without a length penalty the score is the log probability of the phones.
        self.options = {"max_length": longest, "beam_width": beam, "length_penalty": 0.0}

    def __call__(self, words):
        """The phones of each word, a list of strings."""
        return [self.phones.decode(row) for row in self.search(words).tokens]

    def search(self, words):
        """The `SearchResult` of the words."""
        found = self.model.generate(pad(encode_words(self.letters, words)), **self.options)
        if not self.turned:
            return found
        return found._replace(tokens=reverse_tokens(found.tokens, END, PAD))
