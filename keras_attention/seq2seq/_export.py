"""Write a SavedModel that generates."""

import os
import pathlib
import tempfile
from collections.abc import Callable
from typing import Any

import keras
from keras import tree

from keras_attention._spec import Description, check_bool
from keras_attention._typing import Nested, Tensor
from keras_attention.backend import ops
from keras_attention.seq2seq._checks import check

# The files of a SavedModel.
SAVED_MODEL = {"saved_model.pb", "fingerprint.pb", "variables", "assets", "assets.extra"}


def write_saved_model(
    path: str | os.PathLike, serve: Callable, sources: Nested, tracked: list
) -> None:
    """Write a SavedModel with one endpoint, in place of an earlier one.

    Args:
        path: the folder: a new one, an empty one or a SavedModel.
        serve: a function from the source, or from strings, to a dictionary of tensors.
        sources: symbolic sources; None for strings.
        tracked: the models, tables and tokenizers that `serve` uses.
    """
    where, backend = "export_generate", keras.backend.backend()
    remedy = "Save the model as a .keras file, and load it with KERAS_BACKEND=tensorflow."
    check(where, backend == "tensorflow", "the backend must be tensorflow", backend, remedy)
    import tensorflow as tf

    path = pathlib.Path(path).absolute()
    inside = {part.name for part in path.iterdir()} if path.is_dir() else set()
    saved = "saved_model.pb" in inside and inside <= SAVED_MODEL
    free = saved or not path.exists() or (path.is_dir() and not inside)
    expected = "`path` must be a new or empty folder, or a SavedModel, which is replaced"
    check(where, free, expected, Description(f"{path}, which holds other files"))
    text = tf.TensorSpec((None,), tf.string, name="source")
    signature = [text if sources is None else _specs(sources)]
    archive: Any = keras.export.ExportArchive()  # of the backend
    for resource in tracked:
        archive.track(resource)
    archive.add_endpoint(
        "serving_default", tf.function(serve, input_signature=signature, autograph=False)
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"{path.name}-", dir=path.parent) as folder:
        new = pathlib.Path(folder, "new")
        archive.write_out(str(new), verbose=False)
        if path.exists():
            path.rename(pathlib.Path(folder, "old"))
        new.rename(path)


def _specs(sources):
    """Return the signature of the source, whose names are the keys of the SavedModel."""
    import tensorflow as tf

    def spec(path, x):
        keys = "_".join(map(str, path)) if any(isinstance(key, str) for key in path) else ""
        # TensorFlow calls the items of a tuple source, source_1. Keras names what the user did not.
        name = keys or (None if x.name.startswith("keras_tensor") else x.name)
        return tf.TensorSpec(x.shape, x.dtype, name=name if path else "source")

    specs = [None if x is None else spec(path, x) for path, x in tree.flatten_with_path(sources)]
    return tree.pack_sequence_as(sources, specs)


def check_export(text: object, tokenize: object, detokenize: object, tracked: object) -> None:
    """Check the arguments that `export_generate` does not pass to the search."""
    check_bool("export_generate", "text", text)
    for name, function in {"tokenize": tokenize, "detokenize": detokenize}.items():
        right = function is None or callable(function)
        check("export_generate", right, f"`{name}` must be a function or None", function)
    expected = "`tracked` must be a list of tables, tokenizers and layers"
    check("export_generate", isinstance(tracked, (list, tuple)), expected, tracked)


def texts_of(detokenize: Callable, tokens: Tensor, lengths: Tensor) -> Tensor:
    """Detokenize `(B, L)` or `(B, K, L)`. The function receives rows of tokens."""
    if len(tokens.shape) == 2:
        return detokenize(tokens, lengths)
    rows = ops.reshape(tokens, (-1, tokens.shape[-1]))
    return ops.reshape(detokenize(rows, ops.reshape(lengths, (-1,))), ops.shape(lengths))
