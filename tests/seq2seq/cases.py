"""Small sequence-to-sequence models with each kind of decoder and head."""

import keras
import numpy as np
from keras import layers

from keras_attention import (
    AttentionRNN,
    BahdanauAttention,
    DecoderStack,
    LocationSensitiveAttention,
    LuongAttention,
    RecurrentEncoder,
    ResidualRNNCells,
    Seq2Seq,
)
from keras_attention.seq2seq import HardAttention, PointerGenerator, Readout
from tests.helpers import randomize

V, E, H, U = 11, 5, 8, 7
START, END = 1, 2
SOURCES = np.array([[5, 3, 9, 4, 7], [8, 6, 0, 0, 0], [10, 10, 3, 0, 0]])
TARGETS = np.array([[7, 4, 9, 2], [6, 2, 0, 0], [3, 10, 2, 0]])


def bahdanau():
    return AttentionRNN(layers.GRUCell(H), BahdanauAttention(U))


def windowed():
    attention = LuongAttention("general", alignment="local-m", half_width=1, units=H)
    return AttentionRNN(layers.GRUCell(H), attention, input_feeding=True)


def remembering():
    return AttentionRNN(layers.GRUCell(H), LocationSensitiveAttention(U, filters=3, kernel_size=3))


def residual():
    cells = ResidualRNNCells([layers.LSTMCell(H), layers.LSTMCell(H)])
    return AttentionRNN(cells, BahdanauAttention(U))


def stack():
    rnns = [layers.LSTM(H, return_sequences=True) for _ in range(3)]
    return DecoderStack(rnns, BahdanauAttention(U))


def hard():
    return AttentionRNN(layers.GRUCell(H), LuongAttention("general"), output_mode="cell")


CASES = {
    "additive": (bahdanau, lambda: layers.Dense(V)),
    "local-m": (windowed, lambda: layers.Dense(V)),
    "state": (remembering, lambda: layers.Dense(V)),
    "residual LSTMs": (residual, lambda: layers.Dense(V)),
    "stack": (stack, lambda: layers.Dense(V)),
    "tied": (bahdanau, lambda: Readout(E)),
    "pointer": (bahdanau, lambda: PointerGenerator(V - 3, 3)),
    "hard": (hard, lambda: HardAttention(V, U)),
    "hard, monotonic": (hard, lambda: HardAttention(V, U, monotonic=True)),
}


@keras.saving.register_keras_serializable(package="tests")
class Reversible(layers.Embedding):
    """What `keras.layers.ReversibleEmbedding` does, for Keras before 3.12."""

    def call(self, inputs, reverse=False):
        if not reverse:
            return super().call(inputs)
        return keras.ops.matmul(inputs, keras.ops.transpose(self.embeddings))


REVERSIBLE = getattr(layers, "ReversibleEmbedding", Reversible)


def make_model(name="additive", seed=0):
    """A model whose weights are random, so that every part matters."""
    decoder, head = CASES[name]
    deep = name in ("residual LSTMs", "stack")
    cell = layers.LSTM if deep else layers.GRU
    rnn = cell(H // 2, return_sequences=True, return_state=not deep)
    table = REVERSIBLE if name == "tied" else layers.Embedding
    known = V - 3 if name == "pointer" else V  # the other ids are extra words
    model = Seq2Seq(
        RecurrentEncoder(layers.Embedding(known, E), layers.Bidirectional(rnn)),
        decoder(),
        table(known, E),
        head(),
        start_token=START,
        end_token=END,
    )
    model((SOURCES[:1], TARGETS[:1]))
    return randomize(model, seed)


def by_hand(model):
    """A functional model of the same layers, from source and shifted target to logits."""
    source, shifted = (keras.Input((None,), dtype="int32") for _ in range(2))
    mask = keras.ops.not_equal(source, 0)
    memory, *states = model.encoder.rnn(model.encoder.embedding(source), mask=mask)
    state = layers.Concatenate()(states)
    inputs = model.target_embedding(shifted)
    outputs = model.decoder(inputs, memory, initial_state=[state], memory_mask=mask)
    return keras.Model([source, shifted], model.head(outputs))
