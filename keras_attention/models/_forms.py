"""The shapes and dtypes of nested inputs, as a file can hold them."""

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
    shape = [None, None, *tuple(x.shape)[2:]][: len(x.shape)]
    return {"shape": shape, "dtype": keras.backend.standardize_dtype(x.dtype)}


def mapped(function: Callable[[tuple, str], Any], form: Any) -> Nested:
    """Calls `function(shape, dtype)` for every input of a form."""
    if isinstance(form, dict):
        if set(form) == {"shape", "dtype"}:
            return function(tuple(form["shape"]), form["dtype"])
        return {name: mapped(function, x) for name, x in form.items()}
    return tuple(mapped(function, x) for x in form)


def symbolic(form: Any) -> Nested:
    """Symbolic inputs of a form: a call with them builds a model."""
    return mapped(lambda shape, dtype: keras.KerasTensor(shape, dtype=dtype), form)
