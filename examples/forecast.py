"""
Forecast a time series with missing steps
=========================================

The temperature of the next day is forecast from a week in which many measurements are missing. A
missing value stays NaN. The mask of :py:obj:`keras_attention.LuongAttention` keeps it out of the
forecast and out of the gradients, so nobody has to invent a number for it. Look at the picture: a
forecast reads the same hour of the last days and skips missing hours. `--data FILE.csv` forecasts
the last column of your file.

Paper: Luong, Pham and Manning, 2015, https://arxiv.org/abs/1508.04025, the score "general".
"""

import argparse
import pathlib
import sys

import keras
import matplotlib.pyplot as plt
import numpy as np
from keras import ops

from keras_attention import LuongAttention
from keras_attention.plotting import attention_weights

SEED = 0
TRAIN_SIZE, TEST_SIZE = 1000, 200
PAST, FUTURE, MISSING = 7 * 24, 24, 0.4
EPOCHS, BATCH_SIZE, LEARNING_RATE = 40, 50, 0.02
PICTURE = pathlib.Path("output/forecast.png")

parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
parser.add_argument("--data", metavar="FILE.csv", help="a line of names, then a row for each hour")
# The arguments of a notebook are those of its kernel.
options = parser.parse_args([] if "ipykernel" in sys.modules else None)

keras.utils.set_random_seed(SEED)
rng = np.random.default_rng(SEED)

# %%
# Data
# ----
# Every series has its own daily pattern, its own level, which drifts, and noise. In the past week,
# 40% of the hours are missing and have the value NaN. In a file, an empty cell is missing; each
# complete day is forecast from the week before it, and the last sixth is for testing.
steps = np.arange(-PAST, FUTURE)  # hours; the forecast begins at 0


def read_series(path):
    """The hours `(count, PAST + FUTURE)` of the series in a file, and what was measured then."""
    with open(path, encoding="utf-8-sig") as file:
        cells = {"delimiter": ",", "usecols": file.readline().count(","), "comments": None}
        values = np.loadtxt(file, converters=lambda cell: float(cell or "nan"), ndmin=1, **cells)
    hours = np.arange(PAST, len(values) - FUTURE + 1, FUTURE)[:, None] + steps
    hours = hours[np.isfinite(values[hours[:, PAST:]]).all(axis=1)]
    if len(hours) < 60:
        raise ValueError(f"needs 60 complete days that follow a week; it has {len(hours)}")
    return hours, values[hours]


count = TRAIN_SIZE + TEST_SIZE
hours = rng.integers(0, 24, (count, 1)) + steps
series = rng.normal(15, 5, (count, 1)) + rng.normal(0, 0.2, hours.shape).cumsum(axis=1)
for waves in (1, 2, 3):
    size, shift = rng.normal(0, 4 / waves, (count, 1)), rng.uniform(0, 2 * np.pi, (count, 1))
    series += size * np.sin(2 * np.pi * waves * hours / 24 + shift)
series += rng.normal(0, 0.5, series.shape)
series[:, :PAST][rng.random((count, PAST)) < MISSING] = np.nan
if options.data:
    try:
        hours, series = read_series(options.data)
    except (OSError, ValueError) as error:
        parser.error(f"--data {options.data}: {error}")
history, future = np.split(series.astype("float32"), [PAST], axis=1)

# A time is described by waves over the day, by the day, and by a constant.
angles = 2 * np.pi * hours[:, :, None] * np.arange(1, 7) / 24
days = np.broadcast_to(steps / 24, hours.shape)[:, :, None]
times = np.concatenate([np.sin(angles), np.cos(angles), days, np.ones_like(days)], axis=-1)
times = times.astype("float32")
inputs = [times[:, PAST:], history[:, :, None], times[:, :PAST]]
first = len(series) * TRAIN_SIZE // count  # the first series for testing
train, test = slice(first), slice(first, None)

# %%
# Model
# -----
# The queries are the hours to forecast, the keys are the past hours, and the values are the
# measurements. The mask is False where a value is NaN. The weights of the other hours sum to one,
# so a forecast is an average of measurements.
query = keras.Input((FUTURE, times.shape[-1]))
value = keras.Input((PAST, 1))
key = keras.Input((PAST, times.shape[-1]))
mask = ops.logical_not(ops.isnan(value[:, :, 0]))
attention = LuongAttention("general", name="attention")
forecast = attention(query, value, key, value_mask=mask)
model = keras.Model([query, value, key], forecast)

# %%
# Training
# --------
# The loss compares every forecast with the truth. The layer learns which hours to compare.
model.compile(keras.optimizers.Adam(LEARNING_RATE), "mean_squared_error")
training_inputs = [x[train] for x in inputs]
model.fit(training_inputs, future[train, :, None], batch_size=BATCH_SIZE, epochs=EPOCHS, verbose=2)

# %%
# Result
# ------
# The error is compared with two simpler ways: zeros in place of missing values, and the mean of
# the same hour on all days.
test_inputs, truth = [x[test] for x in inputs], future[test]
predictions = model.predict(test_inputs, verbose=0)[:, :, 0]
zeros_predictions = model.predict([*map(np.nan_to_num, test_inputs)], verbose=0)[:, :, 0]
same_hours = np.ma.masked_invalid(history[test].reshape(len(truth), -1, 24)).mean(axis=1)
for n, hour in enumerate((0, 8, 16)):
    print(f"in {hour:2} hours: forecast {predictions[n, hour]:4.1f}, truth {truth[n, hour]:4.1f}")
error = np.abs(predictions - truth).mean()
zeros_error = np.abs(zeros_predictions - truth).mean()
same_hours_error = np.abs(same_hours - truth).mean()
print(f"Mean error {error:.2f}. With zeros in place of missing values: {zeros_error:.2f}.")
print(f"Mean of what was measured at the same hour of the week's days: {same_hours_error:.2f}.")
assert options.data or error < 0.9 * same_hours_error, "The attention should prefer the last days."
assert options.data or error < 0.5 * zeros_error, "The mask should matter."

# %%
# Picture
# -------
# One forecast, and what it reads for the hour that has the most measurements in the last days.
# :py:obj:`keras_attention.plotting.attention_weights` returns the weights of a trained model.
missing = np.isnan(history[first])
hour = int(missing.reshape(-1, 24)[-4:].sum(axis=0).argmin())
weights = attention_weights(model, [x[:1] for x in test_inputs])["attention"][0, hour]
assert np.all(weights[missing] == 0), "Missing values should have no weight."
figure, (top, bottom) = plt.subplots(2, figsize=(13, 6), sharex=True, layout="constrained")
top.plot(steps[:PAST], history[first], "o", markersize=4, label="measured")
top.plot(steps[PAST:], truth[0], label="what came")
top.plot(steps[PAST:], predictions[0], label="forecast")
top.plot(hour, predictions[0, hour], "ko", label="explained below")
top.set(title=f"A forecast from a week with {missing.mean():.0%} missing", ylabel="measurement")
top.legend(loc="center left", bbox_to_anchor=(1, 0.5))
bottom.bar(steps[:PAST], missing * weights.max(), width=1, color="0.9", label="missing")
bottom.bar(steps[:PAST], weights, width=1, label="weight")
bottom.set(title=f"What the forecast {hour} hours ahead reads", ylabel="weight")
bottom.set(xlabel="hours from now", xlim=(-PAST, FUTURE))
bottom.set_xticks(range(-PAST, FUTURE + 1, 24))
bottom.legend(loc="center left", bbox_to_anchor=(1, 0.5))
PICTURE.parent.mkdir(parents=True, exist_ok=True)
figure.savefig(PICTURE)
print(f"The picture is in {PICTURE}.")
