"""
Find the series that drive another
==================================

A target follows two of ten series, and one of ten values is missing. Nobody says which two.
:py:obj:`keras_attention.FeatureAttention` weighs the series at every step. A missing value stays
NaN: the mask keeps it out of the weights, and out of the gradients. Look at the picture: nearly all
of the weight is on the two series that drive the target.

Paper: Qin et al., 2017, https://arxiv.org/abs/1704.02971, the first of its two stages.
"""

import argparse
import pathlib

import keras
import matplotlib.pyplot as plt
import numpy as np
from keras import ops

from keras_attention import FeatureAttention
from keras_attention.plotting import attention_weights

SEED = 0
TRAIN_SIZE, TEST_SIZE = 2000, 500
STEPS, SERIES, DRIVERS, MISSING = 12, 10, [2, 7], 0.1
UNITS, EPOCHS, BATCH_SIZE, LEARNING_RATE = 16, 25, 50, 0.02
PICTURE = pathlib.Path("output/driving_series.png")

# `--help` explains this script, and trains nothing.
argparse.ArgumentParser(usage=__doc__).parse_known_args()

keras.utils.set_random_seed(SEED)
rng = np.random.default_rng(SEED)

# %%
# Data
# ----
# All series wander alike, so only their effect tells them apart. The target keeps a part of its
# last value. It rises with the first driver up to a limit, and with the size of the second.
count = TRAIN_SIZE + TEST_SIZE
series = rng.normal(size=(count, STEPS, SERIES))
target = rng.normal(0, 0.1, (count, STEPS, 1))
for t in range(STEPS):
    series[:, t] = 0.7 * series[:, t - 1] * (t > 0) + 0.7 * series[:, t]
    first, second = series[:, t, DRIVERS].T
    effect = np.tanh(2 * first) + 0.7 * np.abs(second) + 0.6 * target[:, t - 1, 0] * (t > 0)
    target[:, t, 0] += effect
target -= target[:TRAIN_SIZE].mean()
series[rng.random(series.shape) < MISSING] = np.nan
series = series.astype("float32")
train, test = slice(TRAIN_SIZE), slice(TRAIN_SIZE, None)

# %%
# Model
# -----
# The weighted series are the input of an LSTM, whose state tells the target at every step. The
# normalizer "sparsemax" gives weights of exactly zero. The limited kernel of the cell cannot make
# up for a small weight, so the weights have to say what matters.
inputs = keras.Input((STEPS, SERIES))
measured = ops.logical_not(ops.isnan(inputs))
cell = keras.layers.LSTMCell(UNITS, kernel_constraint=keras.constraints.MaxNorm(0.5))
attention = FeatureAttention(cell, UNITS, normalizer="sparsemax", name="attention")
encoded = attention(inputs, mask=measured)
model = keras.Model(inputs, keras.layers.Dense(1)(encoded))

# %%
# Training
# --------
# Only the target is given.
model.compile(keras.optimizers.Adam(LEARNING_RATE), "mean_squared_error")
model.fit(series[train], target[train], batch_size=BATCH_SIZE, epochs=EPOCHS, verbose=2)

# %%
# Result
# ------
# Ridge regression reads the same values, with the mean, zero, for missing ones, and an indicator of
# each gap. :py:obj:`keras_attention.plotting.attention_weights` returns the weights.
features = np.concatenate([np.nan_to_num(series), np.isnan(series), np.ones_like(series)], axis=-1)
features = features.reshape(count, -1).astype("float64")
known, penalty = features[train], np.eye(features.shape[1])
coefficients = np.linalg.solve(known.T @ known + penalty, known.T @ target[train, :, 0])
linear = features[test] @ coefficients
truth, predicted = target[test], model.predict(series[test], verbose=0)
share_of_variance = 1 - np.mean((predicted - truth) ** 2) / np.mean(truth**2)
by_ridge = 1 - np.mean((linear - truth[..., 0]) ** 2) / np.mean(truth**2)
weights = attention_weights(model, series[test])["attention"]
share = weights[:, :, DRIVERS].sum(axis=2).mean()
print(f"{share_of_variance:.1%} of the variance is explained, {by_ridge:.1%} by ridge regression.")
print(f"{share:.1%} of the weight is on the two series that drive the target.")
assert share_of_variance > by_ridge + 0.1, "The target is not linear in the series."
assert share > 0.9, "The weights should find the drivers."
assert np.all(weights[np.isnan(series[test])] == 0), "Missing values should have no weight."

# %%
# Picture
# -------
# The weights of one window, with crosses at missing values, and the means of all windows.
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
left.imshow(weights[0].T, cmap="Blues", vmin=0, vmax=1, aspect="auto")
left.plot(*np.nonzero(np.isnan(series[test][0])), "x", color="0.6")
left.set(title="Weights of one window", xlabel="step", ylabel="series")
left.set_yticks(range(SERIES))
colours = ["C1" if k in DRIVERS else "C0" for k in range(SERIES)]
right.barh(range(SERIES), weights.mean(axis=(0, 1)), color=colours)
right.set(title="Mean weights; the drivers are orange", xlabel="weight")
right.set_yticks(range(SERIES))
right.invert_yaxis()
PICTURE.parent.mkdir(parents=True, exist_ok=True)
figure.savefig(PICTURE)
print(f"The picture is in {PICTURE}.")
