"""Classifies JapaneseVowels, series of different lengths, with attention pooling.

    python benchmarks/vowels.py TRAIN.ts TEST.ts [--models 5] [--seed 0]

Each model is a bidirectional GRU, whose steps `AttentionPooling` turns into one vector. The models
differ in their seeds, and their probabilities are averaged. Prints the accuracy of each and of all,
beside the mean over steps in place of the attention.
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

from keras_attention import AttentionPooling


def read(path):
    """Series `(N, T, D)` with zeros behind their ends, their lengths, and classes from 0."""
    with open(path, encoding="utf-8") as file:
        lines = [x.strip() for x in file if x.strip() and x[0] not in "#@"]
    series, labels = [], []
    for line in lines:
        *channels, label = line.split(":")
        series.append(np.array([[float(x) for x in c.split(",")] for c in channels]).T)
        labels.append(int(label) - 1)
    lengths = np.array([len(x) for x in series])
    padded = np.zeros((len(series), lengths.max(), series[0].shape[1]), "float32")
    for row, x in zip(padded, series, strict=True):
        row[: len(x)] = x
    return padded, lengths, np.array(labels)


def make_model(pooling, channels, classes):
    """Steps and a mask to probabilities."""
    inputs, mask = keras.Input((None, channels)), keras.Input((None,), dtype="bool")
    noisy = keras.layers.GaussianNoise(0.3)(inputs)
    gru = keras.layers.GRU(48, return_sequences=True, use_cudnn=False)
    steps = keras.layers.Bidirectional(gru)(noisy, mask=mask)
    steps = keras.layers.Dropout(0.4)(steps)
    vector = pooling(steps, mask=mask)
    outputs = keras.layers.Dense(classes, activation="softmax")(keras.layers.Dropout(0.4)(vector))
    model = keras.Model([inputs, mask], outputs)
    model.compile(keras.optimizers.Adam(3e-3), "sparse_categorical_crossentropy")
    return model


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("train")
    parser.add_argument("test")
    parser.add_argument("--models", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    train, lengths, labels = read(options.train)
    test, test_lengths, truth = read(options.test)
    real = np.arange(train.shape[1]) < lengths[:, None]
    mean, deviation = train[real].mean(axis=0), train[real].std(axis=0)
    inputs, test_inputs = (
        [(x - mean) / deviation, np.arange(x.shape[1]) < n[:, None]]
        for x, n in ((train, lengths), (test, test_lengths))
    )
    makers = {
        "mean over steps": keras.layers.GlobalAveragePooling1D,
        "attention": lambda: AttentionPooling(32),
    }
    for name, make in makers.items():
        total, each, started = 0.0, [], time.perf_counter()
        for n in range(options.models):
            keras.utils.set_random_seed(options.seed + n)
            model = make_model(make(), train.shape[2], int(labels.max()) + 1)
            model.fit(inputs, labels, batch_size=30, epochs=options.epochs, verbose=0)
            found = model.predict(test_inputs, verbose=0)
            each.append(np.mean(found.argmax(axis=1) == truth))
            total = total + found
        seconds = time.perf_counter() - started
        right = np.sum(total.argmax(axis=1) == truth)
        print(
            f"{name}: {right / len(truth):.1%}, {right} of {len(truth)} right with "
            f"{options.models} models, each {np.mean(each):.1%}; {seconds:.0f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
