"""Functions of a model that are compiled once and kept."""

import functools
from collections.abc import Callable, Hashable
from typing import Any

import keras
import numpy as np
from keras import tree

from keras_attention._typing import Nested
from keras_attention.backend import (
    compile_function,
    compiles_each_shape,
    leaves,
    ops,
    unflatten_as,
)

MOST_PROGRAMS = 32  # of one model; the least recently used is dropped then
PLAIN = {bool, int, float, complex, str, bytes, type(None)}
NESTED = keras.layers.Layer, dict, list, tuple, set, np.ndarray
# Attributes that `fit` and `evaluate` set, and that no call reads.
OF_TRAINING = {
    "history",
    "stop_evaluating",
    "_eval_epoch_iterator",
    "_jax_state",
    "_jax_state_synced",
    # What `load_weights` sets in layers that can be quantised.
    "is_gptq_calibrated",
    "is_awq_calibrated",
}


class Programs:
    """Compiled functions by key. They use the weights that the model has when they are called.

    A program keeps every attribute as it was when it was traced. So all programs are dropped when
    an attribute of any layer in the model has changed, or a variable was replaced.
    """

    def __init__(self) -> None:
        self._functions: dict[Hashable, Callable] = {}
        self._settings: list[Any] = []

    @staticmethod
    def fixed(model: keras.Model) -> bool:
        """Whether a function of the model is compiled again for every new shape."""
        return compiles_each_shape(_by_xla(model))

    def __call__(self, model: keras.Model, key: Hashable, run: Callable, inputs: Nested) -> Any:
        """Runs `run(*inputs)`, compiled. Functions of one key must do the same.

        The first two axes of the inputs, arrays in any nesting, may have other sizes in every call.
        """
        arrays = leaves(inputs)
        nesting = tree.map_structure(lambda x: None if x is None else 0, inputs)
        forms = tuple((x.ndim, x.shape[2:], x.dtype.name) for x in arrays)
        key = key, repr(nesting), forms
        tensors = [ops.convert_to_tensor(x) for x in arrays]

        def of_leaves(tensors):
            return run(*unflatten_as(nesting, tensors))

        if not _same(self._settings, _settings_of(model)):
            self._functions.clear()
        function = self._functions.pop(key, None)
        if function is not None:
            self._functions[key] = function  # the last one is the most recently used
            return function(tensors)
        while len(self._functions) >= MOST_PROGRAMS:
            del self._functions[next(iter(self._functions))]
        function = compile_function(of_leaves, tensors, model.variables, _by_xla(model))
        self._functions[key] = function
        results = function(tensors)
        self._settings = _settings_of(model)  # tracing may have set attributes
        return results


def _settings_of(model):
    """Everything but the values of variables that a program of a model may depend on, as a list.

    These are the attributes of all layers and what their containers hold, without those that every
    Keras model has.
    """
    settings, seen, rest, ignored = [_by_xla(model)], set(), [model], _ignored()
    while rest:
        x = rest.pop()
        if id(x) in seen:
            continue
        seen.add(id(x))
        if isinstance(x, keras.layers.Layer):
            values = [value for name, value in list(vars(x).items()) if name not in ignored]
            values.append(x.dtype_policy)
        elif isinstance(x, dict):
            values = [*x, *x.values()]
        elif isinstance(x, np.ndarray):
            values = [x.tobytes()]
        else:
            values = list(x)
        settings += values
        rest += [x for x in values if type(x) not in PLAIN and isinstance(x, NESTED)]
    return settings


@functools.cache
def _ignored():
    """Attributes that Keras sets in every model that is compiled and trained."""
    model = keras.Model()
    model.part = keras.layers.Layer()
    model.compile()
    return OF_TRAINING.union(vars(model)) - {"part"}


def _same(settings, others):
    if len(settings) != len(others):
        return False
    changed = [pair for pair in zip(settings, others, strict=True) if pair[0] is not pair[1]]
    return all(type(x) is type(y) and type(x) in PLAIN and x == y for x, y in changed)


def _by_xla(model):
    return model.compiled and model.jit_compile is True
