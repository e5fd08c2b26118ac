"""Functions with a custom gradient, on every backend."""

import functools
from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from keras_attention._place import Compiling, in_graph, is_loop
from keras_attention._typing import Tensor
from keras_attention.ops.loops import leaves

__all__ = ["differentiable"]


def differentiable(
    function: Callable[..., Any], gradient: Callable[..., tuple], *tensors: Tensor
) -> Any:
    """Calls `function(*tensors)`, whose gradient is `gradient(*tensors, *upstream)`.

    On PyTorch, Keras's `ops.custom_gradient` supports one output only. If the function raises, it
    calls the function again and returns NaN as the gradient. This function has neither problem.

    Args:
        function: returns a tensor or a tuple of tensors.
        gradient: takes the tensors and the gradients of all outputs. Returns a gradient for each
            tensor, or None. It may run later: the choice of `compiling` holds there too.

    Returns:
        What the function returns.
    """
    backend = keras.backend.backend()
    if backend == "torch":
        return _torch_function().apply(function, gradient, *tensors)
    compiling = Compiling.here()

    @ops.custom_gradient
    def run(*given):
        def grad(*upstream):
            with compiling.restored():
                # TensorFlow passes the gradients of several outputs one by one, JAX as one tuple.
                return gradient(*_for_backward(tensors, given), *leaves(upstream))

        # Otherwise TensorFlow would differentiate the function itself. JAX must do so, for second
        # derivatives.
        constants = map(ops.stop_gradient, given) if backend == "tensorflow" else given
        return function(*constants), grad

    return run(*tensors)


def _for_backward(inputs, given):
    """Chooses which copies of the tensors the backward pass captures.

    Inside a loop, TensorFlow stores whatever the backward pass captures, once per step. There, the
    backward pass captures the tensors outside the custom gradient, `inputs`, instead of their
    copies, `given`. Elsewhere, above all in a branch of a conditional, only the copies can be used.
    """
    if not in_graph():
        return given
    import tensorflow as tf

    return inputs if is_loop(tf.compat.v1.get_default_graph()) else given


@functools.cache
def _torch_function():
    import torch

    class Differentiable(torch.autograd.Function):
        @staticmethod
        def forward(function, gradient, *tensors):
            return function(*tensors)

        @staticmethod
        def setup_context(ctx, inputs, output):
            _, ctx.gradient, *tensors = inputs
            ctx.save_for_backward(*tensors)

        @staticmethod
        def backward(ctx, *upstream):
            return None, None, *ctx.gradient(*ctx.saved_tensors, *upstream)

    return Differentiable
