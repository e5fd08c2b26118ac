"""Functions of a model that are compiled once and kept."""

import functools
from collections.abc import Callable, Hashable
from typing import Any

import keras
import numpy as np
from keras import tree

from keras_attention._typing import Nested
from keras_attention.backend.gradients import without_gradients
from keras_attention.backend.loops import leaves, unflatten_as
from keras_attention.backend.operations import ops

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
        return keras.backend.backend() == "jax" or _by_xla(model)

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

        if keras.backend.backend() == "torch":
            with without_gradients():
                return of_leaves(tensors)
        if not _same(self._settings, _settings_of(model)):
            self._functions.clear()
        function = self._functions.pop(key, None)
        if function is not None:
            self._functions[key] = function  # the last one is the most recently used
            return function(tensors)
        while len(self._functions) >= MOST_PROGRAMS:
            del self._functions[next(iter(self._functions))]
        make = {"tensorflow": _graph, "jax": _jitted}[keras.backend.backend()]
        function = self._functions[key] = make(model, of_leaves, tensors)
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


def _graph(model, run, tensors):
    import tensorflow as tf

    def spec(x):
        return tf.TensorSpec([None, None, *x.shape[2:]][: len(x.shape)], x.dtype)

    signature = [list(map(spec, tensors))]
    # TensorFlow warns when one function is traced often. A new `partial` prevents that.
    run, jit = functools.partial(run), _by_xla(model) or None
    return tf.function(run, input_signature=signature, autograph=False, jit_compile=jit)


def _by_xla(model):
    return keras.backend.backend() == "tensorflow" and model.compiled and model.jit_compile is True


def _jitted(model, run, tensors):
    import jax

    def compute(values, tensors):
        with keras.StatelessScope(list(zip(model.variables, values, strict=True))):
            return run(tensors)

    compute = jax.jit(compute)
    return lambda tensors: compute([x.value for x in model.variables], tensors)
