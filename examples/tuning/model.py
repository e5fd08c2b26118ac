"""The date translator whose attention is searched, and its data."""

import string

import keras
from keras import layers, ops

from examples.common.dates import END, START, encode_pairs, make_pairs
from examples.common.training import seed_model
from keras_attention import AttentionRNN, RecurrentEncoder, Seq2Seq
from keras_attention.tuning import attention_space

CHARACTERS = "^$" + string.digits + "-" + string.ascii_lowercase + " ,./"


def load_data(sizes, seed):
    """For each size `(source, target)`, ids of generated dates in lower case."""
    return [
        encode_pairs([text.lower() for text in sources], targets, CHARACTERS)
        for sources, targets in make_pairs(sizes, seed)
    ]


def build(hp, seed):
    """Builds and compiles the model that keras-tuner has chosen.

    Every trial begins with the same seed, so a trial that begins again finds the same.
    """
    seed_model(seed)
    attention = attention_space(hp, units=[32, 64, 128], dropout=[0.0, 0.1, 0.2, 0.3])
    units, size = hp.Choice("units", [32, 64, 128]), len(CHARACTERS) + 1
    gru = layers.GRU(units // 2, return_sequences=True)
    model = Seq2Seq(
        RecurrentEncoder(layers.Embedding(size, 32), layers.Bidirectional(gru)),
        AttentionRNN(layers.GRUCell(units), attention),
        target_embedding=layers.Embedding(size, 32),
        head=layers.Dense(size),
        start_token=START,
        end_token=END,
    )
    model.compile(
        keras.optimizers.Adam(hp.Float("learning_rate", 1e-3, 1e-2, sampling="log")),
        metrics=["accuracy", right_dates],
        jit_compile=False,
    )
    ids = keras.Input((None,), dtype="int32")
    model((ids, ids))  # makes the weights
    return model


def right_dates(target, logits):
    """Share of the dates whose letters are all right, each after the right letters before it."""
    right = ops.equal(ops.cast(target, "int32"), ops.cast(ops.argmax(logits, -1), "int32"))
    # The model weighs every letter, and each date has as many.
    dates = ops.broadcast_to(ops.all(right, -1, keepdims=True), ops.shape(right))
    return ops.cast(dates, "float32")
