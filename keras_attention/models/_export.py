"""Writes a SavedModel that generates."""

import pathlib
import shutil
from collections.abc import Callable
from typing import Any

import keras

from keras_attention.models._forms import mapped


def write_saved_model(path: Any, serve: Callable, form: Any, tracked: list[Any]) -> None:
    """Writes a SavedModel with one endpoint, in place of an earlier one.

    Args:
        path: the folder.
        serve: a function from the source, or from strings, to a dictionary of tensors.
        form: shapes and dtypes of the source; None for strings.
        tracked: the models, tables and tokenizers that `serve` uses.
    """
    if keras.backend.backend() != "tensorflow":
        raise ValueError(
            "export_generate needs the TensorFlow backend; this is "
            f"{keras.backend.backend()}. Save the model as a .keras file, and load it in a process "
            "with KERAS_BACKEND=tensorflow."
        )
    import tensorflow as tf

    single = isinstance(form, dict) and isinstance(form.get("dtype"), str)

    def spec(shape, dtype):
        return tf.TensorSpec(shape, dtype, name="source" if single else None)

    text = tf.TensorSpec((None,), tf.string, name="source")
    signature = [text if form is None else mapped(spec, form)]
    archive = keras.export.ExportArchive()
    for resource in tracked:
        archive.track(resource)
    archive.add_endpoint(
        "serving_default", tf.function(serve, input_signature=signature, autograph=False)
    )
    path = pathlib.Path(path)
    temporary, old = (path.with_name(f"{part}-{path.name}") for part in ("tmp", "old"))
    try:
        shutil.rmtree(temporary, ignore_errors=True)
        archive.write_out(str(temporary), verbose=False)
        shutil.rmtree(old, ignore_errors=True)
        if path.exists():
            path.rename(old)
        try:
            temporary.rename(path)
        except OSError:
            if old.exists():
                old.rename(path)
            raise
        shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
