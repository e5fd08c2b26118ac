"""SavedModels that take strings: written whole or not at all, and asked from a new process."""

import json
import pathlib
import shutil
import subprocess
import sys

import keras
import tensorflow as tf


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
    temporary = path.with_name(path.name + ".tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    archive.write_out(str(temporary), verbose=False)
    shutil.rmtree(path, ignore_errors=True)
    temporary.rename(path)


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
