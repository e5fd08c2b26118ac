"""Decides what XLA compiles, and compiles functions inside code that is not compiled."""

import contextlib
import contextvars
import functools
from collections.abc import Callable, Hashable, Iterator
from typing import Any, Literal

import keras
from keras import ops

from keras_attention._typing import Size, Tensor
from keras_attention.ops._graphs import in_compiled_code, in_graph

# TensorFlow stores a compiled program, of 15 to 45 MiB, until the process ends, even when nothing
# can call it any more.
MOST_PROGRAMS = 16
_programs = set()

# The choice that `compiling` made; None: compile where the shapes are known.
_choice: contextvars.ContextVar[bool | None] = contextvars.ContextVar(
    "keras_attention_compiling", default=None
)


@contextlib.contextmanager
def compiling(choice: bool | None) -> Iterator[None]:
    """Chooses, within this context, whether XLA compiles the heavy functions separately.

    This matters on TensorFlow only, and only outside functions that TensorFlow compiles as a whole;
    JAX compiles everything. By default, XLA compiles the heavy functions in eager code, in
    training, and in graphs with known shapes. A graph with unknown shapes outside training is
    probably exported, so it gets ordinary operations, which every server and converter understands.

    The choice holds for the current thread, and for the gradients of whatever it computes.

    Args:
        choice: True compiles for unknown shapes too; False never compiles; None changes nothing.
            An inner context cannot overrule a False around it.

    Raises:
        ValueError: `choice` is not True, False or None.

    Example:
        >>> import numpy
        >>> from keras_attention import BahdanauAttention
        >>> from keras_attention.ops import compiling
        >>> with compiling(False):
        ...     context = BahdanauAttention(13)(numpy.ones((2, 3, 5)), numpy.ones((2, 7, 11)))
        >>> tuple(context.shape)
        (2, 3, 11)
    """
    if not isinstance(choice, bool | None):
        raise ValueError(f"`choice` must be True, False or None; received {choice!r:.80}.")
    if choice is None or compile_choice() is False:
        yield
        return
    token = _choice.set(choice)
    try:
        yield
    finally:
        _choice.reset(token)


def compile_choice() -> bool | None:
    """The choice of the innermost `compiling`, for a gradient that runs later to restore."""
    return _choice.get()


def where_to_run(*tensors: Tensor) -> Literal["inside", "alone", "nowhere"]:
    """Says where XLA compiles a function of these tensors.

    Returns:
        "inside": XLA compiles the caller, and the function with it. "alone": call the function
        through `run_compiled`. "nowhere": XLA compiles nothing.
    """
    backend = keras.backend.backend()
    if backend == "jax":
        return "alone"
    if backend != "tensorflow":
        return "nowhere"
    if in_compiled_code():
        return "inside"
    import tensorflow as tf

    known = all(size is not None for x in tensors for size in x.shape)
    possible = tf.test.is_built_with_xla() and compile_choice() is not False
    return "alone" if possible and (known or compile_choice()) else "nowhere"


def may_compile(*program: Hashable) -> bool:
    """Whether this program may be compiled: eager TensorFlow gets at most `MOST_PROGRAMS`.

    Args:
        program: values that distinguish it, such as a function, sizes and a dtype.
    """
    if keras.backend.backend() != "tensorflow" or in_graph():
        return True
    if program not in _programs and len(_programs) < MOST_PROGRAMS:
        _programs.add(program)
    return program in _programs


def run_compiled(function: Callable[..., Any], *tensors: Tensor) -> Any:
    """Compiles a function of tensors and calls it.

    On TensorFlow each new size takes a second to compile: see `round_up_length`.
    """
    return _compiled(function, *_signature(tensors), True)(*tensors)


def run_as_graph(function: Callable[..., Any], shapes: tuple, *tensors: Tensor) -> Any:
    """Calls a function of tensors as a TensorFlow graph for these shapes, in eager code too."""
    if keras.backend.backend() != "tensorflow" or in_graph():
        return function(*tensors)
    return _compiled(function, shapes, _signature(tensors)[1], False)(*tensors)


def trace_once(function: Callable[..., Any], *tensors: Tensor) -> Any:
    """Calls a function of tensors, which TensorFlow traces once for all graphs with these shapes.

    Tracing a large function takes longer than anything else in building a decoder.
    """
    if keras.backend.backend() != "tensorflow":
        return function(*tensors)
    return _compiled(function, *_signature(tensors), None)(*tensors)


def run_as_compiled_part(function: Callable[[], Any], *tensors: Tensor) -> Any:
    """Calls a function without arguments, which XLA compiles as one part of a TensorFlow graph.

    TensorFlow must be able to differentiate the function. If the shapes of the `tensors` that it
    uses are not known, it is called without compiling.
    """
    if in_compiled_code() or not runs_as_compiled_part(*tensors):
        return function()
    import tensorflow as tf

    return tf.function(function, jit_compile=True, autograph=False)()


def compiled_alone(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of tensors, which XLA compiles for the sizes that arrive in a TensorFlow graph.

    TensorFlow cannot differentiate it: use it in a custom gradient.
    """
    import tensorflow as tf

    return tf.function(function, jit_compile=True, autograph=False)


def runs_as_compiled_part(*tensors: Tensor) -> bool:
    """Whether `run_as_compiled_part` compiles a function of these tensors."""
    if in_compiled_code():
        return True
    return in_graph() and not sizes_may_change(*tensors) and where_to_run(*tensors) == "alone"


def sizes_may_change(*tensors: Tensor) -> bool:
    """Whether a later call may bring other sizes to a function that TensorFlow compiles now."""
    if keras.backend.backend() != "tensorflow":
        return False
    return not in_graph() or any(size is None for x in tensors for size in x.shape)


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
    shapes = tuple(tuple(x.shape) for x in tensors)
    return shapes, tuple(keras.backend.standardize_dtype(x.dtype) for x in tensors)
