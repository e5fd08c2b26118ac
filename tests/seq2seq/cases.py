"""Small sequence-to-sequence models with each kind of decoder and head."""

import keras
import numpy as np
from keras import layers

from keras_attention import Ensemble, RecurrentEncoder, Seq2Seq
from keras_attention.decoder import AttentionRNN, DecoderStack, ResidualRNNCells
from keras_attention.layers import BahdanauAttention, LocationSensitiveAttention, LuongAttention
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
    encoder = RecurrentEncoder(layers.Embedding(known, E), layers.Bidirectional(rnn))
    model = seq2seq(encoder, decoder(), table(known, E), head())
    model((SOURCES[:1], TARGETS[:1]))
    return randomize(model, seed)


def seq2seq(encoder, decoder=None, table=None, head=None):
    """A model of an encoder and of the usual other parts."""
    parts = decoder or bahdanau(), table or layers.Embedding(V, E), head or layers.Dense(V)
    return Seq2Seq(encoder, *parts, START, END)


PARTS = "encoder", "decoder", "target_embedding", "head", "start_token", "end_token"


def with_other(model, **parts):
    """A model of the same parts, but for these."""
    return Seq2Seq(**{name: getattr(model, name) for name in PARTS} | parts)


class Changed(layers.Layer):
    """An encoder that returns `change(memory, state, mask)` of what another one returns."""

    def __init__(self, encoder, change):
        super().__init__()
        self.encoder, self.change = encoder, change

    def call(self, source, training=None):
        return self.change(*self.encoder(source))


def without_mask(memory, state, mask):
    # The product does not pass a mask on, as the memory does up to Keras 3.15.
    return memory * 1.0, state, None


@keras.saving.register_keras_serializable(package="tests")
class Joined(layers.Layer):
    """An encoder of two sources: the memory of the first one before that of the second one."""

    def __init__(self, names=(0, 1), **kwargs):
        super().__init__(**kwargs)
        self.names, self.parts = names, [make_model(seed=n).encoder for n in (1, 2)]

    def call(self, source, training=None):
        if isinstance(source, dict):
            source = [source[name] for name in self.names]
        one, other = (part(x) for part, x in zip(self.parts, source, strict=True))
        memory, mask = (keras.ops.concatenate([one[n], other[n]], 1) for n in (0, 2))
        return memory, one[1], mask


def joined(kind, models):
    return kind(models) if kind is Ensemble else kind(*models)


def softmax(x):
    shares = np.exp(x - x.max())
    return shares / shares.sum()


def by_hand(model):
    """A functional model of the same layers, from source and shifted target to logits."""
    source, shifted = (keras.Input((None,), dtype="int32") for _ in range(2))
    mask = keras.ops.not_equal(source, 0)
    memory, *states = model.encoder.rnn(model.encoder.embedding(source), mask=mask)
    state = layers.Concatenate()(states)
    inputs = model.target_embedding(shifted)
    outputs = model.decoder(inputs, memory, initial_state=[state], memory_mask=mask)
    return keras.Model([source, shifted], model.head(outputs))
