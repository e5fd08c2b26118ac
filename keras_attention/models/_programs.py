"""Functions of a model that are compiled once and kept."""

import functools
from collections.abc import Callable, Hashable
from typing import Any

import keras
from keras import ops, tree

from keras_attention._typing import Nested
from keras_attention.ops._gradients import without_gradients
from keras_attention.ops._loops import pack_like as pack


class Programs:
    """Compiled functions by key. They use the weights that the model has when they are called."""

    def __init__(self) -> None:
        self._functions: dict[Hashable, Callable] = {}
        self._variables: list[Any] = []

    @staticmethod
    def fixed(model: keras.Model) -> bool:
        """Whether a function of the model is compiled again for every new shape."""
        return keras.backend.backend() == "jax" or _by_xla(model)

    def __call__(
        self, model: keras.Model, key: Hashable, run: Callable, batch: Nested, seed: int
    ) -> Any:
        """Runs `run(batch, seed)`, compiled. Functions of one key must do the same."""
        self._forget_old(model)
        leaves = [x for x in tree.flatten(batch) if x is not None]
        nesting = tree.map_structure(lambda x: None if x is None else 0, batch)
        forms = tuple((x.ndim, x.shape[2:], x.dtype.name) for x in leaves)
        key = key, repr(nesting), forms
        tensors = [ops.convert_to_tensor(x) for x in leaves]
        seed = ops.convert_to_tensor(seed, "int32")

        def of_leaves(tensors, seed):
            return run(pack(nesting, tensors), seed)

        if keras.backend.backend() == "torch":
            with without_gradients():
                return of_leaves(tensors, seed)
        if key not in self._functions:
            make = {"tensorflow": _graph, "jax": _jitted}[keras.backend.backend()]
            self._functions[key] = make(model, of_leaves, tensors)
        return self._functions[key](tensors, seed)

    def _forget_old(self, model):
        """Drops the functions if `quantize` or `enable_lora` has replaced variables."""
        variables = model.variables
        same = len(variables) == len(self._variables)
        if not same or any(x is not y for x, y in zip(variables, self._variables, strict=True)):
            self._functions.clear()
            self._variables = list(variables)


def _graph(model, run, tensors):
    import tensorflow as tf

    def spec(x):
        return tf.TensorSpec([None, None, *x.shape[2:]][: len(x.shape)], x.dtype)

    signature = [list(map(spec, tensors)), tf.TensorSpec((), "int32")]
    # TensorFlow warns when one function is traced often. A new `partial` prevents that.
    run, jit = functools.partial(run), _by_xla(model) or None
    return tf.function(run, input_signature=signature, autograph=False, jit_compile=jit)


def _by_xla(model):
    return keras.backend.backend() == "tensorflow" and model.compiled and model.jit_compile is True


def _jitted(model, run, tensors):
    import jax

    def compute(values, tensors, seed):
        with keras.StatelessScope(list(zip(model.variables, values, strict=True))):
            return run(tensors, seed)

    compute = jax.jit(compute)
    return lambda tensors, seed: compute([x.value for x in model.variables], tensors, seed)
