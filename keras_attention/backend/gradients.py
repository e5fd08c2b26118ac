"""Gradients that a backend, left to itself, gets wrong or makes expensive."""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import keras

from keras_attention._typing import Nested, Tensor
from keras_attention.backend.context import Compiling, in_graph, is_loop
from keras_attention.backend.loops import leaves, scan, unflatten_as
from keras_attention.backend.operations import ops

__all__ = [
    "differentiable",
    "differentiable_cond",
    "linearize",
    "restored",
    "run_after",
    "vector_jacobian",
    "weight_gradients",
    "without_gradients",
]


def differentiable(
    function: Callable[..., Any], gradient: Callable[..., tuple], *tensors: Tensor
) -> Any:
    """Calls `function(*tensors)`, whose gradient is `gradient(*tensors, *grad_output)`.

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
        def grad(*grad_output):
            with compiling.restored():
                # TensorFlow passes the gradients of several outputs one by one, JAX as one tuple.
                return gradient(*_for_backward(tensors, given), *leaves(grad_output))

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
        def backward(ctx, *grad_output):
            return None, None, *ctx.gradient(*ctx.saved_tensors, *grad_output)

    return Differentiable


@contextlib.contextmanager
def without_gradients() -> Iterator[None]:
    """PyTorch records every step for gradients by default. The other backends do not."""
    if keras.backend.backend() != "torch":
        yield
        return
    import torch

    with torch.no_grad():
        yield


def run_after(other: Tensor, x: Tensor) -> Tensor:
    """Returns x, which a TensorFlow graph computes after the other tensor.

    Otherwise the backward pass of a loop would compute everything that does not depend on the
    other tensor, such as a tanh of the forward pass, many steps in advance.
    """
    if not in_graph():
        return x
    import tensorflow as tf

    with tf.control_dependencies([other]):
        return tf.identity(x)


def differentiable_cond(
    condition: Tensor,
    first: Callable[..., tuple[Tensor, ...]],
    second: Callable[..., tuple[Tensor, ...]],
    *tensors: Tensor,
) -> tuple[Tensor, ...]:
    """Calls `first(*tensors)` if the condition holds, otherwise `second(*tensors)`, on TensorFlow.

    TensorFlow cannot differentiate `tf.cond` when a branch has custom gradients and the tape is
    outside the graph. Here the forward pass and the backward pass each have a conditional, and the
    backward pass computes its branch again.

    Args:
        condition: a boolean scalar tensor.
        first, second: functions of the tensors. Both return a tuple of tensors, with the same
            shapes. No gradient flows to other tensors that they use.
        tensors: floating point; gradients flow to all of them.

    Returns:
        The tuple of the branch that ran. Its sizes may be unknown even where both branches know
        them. Second derivatives are not tested.
    """

    def gradient(*args):
        inputs, grad_output = args[: len(tensors)], args[len(tensors) :]

        def of(function):
            return lambda: vector_jacobian(lambda *x: (function(*x), None), inputs, grad_output)[0]

        return tuple(ops.cond(condition, of(first), of(second)))

    def choose(*inputs):
        return ops.cond(condition, lambda: first(*inputs), lambda: second(*inputs))

    return differentiable(choose, gradient, *tensors)


def restored(x: Tensor, stored: Tensor | None) -> Tensor:
    """The stored value of x, if there is one. Its gradient goes to x."""
    if stored is None:
        return x
    # Nothing else uses x, so its computation is removed from a graph.
    return differentiable(
        lambda x, stored: stored, lambda x, stored, grad_output: (grad_output, None), x, stored
    )


def linearize(
    function: Callable[..., list[tuple[str, Nested]]], *inputs: Nested
) -> tuple[list[str], Callable[[int, Nested], list[Tensor | None]]]:
    """Computes the gradients of each output of a function separately, on TensorFlow or JAX.

    Args:
        function: takes the inputs, and returns named outputs, nests of floating-point tensors.
        inputs: floating-point tensors, in any nesting.

    Returns:
        The names, and a function: `pull(n, grad_output)` returns the gradients of all
        inputs, in a list, for the gradients of output n. None stands for zero.
    """
    if keras.backend.backend() == "jax":
        import jax

        names = []

        def output(n):
            def run(*inputs):
                results = function(*inputs)
                names[:] = [name for name, _ in results]
                return leaves(results[n][1])

            return run

        def pull(n, grad_output):
            return leaves(jax.vjp(output(n), *inputs)[1](leaves(grad_output)))

        jax.eval_shape(output(0), *inputs)
        return names, pull
    import tensorflow as tf

    # The same tensor may be given twice, and each copy needs its own gradient.
    inputs = unflatten_as(inputs, map(tf.identity, leaves(inputs)))
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(leaves(inputs))
        names, outputs = zip(*function(*inputs), strict=True)

    def pull(n, grad_output):
        return tape.gradient(leaves(outputs[n]), leaves(inputs), leaves(grad_output))

    return list(names), pull


def vector_jacobian(
    function: Callable[..., tuple[Nested, Nested]], inputs: tuple[Nested, ...], grad_output: Nested
) -> tuple[tuple[Nested, ...], Nested]:
    """The gradients of a function's inputs, on every backend.

    Args:
        function: takes the inputs, and returns its outputs and anything else to be returned.
        inputs: floating-point tensors, in any nesting.
        grad_output: the gradients of the outputs.

    Returns:
        The gradients, with the nesting of the inputs, and what else the function returned.
    """
    if keras.backend.backend() == "jax":
        import jax

        outputs, gradient, more = jax.vjp(function, *inputs, has_aux=True)
        return gradient(unflatten_as(outputs, leaves(grad_output))), more
    if keras.backend.backend() == "torch":
        import torch

        with torch.enable_grad():
            inputs = unflatten_as(inputs, [x.detach().requires_grad_() for x in leaves(inputs)])
            outputs, more = function(*inputs)
            given = leaves(outputs), leaves(inputs), leaves(grad_output)
            gradients = torch.autograd.grad(*given, materialize_grads=True)
        return unflatten_as(inputs, list(gradients)), more
    import tensorflow as tf

    # The same tensor may be given twice, and each copy needs its own gradient.
    inputs = unflatten_as(inputs, map(tf.identity, leaves(inputs)))
    with tf.GradientTape() as tape:
        tape.watch(leaves(inputs))
        outputs, more = function(*inputs)
    gradients = tape.gradient(
        leaves(outputs), leaves(inputs), leaves(grad_output), unconnected_gradients="zero"
    )
    return unflatten_as(inputs, map(tf.convert_to_tensor, gradients)), more


def weight_gradients(
    function: Callable[..., Nested],
    weights: list[Tensor],
    grad_output: Nested,
    size: int,
    *tensors: Nested,
) -> list[Tensor]:
    """The gradients of the weights of a function of one step, summed over all steps, on JAX.

    JAX vectorises the function over groups of at most `size` steps, which come one after the other.

    Args:
        function: `function(weights, *tensors of one step)` returns the results of this step.
        weights: floating-point tensors.
        grad_output: the gradients of the results of all steps, `(T, ...)`.
        size: how many steps a group has at most; at least one.
        tensors: the other arguments of all steps, `(T, ...)` in any nesting.
    """
    import jax

    steps = leaves(grad_output)[0].shape[0]
    groups = max(1, min(steps, -(-steps // max(1, size))))
    size = -(-steps // groups)

    def split(x, mode):
        x = jax.numpy.pad(x, [(0, groups * size - steps)] + [(0, 0)] * (x.ndim - 1), mode)
        return ops.reshape(x, (groups, size, *x.shape[1:]))

    def add_group(totals, group):
        grad_output, tensors = group

        def run(weights):
            return jax.vmap(functools.partial(function, weights))(*tensors), None

        (gradients,), _ = vector_jacobian(run, (weights,), grad_output)
        return [*map(ops.add, totals, gradients)], None

    # The last group is filled with copies of the last step. Their upstream gradients are zero.
    grad_output = jax.tree.map(lambda x: split(x, "constant"), grad_output)
    tensors = jax.tree.map(lambda x: split(x, "edge"), tensors)
    totals, _ = scan(add_group, [ops.zeros_like(x) for x in weights], (grad_output, tensors))
    # Without the barrier, XLA sums the gradient of the keys a second time for the bias inside them.
    return list(jax.lax.optimization_barrier(totals))
