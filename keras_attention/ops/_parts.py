"""The parts with weights that a step of a recurrence is made of."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras
from keras import ops

from keras_attention._checks import is_floating
from keras_attention._typing import Tensor
from keras_attention.ops._differentiable import differentiable
from keras_attention.ops._gradients import vector_jacobian
from keras_attention.ops._loops import leaves
from keras_attention.ops.products import project


class Part(NamedTuple):
    """A function with weights, which a step calls once.

    Attributes:
        weights: a list of floating-point tensors.
        once: `once(weights, *arguments)` returns the results of one step, a list of tensors, and
            the list that `many` and `backward` get as `stored`.
        many: `many(weights, stored, *arguments)` returns the results of all steps. Everything but
            the weights has a first axis of steps.
        prepare: returns what `backward` needs, computed from the weights before the loop.
        backward: `backward(prepared, stored, upstream, *arguments)` returns the gradients of the
            floating-point arguments in one step, in their order. If the part is `summed`, the
            gradients of the weights follow, and the loop adds them up; `many` is not called.
        added: one tensor `(T, ...)` for each of the first results. Each step adds its slice.
    """

    weights: list[Tensor]
    once: Callable[..., tuple[list[Tensor], list[Tensor]]]
    many: Callable[..., list[Tensor]]
    prepare: Callable[..., Any]
    backward: Callable[..., list[Tensor]]
    added: Sequence[Tensor] = ()
    summed: bool = False


def products(
    kernels: list[Tensor], bias: Tensor | None = None, added: Sequence[Tensor] = ()
) -> Part:
    """The part x W + y V + ... + b, with one argument for each kernel."""
    count = len(kernels)

    def multiply(weights, *xs):
        made = [project_steps(x, kernel) for x, kernel in zip(xs, weights[:count], strict=True)]
        return [functools.reduce(ops.add, [*made, *weights[count:]])]

    return Part(
        weights=leaves([*kernels, bias]),
        once=lambda weights, *xs: (multiply(weights, *xs), []),
        many=lambda weights, _, *xs: multiply(weights, *xs),
        prepare=lambda weights: [stored_transposed(x) for x in weights[:count]],
        backward=lambda transposed, _, upstream, *xs: [
            project_steps(upstream[0], x) for x in transposed
        ],
        added=added,
    )


def project_steps(x: Tensor, kernel: Tensor) -> Tensor:
    """Multiplies one step, `(B, D)`, or all of them, `(T, B, D)`, by a kernel."""
    if keras.backend.backend() != "jax":
        return project(x, kernel)
    # A reshape would mix steps and samples, and devices that share the samples would collect all.
    return ops.matmul(x, kernel)


def stored_transposed(x: Tensor) -> Tensor:
    """The transpose of a matrix, as an array of its own.

    If a product takes the transpose of a kernel, XLA moves nothing, and in a loop the product needs
    half as much time again. XLA cannot remove the maximum, which changes no value.
    """
    half = keras.backend.standardize_dtype(x.dtype) == "float16"
    return ops.maximum(ops.transpose(x), -65504.0 if half else -3e38)


def with_added(results: list[Tensor], added: Sequence[Tensor]) -> list[Tensor]:
    """Adds tensors to the first results of a step."""
    return [*map(ops.add, results, added), *results[len(added) :]]


def known_results(
    part: Part,
    prepared: Any,
    results: list[Tensor],
    stored: list[Tensor],
    zeros: list[Tensor],
    weights: list[Tensor],
    *arguments: Tensor,
) -> list[Tensor]:
    """The stored results of a part, which pass gradients to zeros, arguments and `weights`.

    `weights` is empty unless the part is `summed`.
    """
    floating = [n for n, x in enumerate(arguments) if is_floating(x)]

    def gradient(*tensors):
        copies, upstream = tensors[len(zeros) : -len(results)], list(tensors[-len(results) :])
        given = list(arguments)
        for n, x in zip(floating, copies, strict=False):  # copies of the weights follow
            given[n] = x
        return *upstream, *part.backward(prepared, stored, upstream, *given)

    tensors = [*zeros, *(arguments[n] for n in floating), *weights]
    return list(differentiable(lambda *_: tuple(results), gradient, *tensors))


def gradients_of_weights(
    part: Part,
    weights: list[Tensor],
    stored: list[Tensor],
    arguments: list[Tensor],
    upstream: list[Tensor],
) -> list[Tensor]:
    """The gradients of the weights of a part, from all steps at once."""

    def function(weights):
        return part.many(weights, stored, *arguments), None

    return vector_jacobian(function, (weights,), upstream)[0][0]
