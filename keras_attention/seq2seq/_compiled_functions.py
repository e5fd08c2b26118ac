"""The cache of compiled functions of a model."""

from collections.abc import Callable, Hashable

import keras
from keras import tree

from keras_attention._typing import Nested
from keras_attention.backend import compile_function, compiles_each_shape, leaves, ops, unflatten_as

MOST_FUNCTIONS = 32  # of one model; the least recently used is dropped then


class CompiledFunctions:
    """Caches compiled functions of a model by key. They read its weights at each call.

    A function keeps the Python attributes that the layers had when it was traced. `clear` drops
    all functions; so does a call after a variable was replaced, as `quantize` does.
    """

    def __init__(self) -> None:
        self._functions: dict[Hashable, Callable] = {}
        self._variables: list[keras.Variable] = []
        self.version = 0

    def clear(self) -> None:
        """Drop all functions. Those of an ensemble are compiled again for a new `version`."""
        self._functions.clear()
        self.version += 1

    @staticmethod
    def fixed(model: keras.Model) -> bool:
        """Return True if a function of the model is compiled again for every new shape."""
        return compiles_each_shape(_by_xla(model))

    def __call__(self, model: keras.Model, key: Hashable, run: Callable, inputs: Nested) -> Nested:
        """Run `run(*inputs)`, compiled. Functions of one key must do the same.

        The first two axes of the inputs, arrays in any nesting, may have other sizes in every call.
        """
        arrays = leaves(inputs)
        nesting = tree.map_structure(lambda x: None if x is None else 0, inputs)
        signature = tuple((x.ndim, x.shape[2:], x.dtype.name) for x in arrays)
        key = key, repr(nesting), signature, _by_xla(model)
        tensors = [ops.convert_to_tensor(x) for x in arrays]

        def of_leaves(tensors):
            return run(*unflatten_as(nesting, tensors))

        variables = model.variables
        if [*map(id, variables)] != [*map(id, self._variables)]:
            self._functions.clear()
        function = self._functions.pop(key, None)
        if function is None:
            function = compile_function(of_leaves, tensors, variables, _by_xla(model))
        while len(self._functions) >= MOST_FUNCTIONS:
            del self._functions[next(iter(self._functions))]
        self._functions[key] = function  # the last one is the most recently used
        self._variables = variables
        return function(tensors)


def _by_xla(model):
    return model.compiled and model.jit_compile is True
