"""Compiles functions inside code that is not compiled."""

import functools
from collections.abc import Callable
from typing import Any

import keras

from keras_attention._typing import Size, Tensor
from keras_attention.backend.context import Place
from keras_attention.backend.operations import ops

__all__ = [
    "bound",
    "compiled_alone",
    "pad_axis",
    "round_up_length",
    "run_as_graph",
    "run_as_part",
    "run_compiled",
    "trace_once",
]


@functools.cache
def bound(function: Callable[..., Any], first: Any) -> Callable[..., Any]:
    """A `partial` of the function. Equal arguments return the same object.

    The functions below store what they compile or trace, for each object.
    """
    return functools.partial(function, first)


def run_compiled(function: Callable[..., Any], *tensors: Tensor) -> Any:
    """Compiles a function of tensors and calls it.

    On TensorFlow each new size takes a second to compile: see `round_up_length`.
    """
    return _compiled(function, *_signature(tensors), True)(*tensors)


def run_as_graph(
    place: Place, function: Callable[..., Any], shapes: tuple, *tensors: Tensor
) -> Any:
    """Calls a function of tensors as a TensorFlow graph for these shapes, in eager code too."""
    if place.backend != "tensorflow" or place.graph:
        return function(*tensors)
    return _compiled(function, shapes, _signature(tensors)[1], False)(*tensors)


def trace_once(place: Place, function: Callable[..., Any], *tensors: Tensor) -> Any:
    """Calls a function of tensors, which TensorFlow traces once for all graphs with these shapes.

    Tracing a large function takes longer than anything else in building a decoder.
    """
    if place.backend != "tensorflow":
        return function(*tensors)
    return _compiled(function, *_signature(tensors), None)(*tensors)


def run_as_part(place: Place, function: Callable[[], Any]) -> Any:
    """Calls a function without arguments, as one part of a TensorFlow graph where that is compiled.

    TensorFlow must be able to differentiate the function.
    """
    if place.compiled or not place.compiles_parts:
        return function()
    import tensorflow as tf

    return tf.function(function, jit_compile=True, autograph=False)()


def compiled_alone(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of tensors, which XLA compiles for the sizes that arrive in a TensorFlow graph.

    TensorFlow cannot differentiate it: use it in a custom gradient.
    """
    import tensorflow as tf

    return tf.function(function, jit_compile=True, autograph=False)


def round_up_length(size: Size) -> Size:
    """Rounds a length up, so that few programs serve all lengths: 1, 32, 64, .. 256, 320, ..

    Up to 256 the step is 32. Beyond, it is an eighth to a quarter of the size.

    Args:
        size: an integer, or a scalar int32 tensor of TensorFlow.
    """
    if isinstance(size, int):
        step = max(32, 2 ** ((size - 1).bit_length() - 3))
        return size if size <= 1 else -(-size // step) * step
    import tensorflow as tf

    step, limit = tf.constant(32), size - 1
    for _ in range(20):
        step = tf.where(limit // step >= 8, 2 * step, step)
    return tf.where(size <= 1, size, -(-size // step) * step)


def pad_axis(x: Tensor, axis: int, count: Size) -> Tensor:
    """Adds zeros (or False) at the end of an axis."""
    if isinstance(count, int) and count == 0:
        return x
    shape = list(ops.shape(x))
    shape[axis] = count
    return ops.concatenate([x, ops.zeros(shape, x.dtype)], axis)


@functools.lru_cache(maxsize=256)
def _compiled(function, shapes, dtypes, jit):
    if keras.backend.backend() == "jax":
        import jax

        return jax.jit(function)
    import tensorflow as tf

    # TensorFlow warns when one function is traced for many shapes. So each signature has its own
    # `partial` of the function and its own tf.function.
    signature = [tf.TensorSpec(*of_one) for of_one in zip(shapes, dtypes, strict=True)]
    function = functools.partial(function)
    return tf.function(function, input_signature=signature, jit_compile=jit, autograph=False)


def _signature(tensors):
    shapes = tuple([tuple(x.shape) for x in tensors])
    return shapes, tuple([keras.backend.standardize_dtype(x.dtype) for x in tensors])
