"""Operations of `keras.ops`, with two defects corrected.

On JAX and PyTorch some round float64 to float32. On TensorFlow and PyTorch `split` fails without
indices.
"""

import types

import keras

from keras_attention._typing import Tensor

UNARY = "cos", "cumsum", "floor", "mean", "sin", "tanh"


def exact_operations(library: types.ModuleType, names: str) -> types.SimpleNamespace:
    """Return `keras.ops` with these operations replaced by those of the library for float64."""
    exact = {name: _exact(name, library) for name in names.split()}
    return types.SimpleNamespace(**{**vars(keras.ops), **exact, "split": _split})


def _exact(name, library):
    rounding, native = getattr(keras.ops, name), getattr(library, name)
    # PyTorch accepts no Python scalar; on JAX a scalar has no dtype of its own.
    dtype = "float64" if library.__name__ == "torch" else None
    count = 1 if name in UNARY else 2  # the arguments that are tensors

    def operation(*args: Tensor, **options: object) -> Tensor:
        wide = any(str(getattr(x, "dtype", "")).endswith("float64") for x in args)
        if not wide or any(map(keras.backend.is_keras_tensor, args)):
            return rounding(*args, **options)
        tensors = [keras.ops.convert_to_tensor(x, dtype) for x in args[:count]]
        return native(*tensors, *args[count:], **options)

    return operation


def _split(x, ends, axis=0):
    return [x] if ends == [] else keras.ops.split(x, ends, axis=axis)
