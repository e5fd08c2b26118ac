"""A SavedModel that takes texts."""

import math

import tensorflow as tf

from examples.serving.requests import Refused

# TensorFlow Serving names these types differently from TensorFlow.
TYPES = {"float32": "DT_FLOAT", "float64": "DT_DOUBLE", "float16": "DT_HALF"}


class Model:
    """A SavedModel that takes one text or more for each row, and returns a dictionary."""

    def __init__(self, path):
        try:
            self._loaded = tf.saved_model.load(path)  # TensorFlow deletes its tables with it
        except (OSError, tf.errors.OpError) as error:
            raise SystemExit(f"{path} cannot be read: {str(error).splitlines()[0]}") from None
        if "serving_default" not in self._loaded.signatures:
            found = ", ".join(self._loaded.signatures) or "none"
            raise SystemExit(f"{path} has no signature serving_default; signatures: {found}")
        self._run = self._loaded.signatures["serving_default"]
        inputs = self._run.structured_input_signature[1]
        self.names = sorted(inputs)
        # One text for each row; Keras models may take it as a column.
        shapes = {name: x.shape.as_list() for name, x in inputs.items() if x.dtype == tf.string}
        if len(shapes) < len(inputs) or not all(x in ([None], [None, 1]) for x in shapes.values()):
            found = ", ".join(f"{name}: {x.dtype.name} {x.shape}" for name, x in inputs.items())
            raise SystemExit(
                f"{path}: the server needs a model that takes one string a row for each input, of "
                f"shape (None,) or (None, 1); this one takes {found}"
            )
        self._sizes = {name: [-1, *shape[1:]] for name, shape in shapes.items()}
        # Every text gets the outputs that have no axis for the texts, such as a list of classes.
        shapes = {name: x.shape for name, x in self._run.structured_outputs.items()}
        self._whole = [n for n, x in shapes.items() if x.rank == 0 or (x.rank and x[0] is not None)]

    def predict(self, rows):
        """Rows, which are dictionaries of strings, to rows of answers."""
        columns = {
            name: tf.reshape(tf.constant([row[name] for row in rows], tf.string), self._sizes[name])
            for name in self.names
        }
        try:
            outputs = self._run(**columns)
        except (tf.errors.InvalidArgumentError, tf.errors.OutOfRangeError) as error:
            raise Refused(400, f"the model refuses this input: {error.message[:500]}") from error
        columns = {name: _plain(x.numpy().tolist()) for name, x in outputs.items()}
        for name in self._whole:
            columns[name] = [columns[name]] * len(rows)
        sizes = {name: len(column) for name, column in columns.items()}
        if set(sizes.values()) != {len(rows)}:
            raise RuntimeError(f"{len(rows)} texts, but other numbers of answers: {sizes}")
        return [{name: column[row] for name, column in columns.items()} for row in range(len(rows))]

    def metadata(self):
        """The signature of the model, as TensorFlow Serving describes it."""

        def describe(x):
            sizes = x.shape.as_list() if x.shape.rank is not None else []
            shape = {"dim": [{"size": str(-1 if n is None else n)} for n in sizes]}
            dtype = TYPES.get(x.dtype.name, "DT_" + x.dtype.name.upper())
            unknown = x.shape.rank is None
            return {"dtype": dtype, "tensor_shape": {**shape, "unknown_rank": unknown}}

        inputs, outputs = self._run.structured_input_signature[1], self._run.structured_outputs
        signature = {
            "inputs": {name: describe(x) for name, x in sorted(inputs.items())},
            "outputs": {name: describe(x) for name, x in sorted(outputs.items())},
            "method_name": "tensorflow/serving/predict",
        }
        return {"signature_def": {"signature_def": {"serving_default": signature}}}


def _plain(value):
    """Values for JSON: bytes become text; NaN and infinity become null."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return None if isinstance(value, float) and not math.isfinite(value) else value
