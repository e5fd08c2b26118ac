"""Gradients that a backend, left to itself, gets wrong or makes expensive."""

import contextlib
import contextvars
from collections.abc import Callable, Iterator

import keras
from keras import ops

from keras_attention._typing import Nested, Tensor
from keras_attention.ops._differentiable import differentiable
from keras_attention.ops._graphs import in_compiled_code, in_graph, is_loop, treated_as_compiled
from keras_attention.ops._loops import leaves, pack_like

_repeated = contextvars.ContextVar("keras_attention_repeated", default=False)


@contextlib.contextmanager
def without_gradients() -> Iterator[None]:
    """PyTorch records every step for gradients by default. The other backends do not."""
    if keras.backend.backend() != "torch":
        yield
        return
    import torch

    with torch.no_grad():
        yield


@contextlib.contextmanager
def repeated() -> Iterator[None]:
    """Marks code that a decoder repeats for every step, so that it stores little for each."""
    token = _repeated.set(True)
    try:
        yield
    finally:
        _repeated.reset(token)


def in_decoder() -> bool:
    """Whether this code belongs to a step of a decoder."""
    return _repeated.get()


def is_repeated() -> bool:
    """Whether this code belongs to a step of a decoder, or to a loop of a TensorFlow graph."""
    if in_decoder() or not in_graph():
        return in_decoder()
    import tensorflow as tf

    graph = tf.compat.v1.get_default_graph()
    while graph is not None and not is_loop(graph):
        graph = getattr(graph, "outer_graph", None)
    return graph is not None


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
    compiled = in_compiled_code()

    def gradient(*args):
        inputs, upstream = args[: len(tensors)], args[len(tensors) :]

        def of(function):
            return lambda: vector_jacobian(lambda *x: (function(*x), None), inputs, upstream)[0]

        with treated_as_compiled(compiled):
            return tuple(ops.cond(condition, of(first), of(second)))

    def choose(*inputs):
        return ops.cond(condition, lambda: first(*inputs), lambda: second(*inputs))

    return differentiable(choose, gradient, *tensors)


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
            found = torch.autograd.grad(*given, materialize_grads=True)
        return pack_like(inputs, list(found)), more
    import tensorflow as tf

    # The same tensor may be given twice, and each copy needs its own gradient.
    inputs = pack_like(inputs, [tf.identity(x) for x in leaves(inputs)])
    with tf.GradientTape() as tape:
        tape.watch(leaves(inputs))
        outputs, more = function(*inputs)
    found = tape.gradient(
        leaves(outputs), leaves(inputs), leaves(upstream), unconnected_gradients="zero"
    )
    return pack_like(inputs, [tf.convert_to_tensor(x) for x in found]), more
