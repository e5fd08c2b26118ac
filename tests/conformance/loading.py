"""Loads models on the backend of this process: `python -m tests.conformance.loading FOLDER`.

Each has a folder with `model.keras` and `data.npz`: inputs, and their outputs. Prints as JSON the
largest error of every output and whether training changes every weight, or the error message.
"""

import json
import sys
import traceback
from pathlib import Path

import keras
import numpy as np

import keras_attention  # noqa: F401 (registers the layers)
import tests.past_weights  # noqa: F401 (the same)


def arrays_of(folder):
    with np.load(folder / "data.npz") as file:
        arrays = dict(file)
    names = sorted(arrays, key=lambda name: (name.rstrip("0123456789"), len(name), name))
    parts = "input", "output"
    return [[arrays[name] for name in names if name.startswith(part)] for part in parts]


def check(folder):
    inputs, expected = arrays_of(folder)
    model = keras.saving.load_model(folder / "model.keras")
    outputs = [np.asarray(x) for x in model.predict_on_batch(inputs)]
    errors = [float(np.abs(x - y).max()) for x, y in zip(outputs, expected, strict=True)]
    training = keras.Model(model.inputs, model.outputs[0])
    training.compile(keras.optimizers.SGD(0.1), "mse")
    before = [keras.ops.convert_to_numpy(x).copy() for x in training.trainable_weights]
    training.train_on_batch(inputs, np.ones_like(outputs[0]))
    after = map(keras.ops.convert_to_numpy, training.trainable_weights)
    moved = [new - old for new, old in zip(after, before, strict=True)]
    return errors, all(np.isfinite(x).all() and x.any() for x in moved)


if __name__ == "__main__":
    results = {}
    for folder in sorted(Path(sys.argv[1]).iterdir()):
        try:
            results[folder.name] = check(folder)
        except Exception:
            results[folder.name] = traceback.format_exc()
    print(json.dumps(results))
