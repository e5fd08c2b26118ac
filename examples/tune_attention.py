"""
Search the attention of a translator
====================================

keras-tuner tries the attentions of :py:obj:`keras_attention.tuning.attention_space` in a translator
of written dates: mechanism, score, units, dropout and normalizer, beside the width of the decoder
and the learning rate. The best configuration and the default one are then trained again, and
compared on new dates. The same command resumes a search that was interrupted.

Paper: Li et al., 2018, https://arxiv.org/abs/1603.06560
Needs keras-tuner: pip install "keras-attention-layers[tuner]".
"""

import argparse
import datetime
import pathlib
import string

import keras
import keras_tuner
import numpy as np
from keras import ops

from keras_attention import AttentionRNN, RecurrentEncoder, Seq2Seq
from keras_attention.tuning import attention_space, completed_trials

SEED = 1
SIZES = TRAIN_SIZE, VALID_SIZE, TEST_SIZE = 2560, 500, 1000
EPOCHS, BATCH_SIZE, TRIALS = 4, 32, 8
FORMATS = ("%d %B %Y", "%B %d, %Y", "%A, %d %B %Y", "%d %b %Y", "%Y, %B %d", "%d/%m/%Y")
CHARACTERS = "^$" + string.ascii_letters + string.digits + " ,-/"  # "^" begins, "$" ends
START, END = 1, 2
FOLDER = pathlib.Path("output/tune_attention")

# `--help` explains this script, and trains nothing.
argparse.ArgumentParser(usage=__doc__).parse_known_args()


def make_dates():
    """Ids of written dates and of their ISO form, for training, validation and test."""
    rng = np.random.default_rng(SEED)
    days = rng.choice(73_000, sum(SIZES), replace=False)  # no day is in two sets
    dates = [datetime.date(1900, 1, 1) + datetime.timedelta(int(day)) for day in days]
    sides = [x.strftime(rng.choice(FORMATS)) for x in dates], [f"{x}$" for x in dates]
    ids = [[[CHARACTERS.index(x) + 1 for x in text] for text in side] for side in sides]
    sides = [keras.utils.pad_sequences(x, padding="post") for x in ids]  # 0 is padding
    return zip(*(np.split(side, np.cumsum(SIZES)[:-1]) for side in sides), strict=True)


def whole_dates(target, logits):
    """The share of dates with all characters right, each after the right characters before it."""
    right = ops.equal(ops.cast(target, "int32"), ops.cast(ops.argmax(logits, -1), "int32"))
    # The model weighs every character, and each date has as many.
    dates = ops.broadcast_to(ops.all(right, -1, keepdims=True), ops.shape(right))
    return ops.cast(dates, "float32")


def build(hp):
    """Builds and compiles the translator that keras-tuner has chosen."""
    keras.utils.set_random_seed(SEED)  # so that a trial that begins again finds the same
    attention = attention_space(hp, units=[32, 64, 128], dropout=[0.0, 0.1, 0.2, 0.3])
    units, size = hp.Choice("units", [32, 64, 128]), len(CHARACTERS) + 1
    gru = keras.layers.Bidirectional(keras.layers.GRU(units // 2, return_sequences=True))
    encoder = RecurrentEncoder(keras.layers.Embedding(size, 32), gru)
    decoder = AttentionRNN(keras.layers.GRUCell(units), attention)
    embedding, head = keras.layers.Embedding(size, 32), keras.layers.Dense(size)
    model = Seq2Seq(encoder, decoder, embedding, head, START, END)
    rate = hp.Float("learning_rate", 1e-3, 1e-2, sampling="log")
    metrics = ["accuracy", whole_dates]
    model.compile(keras.optimizers.Adam(rate), metrics=metrics, jit_compile=False)
    ids = keras.Input((None,), dtype="int32")
    model((ids, ids))  # makes the weights
    return model


def main():
    train, valid, test = make_dates()
    limits = {"max_trials": TRIALS, "max_consecutive_failed_trials": 1}  # a failure ends the search
    place = {"directory": FOLDER.parent, "project_name": FOLDER.name}
    options = {"num_initial_points": 3, "seed": SEED, **limits, **place}
    tuner = keras_tuner.BayesianOptimization(build, "val_accuracy", **options)
    options = {"epochs": EPOCHS, "batch_size": BATCH_SIZE}
    tuner.search(*train, validation_data=valid, **options, verbose=2)
    trials = completed_trials(tuner)  # the best one first
    for trial in trials:
        print(f"{trial.score:.3f} of the characters: {trial.hyperparameters.values}")
    default = keras_tuner.HyperParameters()
    build(default)  # registers the search space
    for name, hp in {"default": default, "best": trials[0].hyperparameters}.items():
        model = build(hp)
        model.fit(*train, **options, verbose=0)
        right = model.evaluate(*test, verbose=0, return_dict=True)["whole_dates"]
        print(f"{name}: {right:.1%} of {TEST_SIZE} new dates right, {hp.values}")


if __name__ == "__main__":
    main()
