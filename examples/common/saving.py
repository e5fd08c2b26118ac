"""Models and SavedModels: written whole or not at all, and asked again after they were written."""

import json
import pathlib
import subprocess
import sys

import keras
import numpy as np
import tensorflow as tf
from checkpoint import whole_file

# Scripts that train several models trace several functions; TensorFlow takes that for a mistake.
tf.get_logger().addFilter(lambda record: "triggered tf.function retracing" not in str(record.msg))


def write_model(model, path, inputs):
    """Writes a `.keras` file; one that is there already is replaced after the new one is complete.

    Args:
        inputs: a batch, for which the model that is read again must predict the very same.

    Returns:
        What the model predicts for them: an array, or a list or dictionary of arrays.
    """
    with whole_file(path) as temporary:
        model.save(temporary)
    found = model.predict_on_batch(inputs)
    again = keras.saving.load_model(path).predict_on_batch(inputs)
    gaps = keras.tree.map_structure(lambda x, y: np.abs(x - y).max(), found, again)
    difference = np.max(keras.tree.flatten(gaps))  # NaN, unlike by max, where one of them is
    if difference != 0:
        raise SystemExit(f"{path} differs by {difference:g} from the model that was saved")
    print(f"\n{path}: difference after reloading {difference:g}")
    return found


def write_saved_model(path, serve, names, tracked):
    """Writes a SavedModel with one endpoint.

    Args:
        path: the folder; one that is there already is replaced after the new one is complete.
        serve: takes string tensors `(batch,)` and returns a dictionary of tensors.
        names: of its arguments, in their order.
        tracked: the models, tables and tokenizers that it uses.
    """
    archive = keras.export.ExportArchive()
    for resource in tracked:
        archive.track(resource)
    signature = [tf.TensorSpec((None,), tf.string, name=name) for name in names]
    archive.add_endpoint(
        "serving_default", tf.function(serve, input_signature=signature, autograph=False)
    )
    with whole_file(path) as temporary:
        try:
            archive.write_out(str(temporary), verbose=False)
        except tf.errors.OpError as error:
            raise OSError(" ".join(error.message.split())) from error


def ask_saved_model(path, inputs):
    """What the SavedModel answers in a new process that has neither keras nor our package.

    Args:
        inputs: a dictionary of lists of strings.

    Returns:
        A dictionary of lists, and under "absent" the packages that the process was without.
    """
    script = pathlib.Path(__file__).with_name("run_saved_model.py")
    command = [sys.executable, str(script), str(path)]
    run = subprocess.run(
        command, input=json.dumps(inputs), capture_output=True, encoding="utf-8", check=False
    )
    if run.returncode:
        raise SystemExit(f"the SavedModel failed in a new process:\n{run.stderr}")
    return json.loads(run.stdout.splitlines()[-1])
