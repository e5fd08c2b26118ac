"""A choice between two ways to compute the same, made when a graph runs."""

from keras import ops

from keras_attention.ops.compiled import (
    compiled_as,
    compiling,
    is_compiled,
    save_for_gradient,
    wanted,
)


def either(condition, first, second, *tensors):
    """`first(*tensors)` where the condition holds, otherwise `second(*tensors)`, on TensorFlow.

    `tf.cond` cannot be differentiated where a branch has gradients of its own and the tape is
    outside of the graph. Here forward and backward pass have a conditional each, and the latter
    computes the branch again.

    Args:
        condition: a boolean scalar tensor.
        first, second: functions of the tensors that return a tuple of as many tensors of the same
            shapes. They may use other tensors too, to which no gradient flows.
        tensors: of floating point, by all of which there is a gradient.

    Returns:
        The tuple. Their sizes may be unknown even where those of both branches are known. Second
        derivatives are not tested.
    """
    choice, compiled = wanted(), is_compiled()

    @ops.custom_gradient
    def chosen(*given):
        def grad(*upstream):
            inputs = save_for_gradient(tensors, given)

            def of(function):
                return lambda: _gradient(function, inputs, upstream)

            with compiling(choice), compiled_as(compiled):
                return tuple(ops.cond(condition, of(first), of(second)))

        constants = [ops.stop_gradient(x) for x in given]
        return ops.cond(condition, lambda: first(*constants), lambda: second(*constants)), grad

    return chosen(*tensors)


def _gradient(function, inputs, upstream):
    import tensorflow as tf

    # Copies, for one tensor may be there twice: its gradients must be told apart.
    inputs = [tf.identity(x) for x in inputs]
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        outputs = function(*inputs)
    found = tape.gradient(outputs, inputs, upstream, unconnected_gradients="zero")
    return tuple(tf.convert_to_tensor(x) for x in found)
