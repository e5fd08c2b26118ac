"""The date translator whose attention is searched, and its data."""

import keras
from keras import layers, ops

from examples.common import dates
from examples.common.training import seed_model
from keras_attention import AttentionRNN, RecurrentEncoder, Seq2Seq
from keras_attention.tuning import AttentionHyperModel

START, END = 1, 2
SIGNS = "\t\n" + "0123456789-" + "abcdefghijklmnopqrstuvwxyz ,./"  # with signs for start and end
SOURCE_LENGTH, TARGET_LENGTH = 40, 11


def load_data(sizes, seed):
    """For each size `(source, target)`, ids of generated dates with 0 for padding."""
    found = []
    for sources, targets in dates.make_pairs(sizes, seed):
        source = encode([text.lower() for text in sources], SOURCE_LENGTH)
        found.append((source, encode([text + "\n" for text in targets], TARGET_LENGTH)))
    return found


def encode(texts, length):
    ids = [[SIGNS.index(sign) + 1 for sign in text] for text in texts]
    return keras.utils.pad_sequences(ids, length, padding="post")


class DateTranslator(AttentionHyperModel):
    """Every trial begins with the same seed, so a trial that begins again finds the same."""

    def __init__(self, seed):
        super().__init__(build, units=(32, 128), most_dropout=0.3)
        self.seed = seed

    def build(self, hp):
        seed_model(self.seed)
        return super().build(hp)


def build(hp, attention):
    """Builds and compiles the model with an attention layer that the search has chosen."""
    units = hp.Choice("units", [32, 64, 128])
    gru = layers.GRU(units // 2, return_sequences=True)
    model = Seq2Seq(
        RecurrentEncoder(layers.Embedding(len(SIGNS) + 1, 32), layers.Bidirectional(gru)),
        AttentionRNN(layers.GRUCell(units), attention),
        target_embedding=layers.Embedding(len(SIGNS) + 1, 32),
        head=layers.Dense(len(SIGNS) + 1),
        start_token=START,
        end_token=END,
    )
    model.compile(
        keras.optimizers.Adam(hp.Float("learning_rate", 1e-3, 1e-2, sampling="log")),
        metrics=["accuracy", right_dates],
        jit_compile=False,
    )
    lengths = SOURCE_LENGTH, TARGET_LENGTH
    model(tuple(keras.Input((n,), dtype="int32") for n in lengths))  # makes the weights
    return model


@keras.saving.register_keras_serializable(package="keras_attention_examples")
def right_dates(target, logits):
    """Share of the dates whose letters are all right, each after the right letters before it."""
    right = ops.equal(ops.cast(target, "int32"), ops.cast(ops.argmax(logits, -1), "int32"))
    # The model weighs every letter, and each date has as many.
    dates = ops.broadcast_to(ops.all(right, -1, keepdims=True), ops.shape(right))
    return ops.cast(dates, "float32")
