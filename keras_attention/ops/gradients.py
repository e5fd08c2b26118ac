"""Gradients that a backend, left to itself, gets wrong or makes expensive."""

import contextlib
import functools
from collections.abc import Callable, Iterator

import keras
from keras import ops

from keras_attention._place import in_graph
from keras_attention._typing import Nested, Tensor
from keras_attention.ops.differentiable import differentiable
from keras_attention.ops.loops import leaves, pack_like, scan

__all__ = [
    "differentiable_cond",
    "linearize",
    "restored",
    "run_after",
    "vector_jacobian",
    "weight_gradients",
    "without_gradients",
]


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
        inputs, upstream = args[: len(tensors)], args[len(tensors) :]

        def of(function):
            return lambda: vector_jacobian(lambda *x: (function(*x), None), inputs, upstream)[0]

        return tuple(ops.cond(condition, of(first), of(second)))

    def choose(*inputs):
        return ops.cond(condition, lambda: first(*inputs), lambda: second(*inputs))

    return differentiable(choose, gradient, *tensors)


def restored(x: Tensor, stored: Tensor | None) -> Tensor:
    """The stored value of x, if there is one. Its gradient goes to x."""
    if stored is None:
        return x
    # Nothing else uses x, so its computation is removed from a graph.
    return differentiable(lambda x: stored, lambda x, upstream: (upstream,), x)


def linearize(
    function: Callable[..., list[tuple[str, Nested]]], *inputs: Nested
) -> tuple[list[str], Callable[[int, Nested], list[Tensor | None]]]:
    """Computes the gradients of each output of a function separately, on TensorFlow or JAX.

    Args:
        function: takes the inputs, and returns named outputs, nests of floating-point tensors.
        inputs: floating-point tensors, in any nesting.

    Returns:
        The names, and a function: `pull(n, upstream)` returns the gradients of all tensors of the
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

        def pull(n, upstream):
            return leaves(jax.vjp(output(n), *inputs)[1](leaves(upstream)))

        jax.eval_shape(output(0), *inputs)
        return names, pull
    import tensorflow as tf

    # The same tensor may be given twice, and each copy needs its own gradient.
    inputs = pack_like(inputs, [tf.identity(x) for x in leaves(inputs)])
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(leaves(inputs))
        results = function(*inputs)

    def pull(n, upstream):
        return tape.gradient(leaves(results[n][1]), leaves(inputs), leaves(upstream))

    return [name for name, _ in results], pull


def vector_jacobian(
    function: Callable[..., tuple[Nested, Nested]], inputs: tuple[Nested, ...], upstream: Nested
) -> tuple[tuple[Nested, ...], Nested]:
    """The gradients of a function's inputs, on every backend.

    Args:
        function: takes the inputs, and returns its outputs and anything else to be returned.
        inputs: floating-point tensors, in any nesting.
        upstream: the gradients of the outputs.

    Returns:
        The gradients, with the nesting of the inputs, and what else the function returned.
    """
    if keras.backend.backend() == "jax":
        import jax

        outputs, gradient, more = jax.vjp(function, *inputs, has_aux=True)
        return gradient(pack_like(outputs, leaves(upstream))), more
    if keras.backend.backend() == "torch":
        import torch

        with torch.enable_grad():
            inputs = pack_like(inputs, [x.detach().requires_grad_() for x in leaves(inputs)])
            outputs, more = function(*inputs)
            given = leaves(outputs), leaves(inputs), leaves(upstream)
            gradients = torch.autograd.grad(*given, materialize_grads=True)
        return pack_like(inputs, list(gradients)), more
    import tensorflow as tf

    # The same tensor may be given twice, and each copy needs its own gradient.
    inputs = pack_like(inputs, [tf.identity(x) for x in leaves(inputs)])
    with tf.GradientTape() as tape:
        tape.watch(leaves(inputs))
        outputs, more = function(*inputs)
    gradients = tape.gradient(
        leaves(outputs), leaves(inputs), leaves(upstream), unconnected_gradients="zero"
    )
    return pack_like(inputs, [tf.convert_to_tensor(x) for x in gradients]), more


def weight_gradients(
    function: Callable[..., Nested],
    weights: list[Tensor],
    upstream: Nested,
    size: int,
    *tensors: Nested,
) -> list[Tensor]:
    """The gradients of the weights of a function of one step, summed over all steps, on JAX.

    JAX vectorises the function over groups of at most `size` steps, which come one after the other.

    Args:
        function: `function(weights, *tensors of one step)` returns the results of this step.
        weights: floating-point tensors.
        upstream: the gradients of the results of all steps, `(T, ...)`.
        size: how many steps a group has at most; at least one.
        tensors: the other arguments of all steps, `(T, ...)` in any nesting.
    """
    import jax

    steps = leaves(upstream)[0].shape[0]
    groups = max(1, min(steps, -(-steps // max(1, size))))
    size = -(-steps // groups)

    def split(x, mode):
        x = jax.numpy.pad(x, [(0, groups * size - steps)] + [(0, 0)] * (x.ndim - 1), mode)
        return ops.reshape(x, (groups, size, *x.shape[1:]))

    def add_group(totals, group):
        upstream, tensors = group

        def run(weights):
            return jax.vmap(functools.partial(function, weights))(*tensors), None

        (gradients,), _ = vector_jacobian(run, (weights,), upstream)
        return [*map(ops.add, totals, gradients)], None

    # The last group is filled with copies of the last step. Their upstream gradients are zero.
    upstream = jax.tree.map(lambda x: split(x, "constant"), upstream)
    tensors = jax.tree.map(lambda x: split(x, "edge"), tensors)
    totals, _ = scan(add_group, [ops.zeros_like(x) for x in weights], (upstream, tensors))
    # Without the barrier, XLA sums the gradient of the keys a second time for the bias inside them.
    return list(jax.lax.optimization_barrier(totals))
