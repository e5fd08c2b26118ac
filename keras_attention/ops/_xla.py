"""Decides what XLA compiles, and compiles functions inside code that is not compiled."""

import contextlib
import contextvars
import functools

import keras

# TensorFlow keeps a compiled program, of 15 to 45 MiB, until the process ends, even when nothing
# can call it any more.
MOST_PROGRAMS = 16
_programs = set()

# The choice that `compiling` made; None: compile where the shapes are known.
_choice = contextvars.ContextVar("keras_attention_compiling", default=None)
# The answer that `treated_as_compiled` gives; None: look at the graph.
_answer = contextvars.ContextVar("keras_attention_compiled", default=None)


@contextlib.contextmanager
def compiling(choice):
    """Chooses, within this context, whether the heavy functions are compiled on their own.

    This matters on TensorFlow only, and only outside of functions that TensorFlow compiles as a
    whole; JAX compiles everything. By default, heavy functions are compiled eagerly, in training,
    and in graphs with known shapes. A graph with unknown shapes outside of training will probably
    be exported, so it gets ordinary operations, which every server and converter understands.

    The choice holds for the current thread, and for the gradients of what it computes.

    Args:
        choice: True compiles for unknown shapes too; False never compiles; None changes nothing.
            An inner context cannot overrule a False around it.
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


@contextlib.contextmanager
def treated_as_compiled(answer):
    """Fixes the answer of `in_compiled_code` in a gradient, where TensorFlow cannot tell."""
    token = _answer.set(answer)
    try:
        yield
    finally:
        _answer.reset(token)


def compile_choice():
    """The choice of the innermost `compiling`, to be restored in a gradient that runs later."""
    return _choice.get()


def where_to_run(*tensors):
    """Where a function of these tensors runs.

    Returns:
        "inside": its caller is compiled, and the function with it. "alone": call it through
        `run_compiled`. "nowhere": nothing is compiled.
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


def may_compile(*program):
    """Whether this program may be compiled: eager TensorFlow gets at most `MOST_PROGRAMS`.

    Args:
        program: what distinguishes it, such as a function, sizes and a dtype.
    """
    if keras.backend.backend() != "tensorflow" or in_graph():
        return True
    if program not in _programs and len(_programs) < MOST_PROGRAMS:
        _programs.add(program)
    return program in _programs


def run_compiled(function, *tensors):
    """Compiles a function of tensors and calls it.

    On TensorFlow each new size takes a second to compile: see `round_up_length`.
    """
    return _compiled(function, *_signature(tensors), True)(*tensors)


def run_as_graph(function, shapes, *tensors):
    """Calls a function of tensors as a TensorFlow graph for these shapes, even eagerly."""
    if keras.backend.backend() != "tensorflow" or in_graph():
        return function(*tensors)
    return _compiled(function, shapes, _signature(tensors)[1], False)(*tensors)


def run_as_compiled_part(function, *tensors):
    """Calls a function without arguments, compiled as one part of a TensorFlow graph.

    The function must be one that TensorFlow can differentiate. Where the shapes of the `tensors`
    that it uses are not known, it is called as it is.
    """
    if in_compiled_code() or not runs_as_compiled_part(*tensors):
        return function()
    import tensorflow as tf

    return tf.function(function, jit_compile=True, autograph=False)()


def runs_as_compiled_part(*tensors):
    """Whether `run_as_compiled_part` compiles a function of these tensors."""
    if in_compiled_code():
        return True
    return in_graph() and not sizes_may_change(*tensors) and where_to_run(*tensors) == "alone"


def sizes_may_change(*tensors):
    """Whether a later call may bring other sizes to a function that TensorFlow compiles now."""
    if keras.backend.backend() != "tensorflow":
        return False
    return not in_graph() or any(size is None for x in tensors for size in x.shape)


def round_up_length(size):
    """Rounds a length up, so that few programs serve all lengths: 1, 32, 64, .. 256, 320, ..

    Up to 256 the step is 32; then it is an eighth to a quarter of the size.

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


def in_graph():
    """Whether TensorFlow is building a graph."""
    if keras.backend.backend() != "tensorflow":
        return False
    import tensorflow as tf

    return not tf.executing_eagerly()


def in_compiled_code():
    """Whether the code that is being traced will be compiled as a whole."""
    if keras.backend.backend() == "jax":
        return True
    if _answer.get() is not None:
        return _answer.get()
    return in_graph() and _in_compiled_graph()


def _in_compiled_graph():
    import tensorflow as tf

    # TensorFlow marks conditionals for lowering, except in functions that it compiles.
    result = tf.cond(tf.constant(True), lambda: tf.constant(0), lambda: tf.constant(1))
    branch = result.op.inputs[0].op if result.op.type == "Identity" else result.op
    return "_lower_using_switch_merge" not in branch.node_def.attr


@functools.lru_cache(maxsize=256)
def _compiled(function, shapes, dtypes, jit):
    if keras.backend.backend() == "jax":
        import jax

        return jax.jit(function)
    import tensorflow as tf

    # One tf.function for each signature, around a `partial` of its own: TensorFlow warns when one
    # function is traced for many shapes.
    signature = [tf.TensorSpec(*of_one) for of_one in zip(shapes, dtypes, strict=True)]
    function = functools.partial(function)
    return tf.function(function, input_signature=signature, jit_compile=jit, autograph=False)


def _signature(tensors):
    shapes = tuple(tuple(x.shape) for x in tensors)
    return shapes, tuple(keras.backend.standardize_dtype(x.dtype) for x in tensors)
