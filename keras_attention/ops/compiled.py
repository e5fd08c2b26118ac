"""Functions compiled by XLA inside code that is not."""

import contextlib
import contextvars
import functools

import keras

# What `compiling` asked for; None: compile where the shapes are known.
_wanted = contextvars.ContextVar("keras_attention_compiling", default=None)
# What `compiled_as` says; None: look.
_known = contextvars.ContextVar("keras_attention_compiled", default=None)


@contextlib.contextmanager
def compiling(choice):
    """Says whether functions are compiled on their own within this context.

    On JAX everything is compiled, and inside a function that TensorFlow compiles anyway so is what
    it calls. Otherwise, on TensorFlow, the heavy functions of this package are compiled on their
    own where that pays: eagerly, in training, and in a graph for known shapes. A graph for unknown
    shapes outside of training is taken for one that will be exported, and gets ordinary
    operations, which every server and converter understands.

    Args:
        choice: True, also for unknown shapes; False, never; None, as the context around says. A
            False around it cannot be overruled. It holds for the thread it is in, and for the
            gradients of what is computed in it.
    """
    if choice is None or wanted() is False:
        yield
        return
    token = _wanted.set(choice)
    try:
        yield
    finally:
        _wanted.reset(token)


@contextlib.contextmanager
def compiled_as(answer):
    """What `is_compiled` says within this context, where TensorFlow cannot tell: in a gradient."""
    token = _known.set(answer)
    try:
        yield
    finally:
        _known.reset(token)


def wanted():
    """What holds here of `compiling`, for a gradient that is computed elsewhere later."""
    return _wanted.get()


def placement(*tensors):
    """Where a function of these tensors is to run.

    Returns:
        "inside": it is compiled together with what calls it. "alone": call it through `alone`.
        "nowhere": nothing is compiled.
    """
    backend = keras.backend.backend()
    if backend == "jax":
        return "alone"
    if backend != "tensorflow":
        return "nowhere"
    if is_compiled():
        return "inside"
    import tensorflow as tf

    known = all(size is not None for x in tensors for size in x.shape)
    possible = tf.test.is_built_with_xla() and wanted() is not False
    return "alone" if possible and (known or wanted()) else "nowhere"


def alone(function, *tensors):
    """Calls a function of tensors compiled.

    On TensorFlow each size of the tensors that differs from those before is compiled anew, which
    takes a second: see `round_up`.
    """
    return _compiled(function, *_signature(tensors), True)(*tensors)


def as_graph(function, shapes, *tensors):
    """Calls a function of tensors on TensorFlow as a graph of these shapes, also eagerly."""
    if keras.backend.backend() != "tensorflow" or makes_graph():
        return function(*tensors)
    return _compiled(function, shapes, _signature(tensors)[1], False)(*tensors)


def as_one_part(function, *tensors):
    """Calls a function without arguments, in a graph of TensorFlow compiled as one part of it.

    For a function that TensorFlow can differentiate, of layers too, where `tensors`, which it
    uses, have known shapes; otherwise it is called as it is.
    """
    if is_compiled() or not is_compiled_as_part(*tensors):
        return function()
    import tensorflow as tf

    return tf.function(function, jit_compile=True, autograph=False)()


def is_compiled_as_part(*tensors):
    """Whether what `as_one_part` calls with these tensors is compiled."""
    if is_compiled():
        return True
    return makes_graph() and not shapes_vary(*tensors) and placement(*tensors) == "alone"


def shapes_vary(*tensors):
    """Whether, on TensorFlow, later calls may bring other sizes to what `alone` compiles now."""
    if keras.backend.backend() != "tensorflow":
        return False
    return not makes_graph() or any(size is None for x in tensors for size in x.shape)


def save_for_gradient(inputs, given):
    """Those of the two, the same tensors, that the gradient of a custom gradient is to use.

    inputs: as they are around it. given: as they come into it. In a loop of TensorFlow the former:
    whatever is made inside and needed by the gradient is kept for every step, even the copies that
    are given. Elsewhere, in the branches of conditionals above all, only the latter will do.
    """
    if not makes_graph():
        return given
    import tensorflow as tf

    graph = tf.compat.v1.get_default_graph()
    return inputs if type(graph).__name__ == "WhileBodyFuncGraph" else given


def round_up(size):
    """The next of the few lengths that sequences are padded to: 1, 32, 64, 96, .. 256, 320, ..

    Steps of 32, and from 256 on of an eighth to a quarter of the size.

    Args:
        size: integer, or scalar int32 tensor of TensorFlow.
    """
    if isinstance(size, int):
        step = max(32, 2 ** ((size - 1).bit_length() - 3))
        return size if size <= 1 else -(-size // step) * step
    import tensorflow as tf

    step, limit = tf.constant(32), size - 1
    for _ in range(20):
        step = tf.where(limit // step >= 8, 2 * step, step)
    return tf.where(size <= 1, size, -(-size // step) * step)


@functools.lru_cache(maxsize=256)
def _compiled(function, shapes, dtypes, jit):
    if keras.backend.backend() == "jax":
        import jax

        return jax.jit(function)
    import tensorflow as tf

    # One function for one signature, and `partial` to make it one of its own to TensorFlow: or it
    # would take new shapes for a mistake, and warn.
    signature = [tf.TensorSpec(*of_one) for of_one in zip(shapes, dtypes, strict=True)]
    function = functools.partial(function)
    return tf.function(function, input_signature=signature, jit_compile=jit, autograph=False)


def _signature(tensors):
    """Their shapes and dtypes."""
    shapes = tuple(tuple(x.shape) for x in tensors)
    return shapes, tuple(keras.backend.standardize_dtype(x.dtype) for x in tensors)


def makes_graph():
    """Whether what is computed now becomes a graph of TensorFlow."""
    if keras.backend.backend() != "tensorflow":
        return False
    import tensorflow as tf

    return not tf.executing_eagerly()


def is_compiled():
    """Whether what is computed here is compiled together with what comes before and after it."""
    if keras.backend.backend() == "jax":
        return True
    if _known.get() is not None:
        return _known.get()
    return makes_graph() and _in_compiled_graph()


def after(other, x):
    """x, in a graph of TensorFlow not before the other tensor is there.

    The backward pass of a loop would otherwise compute what does not depend on the other, such as
    a tanh of the forward pass, for many steps at once and ahead of its use.
    """
    if not makes_graph():
        return x
    import tensorflow as tf

    with tf.control_dependencies([other]):
        return tf.identity(x)


def _in_compiled_graph():
    """Whether the graph that is being made belongs to a function that TensorFlow compiles."""
    import tensorflow as tf

    # In such a graph, and nowhere else, TensorFlow leaves conditionals as they are.
    result = tf.cond(tf.constant(True), lambda: tf.constant(0), lambda: tf.constant(1))
    branch = result.op.inputs[0].op if result.op.type == "Identity" else result.op
    return "_lower_using_switch_merge" not in branch.node_def.attr
