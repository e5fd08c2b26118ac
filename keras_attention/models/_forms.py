"""The shapes and dtypes of nested inputs, from which a file builds its model."""

from collections.abc import Callable
from typing import Any

import keras
from keras import tree

from keras_attention._spec import described
from keras_attention._typing import Nested


class Form:
    """An object that Keras does not track, with the shapes and dtypes of nested inputs.

    Attributes:
        of: the nesting of the inputs, with a dictionary of shape and dtype for each. Batch and
            steps are unknown.
    """

    def __init__(self, inputs: Nested) -> None:
        self.of = tree.map_structure(_described, inputs)


def _described(x):
    if x is None:
        return None
    shape = [None, None, *tuple(x.shape)[2:]][: len(x.shape)]
    return {"shape": shape, "dtype": keras.backend.standardize_dtype(x.dtype)}


def mapped(function: Callable[[tuple, str], Any], form: Any) -> Nested:
    """Calls `function(shape, dtype)` for every input of a form."""
    if form is None:
        return None
    if isinstance(form, dict):
        if isinstance(form.get("dtype"), str):
            return function(_shape_of(form), form["dtype"])
        return {name: mapped(function, x) for name, x in form.items()}
    if isinstance(form, (list, tuple)):
        return tuple(mapped(function, x) for x in form)
    raise _damaged(form)


def _shape_of(form):
    """The shape of one input. A file never holds its batch size and its number of steps."""
    shape = form.get("shape")
    if not isinstance(shape, (list, tuple)) or any(x is not None for x in shape[:2]):
        raise _damaged(form)
    if not all(x is None or (isinstance(x, int) and x > 0) for x in shape[2:]):
        raise _damaged(form)
    return tuple(shape)


def _damaged(form):
    return ValueError(
        "The form of the inputs in a saved model must be nested lists or dictionaries of "
        '{"shape": [null, null, features, ...], "dtype": "..."}; this file holds '
        f"{described(form)}. Save the model again, with the package that made it."
    )


def symbolic(form: Any) -> Nested:
    """Symbolic inputs of a form: a call with them builds a model."""
    return mapped(lambda shape, dtype: keras.KerasTensor(shape, dtype=dtype), form)


class KnownForm(keras.Model):
    """A model that remembers the form of its inputs."""

    encoder: keras.layers.Layer

    def build(self, input_shape: Any) -> None:
        """Does nothing: the first call builds the parts.

        Without this method, Keras would trace the call first, and print two warnings before our
        error if a part is wrong.
        """

    def _note_form(self, inputs):
        """Remembers ranks, features and dtypes, from which a loaded model is built."""
        if not hasattr(self, "_input_form"):
            self._input_form = Form(tuple(inputs))

    def _form(self):
        if not hasattr(self, "_input_form"):
            raise ValueError(f"{self.name}: call or train the model once, then export it.")
        return self._input_form.of[0]

    def _source_names(self):
        """The names of the inputs of a functional encoder, if the user chose them."""
        names = [x.name for x in getattr(self.encoder, "inputs", None) or ()]
        return [] if any(name.startswith("keras_tensor") for name in names) else names

    def get_build_config(self) -> dict[str, Any] | None:
        if not hasattr(self, "_input_form"):
            return None
        return {"form": self._input_form.of}

    def build_from_config(self, config: dict[str, Any]) -> None:
        self(symbolic(config["form"]))
