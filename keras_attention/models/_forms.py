"""The shapes and dtypes of nested inputs, from which a file builds its model."""

from collections.abc import Callable
from typing import Any

import keras
from keras import tree

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
            return function(tuple(form["shape"]), form["dtype"])
        return {name: mapped(function, x) for name, x in form.items()}
    return tuple(mapped(function, x) for x in form)


def symbolic(form: Any) -> Nested:
    """Symbolic inputs of a form: a call with them builds a model."""
    return mapped(lambda shape, dtype: keras.KerasTensor(shape, dtype=dtype), form)


class KnownForm(keras.Model):
    """A model that remembers the form of its inputs."""

    encoder: keras.layers.Layer

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
