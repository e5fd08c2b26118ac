"""Gradients that TensorFlow, left to itself, gets wrong or makes expensive."""

import contextlib
import contextvars

from keras import ops

from keras_attention.ops._xla import (
    compile_choice,
    compiling,
    in_compiled_code,
    in_graph,
    treated_as_compiled,
)

_repeated = contextvars.ContextVar("keras_attention_repeated", default=False)


@contextlib.contextmanager
def repeated():
    """Marks code that a decoder repeats for every step, so that it stores little for each."""
    token = _repeated.set(True)
    try:
        yield
    finally:
        _repeated.reset(token)


def is_repeated():
    """Whether this code belongs to a step of a decoder, or to a loop of a TensorFlow graph."""
    if _repeated.get() or not in_graph():
        return _repeated.get()
    import tensorflow as tf

    graph = tf.compat.v1.get_default_graph()
    while graph is not None and type(graph).__name__ != "WhileBodyFuncGraph":
        graph = getattr(graph, "outer_graph", None)
    return graph is not None


def tensors_for_backward(inputs, given):
    """Chooses which copy of the tensors the backward pass of a custom gradient captures.

    Inside a loop, TensorFlow stores whatever the backward pass captures for every step, so it
    captures the tensors from outside of the custom gradient. Elsewhere, above all in a branch of a
    conditional, only the copies inside can be used.

    Args:
        inputs: the tensors around the custom gradient.
        given: the same tensors as its function received them.
    """
    if not in_graph():
        return given
    import tensorflow as tf

    graph = tf.compat.v1.get_default_graph()
    return inputs if type(graph).__name__ == "WhileBodyFuncGraph" else given


def run_after(other, x):
    """Returns x, which a TensorFlow graph computes after the other tensor.

    Otherwise the backward pass of a loop would compute everything that does not depend on the
    other tensor, such as a tanh of the forward pass, for many steps in advance.
    """
    if not in_graph():
        return x
    import tensorflow as tf

    with tf.control_dependencies([other]):
        return tf.identity(x)


def differentiable_cond(condition, first, second, *tensors):
    """`first(*tensors)` where the condition holds, otherwise `second(*tensors)`, on TensorFlow.

    `tf.cond` cannot be differentiated when a branch has custom gradients and the tape is outside
    of the graph. Here the forward and the backward pass have a conditional each; the backward pass
    computes its branch again.

    Args:
        condition: a boolean scalar tensor.
        first, second: functions of the tensors that return tuples of the same number of tensors of
            the same shapes. No gradient flows to other tensors that they use.
        tensors: of floating point; gradients flow to all of them.

    Returns:
        The tuple. Its sizes may be unknown even where both branches know them. Second derivatives
        are not tested.
    """
    choice, compiled = compile_choice(), in_compiled_code()

    @ops.custom_gradient
    def chosen(*given):
        def grad(*upstream):
            inputs = tensors_for_backward(tensors, given)

            def of(function):
                return lambda: _gradient(function, inputs, upstream)

            with compiling(choice), treated_as_compiled(compiled):
                return tuple(ops.cond(condition, of(first), of(second)))

        constants = [ops.stop_gradient(x) for x in given]
        return ops.cond(condition, lambda: first(*constants), lambda: second(*constants)), grad

    return chosen(*tensors)


def _gradient(function, inputs, upstream):
    import tensorflow as tf

    # Copies, since the same tensor may be given twice and each needs a gradient of its own.
    inputs = [tf.identity(x) for x in inputs]
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        outputs = function(*inputs)
    found = tape.gradient(outputs, inputs, upstream, unconnected_gradients="zero")
    return tuple(tf.convert_to_tensor(x) for x in found)
