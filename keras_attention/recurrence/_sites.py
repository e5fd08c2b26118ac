"""What holds the weights of a recurrence: a product, or any other function."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras
from keras import ops

from keras_attention._spec import is_floating
from keras_attention._typing import Nested, Tensor
from keras_attention.ops.gradients import vector_jacobian
from keras_attention.ops.loops import leaves
from keras_attention.ops.products import project


class Site(NamedTuple):
    """A function with weights, which each step calls once.

    "One step" means tensors `(B, ...)`; "all steps" means `(T, B, ...)`. The weights have no axis
    of steps.

    Attributes:
        weights: floating-point tensors, in a list.
        apply: `apply(weights, *arguments)` returns `(results, residuals)` of one step. Residuals
            are tensors in any nesting, which are stored for the two functions below.
        backward: `backward(prepared, residuals, upstream, *arguments)` returns the gradients of the
            floating-point arguments of one step, in their order.
        of_weights: `of_weights(weights, residuals, upstream, *arguments)` returns the gradients of
            the weights from all steps at once. If it is None, `backward` returns them after those
            of the arguments, and the loop adds them up.
        prepare: computes `prepared` from the weights, once before the loop.
        added: one tensor of all steps for each of the first results. Each step adds its slice.
    """

    weights: list[Tensor]
    apply: Callable[..., tuple[list[Tensor], Nested]]
    backward: Callable[..., list[Tensor]]
    of_weights: Callable[..., list[Tensor]] | None = None
    prepare: Callable[[list[Tensor]], Any] = list
    added: Sequence[Tensor] = ()

    def plus_added(self, results: list[Tensor], added: Sequence[Tensor]) -> list[Tensor]:
        """The results of a step, with the slices of `added` for this step."""
        return [*map(ops.add, results, added), *results[len(added) :]]


def product(
    kernels: list[Tensor], bias: Tensor | None = None, added: Sequence[Tensor] = ()
) -> Site:
    """The site x W + y V + ... + b, with one argument for each kernel and one result."""
    count = len(kernels)

    def apply(weights, *xs):
        products = [multiply(x, kernel) for x, kernel in zip(xs, weights[:count], strict=True)]
        return [functools.reduce(ops.add, [*products, *weights[count:]])], []

    def backward(transposed, _, upstream, *xs):
        return [multiply(upstream[0], kernel) for kernel in transposed]

    def of_weights(weights, _, upstream, *xs):
        biases = [sum_of_rows(upstream[0])] * (len(weights) - count)
        return [kernel_gradient(x, upstream[0]) for x in xs] + biases

    return Site(
        weights=leaves([*kernels, bias]),
        apply=apply,
        backward=backward,
        of_weights=of_weights,
        prepare=lambda weights: [stored_transposed(x) for x in weights[:count]],
        added=added,
    )


def automatic(weights: list[Tensor], function: Callable[..., list[Tensor]]) -> Site:
    """The site of any function `(weights, *arguments) -> results`, differentiated automatically.

    The backward pass computes the function again, and the loop adds up the gradients of weights.
    """

    def backward(weights, _, upstream, *arguments):
        return automatic_gradients(function, weights, upstream, *arguments)

    return Site(weights, lambda weights, *arguments: (function(weights, *arguments), ()), backward)


def automatic_gradients(
    function: Callable[..., list[Tensor]],
    weights: list[Tensor],
    upstream: list[Tensor],
    *arguments: Tensor,
) -> list[Tensor]:
    """The gradients of the floating-point arguments and then of the weights of a function."""

    def run(floats, weights):
        rest = iter(floats)
        return function(weights, *(next(rest) if is_floating(x) else x for x in arguments)), None

    floats = [x for x in arguments if is_floating(x)]
    return leaves(vector_jacobian(run, (floats, list(weights)), list(upstream))[0])


def multiply(x: Tensor, kernel: Tensor) -> Tensor:
    """Multiplies one step, `(B, D)`, or all steps, `(T, B, D)`, by a kernel."""
    if keras.backend.backend() != "jax":
        return project(x, kernel)
    # A reshape would mix steps and samples, and devices that share the samples would collect all.
    return ops.matmul(x, kernel)


def kernel_gradient(x: Tensor, upstream: Tensor) -> Tensor:
    """The gradient of the kernel of `multiply`, from all steps: x^T g."""
    if keras.backend.backend() == "jax":
        import jax

        return jax.lax.dot_general(x, upstream, (((0, 1), (0, 1)), ((), ())))
    x, upstream = (ops.reshape(y, (-1, y.shape[-1])) for y in (x, upstream))
    return ops.matmul(ops.transpose(x), upstream)


def sum_of_rows(upstream: Tensor) -> Tensor:
    """The gradient of a bias, from all steps."""
    return ops.sum(upstream, axis=(0, 1))


def stored_transposed(x: Tensor) -> Tensor:
    """The transpose of a matrix, as an array of its own.

    If a product takes the transpose of a kernel, XLA moves nothing, and in a loop the product needs
    half as much time again. XLA cannot remove the maximum, which changes no value.
    """
    half = keras.backend.standardize_dtype(x.dtype) == "float16"
    return ops.maximum(ops.transpose(x), -65504.0 if half else -3e38)
