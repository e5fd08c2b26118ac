"""Operations of `keras.ops` for every module of the package, with two defects corrected.

On JAX and PyTorch some round float64 to float32. On TensorFlow and PyTorch `split` fails without
indices.
"""

import importlib
import types
from typing import Any

import keras

__all__ = ["ROUNDING", "UNARY", "ops"]

ROUNDING = {
    "jax": "floor logaddexp mean tanh",
    # add, divide, multiply and subtract round from Keras 3.16 on.
    "torch": "cumsum floor logaddexp matmul maximum mean minimum add divide multiply subtract",
}

UNARY = "cumsum", "floor", "mean", "tanh"


def _exact(name, library):
    """Returns an operation that calls the backend itself for float64."""
    rounding, native = getattr(keras.ops, name), getattr(library, name)
    # PyTorch takes no number in place of a tensor; on JAX one has no dtype of its own.
    dtype = "float64" if library.__name__ == "torch" else None
    count = 1 if name in UNARY else 2  # the arguments that are tensors

    def operation(*args, **options):
        wide = any(str(getattr(x, "dtype", "")).endswith("float64") for x in args)
        if not wide or any(map(keras.backend.is_keras_tensor, args)):
            return rounding(*args, **options)
        tensors = [keras.ops.convert_to_tensor(x, dtype) for x in args[:count]]
        return native(*tensors, *args[count:], **options)

    return operation


def _split(x, ends, axis=0):
    return [x] if ends == [] else keras.ops.split(x, ends, axis=axis)


def _operations():
    backend = keras.backend.backend()
    names = ROUNDING.get(backend, "").split()
    library = importlib.import_module({"jax": "jax.numpy"}.get(backend, backend)) if names else None
    exact = {name: _exact(name, library) for name in names}
    return types.SimpleNamespace(**{**vars(keras.ops), **exact, "split": _split})


ops: Any = _operations()
