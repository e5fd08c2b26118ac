"""Writes a SavedModel that generates."""

import pathlib
import tempfile
from collections.abc import Callable
from typing import Any

import keras
from keras import tree

from keras_attention._spec import Description, is_dense
from keras_attention.backend import ops
from keras_attention.seq2seq._checks import check

# What TensorFlow writes into the folder of a SavedModel.
SAVED_MODEL = {"saved_model.pb", "fingerprint.pb", "variables", "assets", "assets.extra"}


def write_saved_model(
    path: Any, serve: Callable, sources: Any, names: list[str], tracked: list[Any]
) -> None:
    """Writes a SavedModel with one endpoint, in place of an earlier one.

    Args:
        path: the folder: a new one, an empty one or a SavedModel.
        serve: a function from the source, or from strings, to a dictionary of tensors.
        sources: symbolic sources; None for strings.
        names: the names of several sources that are no dictionary, or nothing.
        tracked: the models, tables and tokenizers that `serve` uses.
    """
    backend = keras.backend.backend()
    check("export_generate", "backend", backend == "tensorflow", backend)
    import tensorflow as tf

    path = pathlib.Path(path).absolute()
    inside = {part.name for part in path.iterdir()} if path.is_dir() else set()
    saved = "saved_model.pb" in inside and inside <= SAVED_MODEL
    free = saved or not path.exists() or (path.is_dir() and not inside)
    check("export_generate", "path", free, Description(f"{path}, which holds other files"))
    text = tf.TensorSpec((None,), tf.string, name="source")
    signature = [text if sources is None else _specs(sources, names)]
    archive = keras.export.ExportArchive()
    for resource in tracked:
        archive.track(resource)
    archive.add_endpoint(
        "serving_default", tf.function(serve, input_signature=signature, autograph=False)
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"{path.name}-", dir=path.parent) as folder:
        new, old = pathlib.Path(folder, "new"), pathlib.Path(folder, "old")
        try:
            archive.write_out(str(new), verbose=False)
        except AssertionError as error:
            raise ValueError(
                "export_generate: `tracked` must hold every table, tokenizer and layer that "
                "`tokenize` and `detokenize` use, such as tracked=[table]; it does not."
            ) from error
        if path.exists():
            path.rename(old)
        try:
            new.rename(path)
        except OSError:
            if old.exists():
                old.rename(path)
            raise


def _specs(sources, names):
    """Specifications of the source, whose names are the keys of the SavedModel."""
    import tensorflow as tf

    paths, tensors = zip(*tree.flatten_with_path(sources), strict=True)
    if paths == ((),):
        names = ["source"]
    elif any(isinstance(key, str) for path in paths for key in path):
        names = ["_".join(map(str, path)) for path in paths]
    elif len(names) != len(paths):
        names = [None] * len(paths)  # TensorFlow calls them source, source_1
    specs = [
        None if x is None else tf.TensorSpec(x.shape, x.dtype, name=name)
        for name, x in zip(names, tensors, strict=True)
    ]
    return tree.pack_sequence_as(sources, specs)


def check_export(tokenize: Any, detokenize: Any, tracked: Any) -> None:
    """Checks the arguments that `export_generate` does not pass to the search."""
    for name, function in {"tokenize": tokenize, "detokenize": detokenize}.items():
        check("export_generate", name, function is None or callable(function), function)
    check("export_generate", "tracked", isinstance(tracked, (list, tuple)), tracked)


def check_tokenized(source: Any) -> None:
    """What `tokenize` returned, when the export is traced."""
    for x in tree.flatten(source):
        received = "strings" if is_dense(x) else "a ragged tensor"
        right = is_dense(x) and getattr(x, "dtype", None) != "string"
        check("export_generate", "tokenized", right, Description(received))


def texts_of(detokenize: Callable, tokens: Any, lengths: Any) -> Any:
    """Strings of tokens `(B, L)` or `(B, K, L)`. The function sees rows of tokens."""
    if len(tokens.shape) == 2:
        return detokenize(tokens, lengths)
    rows = ops.reshape(tokens, (-1, tokens.shape[-1]))
    return ops.reshape(detokenize(rows, ops.reshape(lengths, (-1,))), ops.shape(lengths))
