"""Forecasts all seven variables of ETTh1 with attention, beside simpler ways.

    python benchmarks/etth.py ETTh1.csv [--horizons 24 48 168] [--history 336] [--seed 0]

The split is the usual one, 12, 4 and 4 months of 30 days; the first part standardises. Prints mean
squared and mean absolute errors of the standardised test part for: persistence, the day before;
ridge regression, one for each variable, from its history; DLinear, as the paper describes it; and
attention. There each hour to forecast is a query, and the hours of the history are keys. Both are
described by calendar waves and by a GRU, which read the history; the values are the hours'
deviations from the mean of the last day. The validation part chooses the epoch, and for ridge the
penalty.
"""

import argparse
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))

import examples  # noqa: F401 - silences what TensorFlow says of CUDA and oneDNN

# isort: split
import keras
import numpy as np
from keras import ops

from keras_attention import LuongAttention

MONTH = 30 * 24
PARTS = 12 * MONTH, 16 * MONTH, 20 * MONTH


def read(path):
    """The standardised variables `(T, 7)`."""
    cells = {"delimiter": ",", "skiprows": 1, "usecols": range(1, 8), "max_rows": PARTS[-1]}
    try:
        table = np.loadtxt(path, **cells)
        if len(table) < PARTS[-1]:
            raise ValueError(f"{len(table):,} hours, fewer than {PARTS[-1]:,}")
    except (OSError, ValueError) as error:
        wanted = "a line of names, then for each hour a date and seven numbers, as ETTh1.csv"
        sys.exit(f"{path}: {error}. It must have {wanted}.")
    train = table[: PARTS[0]]
    return ((table - train.mean(axis=0)) / train.std(axis=0)).astype("float32")


def windows(table, begin, end, history, horizon, stride=1):
    """Histories, futures and the hour of the first forecast; the futures lie in begin to end."""
    starts = np.arange(begin, end - horizon + 1, stride)
    past = starts[:, None] + np.arange(-history, 0)
    return table[past], table[starts[:, None] + np.arange(horizon)], starts


def waves(hours):
    """The hour of the day and the day of the week, as waves."""
    periods = np.array([24, 12, 8, 168])
    angles = 2 * np.pi * hours[..., None] / periods
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=-1).astype("float32")


def ridge(train, validation, test):
    """One regression for each variable, from its own history; the penalty by validation."""
    found = np.zeros(test[1].shape, "float32")
    for k in range(found.shape[-1]):
        (x, y), (vx, vy), (tx, _) = (
            [a[:, :, k] - data[0][:, -1:, k] for a in data[:2]]
            for data in (train, validation, test)
        )
        gram, product = x.T @ x, x.T @ y
        fits = [
            np.linalg.solve(gram + penalty * np.eye(len(gram)), product)
            for penalty in (1e1, 1e2, 1e3, 1e4)
        ]
        best = min(fits, key=lambda fit: np.mean((vx @ fit - vy) ** 2))
        found[:, :, k] = tx @ best + test[0][:, -1:, k]
    return found


def dlinear(history, horizon):
    """A moving average over 25 hours and the rest, each with a linear layer."""
    inputs = keras.Input((history, 7))
    ends = [ops.repeat(x, 12, axis=1) for x in (inputs[:, :1], inputs[:, -1:])]
    padded = ops.concatenate([ends[0], inputs, ends[1]], axis=1)
    trend = keras.layers.AveragePooling1D(25, strides=1)(padded)
    parts = [ops.swapaxes(x, 1, 2) for x in (inputs - trend, trend)]
    outputs = sum(keras.layers.Dense(horizon)(x) for x in parts)
    return keras.Model(inputs, ops.swapaxes(outputs, 1, 2))


def attention(history, horizon, units=48):
    """Past values, and the waves of past and future hours, to a forecast."""
    values = keras.Input((history, 7))
    past, future = keras.Input((history, 8)), keras.Input((horizon, 8))
    level = ops.mean(values[:, -24:], axis=1, keepdims=True)
    changes = values - level
    gru = keras.layers.GRU(units, return_sequences=True, return_state=True)
    _, state = gru(ops.concatenate([changes, past], axis=-1))
    ages = np.linspace(-1, 0, history, dtype="float32")[None, :, None]
    ages = ops.zeros_like(past[:, :, :1]) + ages
    ahead = np.linspace(0, 1, horizon, dtype="float32")[None, :, None]
    ahead = ops.zeros_like(future[:, :, :1]) + ahead
    said = ops.repeat(ops.expand_dims(keras.layers.Dense(16)(state), 1), horizon, axis=1)
    query = ops.concatenate([future, ahead, said], axis=-1)
    key = ops.concatenate([past, ages], axis=-1)
    heads = [LuongAttention("general")(query, changes, key) for _ in range(3)]
    context = keras.layers.Dropout(0.2)(ops.concatenate([*heads, said, future, ahead], axis=-1))
    return keras.Model([values, past, future], keras.layers.Dense(7)(context) + level)


def fit(model, inputs, answers, validation, epochs, batch_size, rate):
    """Trains with the mean squared error, and keeps the epoch that is best in validation."""
    model.compile(keras.optimizers.Adam(rate), "mse", jit_compile=False)
    stop = keras.callbacks.EarlyStopping(patience=3, restore_best_weights=True)
    options = {"epochs": epochs, "batch_size": batch_size, "verbose": 0}
    return model.fit(inputs, answers, validation_data=validation, callbacks=[stop], **options)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("path")
    parser.add_argument("--horizons", type=int, nargs="+", default=[24, 48, 168])
    parser.add_argument("--history", type=int, default=336)
    parser.add_argument("--attention-history", type=int, default=168)
    parser.add_argument("--stride", type=int, default=2, help="hours between training windows")
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    table = read(options.path)
    print(f"{'horizon':8} {'model':12} {'squared':>8} {'absolute':>9} {'seconds':>8}")
    for horizon in options.horizons:
        bounds = (options.history, *PARTS)
        train, validation, test = (
            windows(table, begin, end, options.history, horizon, stride)
            for begin, end, stride in zip(
                bounds, bounds[1:], (options.stride, options.stride, 1), strict=False
            )
        )

        def attended(data, horizon=horizon):
            values, _, starts = data
            hours = starts[:, None] + np.arange(-options.attention_history, horizon)
            calendar = waves(hours)
            cut = options.attention_history
            return [values[:, -cut:], calendar[:, :cut], calendar[:, cut:]]

        def report(name, found, started, test=test, horizon=horizon):
            squared, absolute = np.mean((found - test[1]) ** 2), np.mean(np.abs(found - test[1]))
            seconds = time.perf_counter() - started
            row = f"{horizon:<8} {name:12} {squared:8.3f} {absolute:9.3f} {seconds:8.0f}"
            print(row, flush=True)

        days = -(-horizon // 24)
        started = time.perf_counter()
        report("persistence", np.tile(test[0][:, -24:], (1, days, 1))[:, :horizon], started)
        report("ridge", ridge(train, validation, test), started)
        for name, make, history, inputs, rate in (
            ("DLinear", dlinear, options.history, lambda data: data[0], 1e-3),
            ("attention", attention, options.attention_history, attended, 2e-3),
        ):
            keras.utils.set_random_seed(options.seed)
            started, model = time.perf_counter(), make(history, horizon)
            known = inputs(validation), validation[1]
            fit(model, inputs(train), train[1], known, options.epochs, 64, rate)
            report(name, model.predict(inputs(test), batch_size=256, verbose=0), started)


if __name__ == "__main__":
    main()
