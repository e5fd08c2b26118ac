"""Writes Keras models completely or not at all, and checks them and SavedModels afterwards."""

import json
import pathlib
import subprocess
import sys

import keras
import numpy as np

from examples.common.files import whole_file


def write_model(model, path, inputs):
    """Writes a `.keras` file. An earlier file is replaced when the new one is complete.

    Args:
        model: a Keras model.
        path: the file.
        inputs: a batch. The model that is loaded from the file must have exactly the same weights
            and, but for rounding, the same predictions.

    Returns:
        The prediction for the batch: an array, or a list or dictionary of arrays.
    """
    found = model.predict_on_batch(inputs)  # Keras warns of a model that was never called
    with whole_file(path) as temporary:
        model.save(temporary)
    loaded = keras.saving.load_model(path)
    weights = zip(model.get_weights(), loaded.get_weights(), strict=True)
    if not all(np.array_equal(x, y, equal_nan=True) for x, y in weights):
        raise SystemExit(f"{path} has other weights than the model that was saved")
    again = loaded.predict_on_batch(inputs)
    gaps = keras.tree.map_structure(lambda x, y: np.abs(x - y).max(), found, again)
    difference = np.max(keras.tree.flatten(gaps))  # unlike max(), it returns NaN if there is one
    # Not 0: TensorFlow optimises a graph for any length and one for this length differently.
    largest = max(np.abs(x).max() for x in keras.tree.flatten(found))
    if not difference <= 1e-5 * max(largest, 1):
        raise SystemExit(f"{path} differs by {difference:g} from the model that was saved")
    print(f"\n{path}: difference after reloading {difference:g}")
    return found


def check_saved_model(path, inputs, expected, tolerance=1e-5):
    """Runs a SavedModel in a process without keras. Refuses it if it returns something else.

    Args:
        path: the folder of the SavedModel.
        inputs: a dictionary of lists of strings, or of lists of numbers.
        expected: for names of what it returns, a list of strings or an array of numbers.
        tolerance: the largest difference between numbers.

    Returns:
        What the SavedModel returned: a dictionary of lists. "absent" lists the packages that the
        process did not have.
    """
    script = pathlib.Path(__file__).with_name("run_saved_model.py")
    # -P: the modules beside the script must not hide packages of the same name.
    command = [sys.executable, "-P", str(script), str(path)]
    run = subprocess.run(
        command, input=json.dumps(inputs), capture_output=True, encoding="utf-8", check=False
    )
    if run.returncode:
        raise SystemExit(f"the SavedModel failed in a new process:\n{run.stderr}")
    reply, gap = json.loads(run.stdout.splitlines()[-1]), 0.0
    for name, value in expected.items():
        if not isinstance(value, list):
            gap = np.maximum(gap, np.abs(np.array(reply[name]) - value).max())  # keeps NaN
        elif reply[name] != value:
            raise SystemExit(f"{path} differs in a new process: {reply[name]}, expected {value}")
    if not gap <= tolerance:
        raise SystemExit(f"{path} differs in a new process, by {gap:.2g}")
    names, absent = " and ".join(expected), " and no ".join(reply["absent"])
    print(
        f"The reloaded SavedModel agrees: {names} equal, numbers within {gap:.1g}; the process had "
        f"no {absent}."
    )
    return reply
