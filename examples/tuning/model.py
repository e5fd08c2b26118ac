"""The date translator whose attention is searched."""

import pathlib

import keras
from keras import layers, ops

from examples.common.checkpoint import weights_as_bytes
from examples.common.files import write_bytes
from examples.tuning.data import SIGNS, SOURCE_LENGTH, TARGET_LENGTH
from keras_attention import AttentionRNN


class Model(keras.Model):
    """Writes its weights completely or not at all. keras-tuner saves them after better epochs."""

    def save_weights(self, filepath, overwrite=True):
        write_bytes(pathlib.Path(filepath), weights_as_bytes(super()))


def build(hp, attention):
    """Builds and compiles the model with an attention layer that the search has chosen."""
    units = hp.Choice("units", [32, 64, 128])
    source = keras.Input((SOURCE_LENGTH,), dtype="int32")
    shifted = keras.Input((TARGET_LENGTH,), dtype="int32")
    table = layers.Embedding(len(SIGNS) + 1, 32, mask_zero=True)
    # From Keras 3.16 on, masks do not propagate through recurrent layers.
    mask = table.compute_mask(source)
    encoder = layers.Bidirectional(layers.GRU(units // 2, return_sequences=True))
    encoded = encoder(table(source), mask=mask)
    words = layers.Embedding(len(SIGNS) + 1, 32)(shifted)
    decoder = AttentionRNN(layers.GRUCell(units), attention)
    hidden = decoder(words, encoded, memory_mask=mask)
    model = Model([source, shifted], layers.Dense(len(SIGNS) + 1)(hidden))
    model.compile(
        keras.optimizers.Adam(hp.Float("learning_rate", 1e-3, 1e-2, sampling="log")),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy", right_dates],
        jit_compile=False,
    )
    return model


@keras.saving.register_keras_serializable(package="keras_attention_examples")
def right_dates(target, logits):
    """Share of the dates whose letters are all right, each after the right letters before it."""
    right = ops.equal(ops.cast(target, "int32"), ops.cast(ops.argmax(logits, -1), "int32"))
    return ops.cast(ops.all(right, -1), "float32")


def make_hypermodel():
    from keras_attention.tuning import AttentionHyperModel

    return AttentionHyperModel(build, units=(32, 128), most_dropout=0.3)
