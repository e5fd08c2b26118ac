"""Gradients of stored results, and of the weights of many steps."""

import functools
from collections.abc import Callable

from keras_attention._typing import Nested, Tensor
from keras_attention.backend import (
    custom_vjp,
    leaves,
    ops,
    optimization_barrier,
    scan,
    tree_map,
    vjp,
)

__all__ = ["restored", "weight_gradients"]


def restored(x: Tensor, stored: Tensor | None) -> Tensor:
    """Return the stored value of x, if there is one. Its gradient goes to x."""
    if stored is None:
        return x
    # Nothing else uses x, so its computation is removed from a graph.
    return custom_vjp(
        lambda x, stored: stored, lambda x, stored, grad_output: (grad_output, None), x, stored
    )


def weight_gradients(
    function: Callable[..., Nested],
    weights: list[Tensor],
    grad_output: Nested,
    size: int,
    *tensors: Nested,
) -> list[Tensor]:
    """Sum the gradients of the weights of a function of one step over all steps.

    The function is vectorised over groups of at most `size` steps, run in sequence.

    Args:
        function: `function(weights, *tensors of one step)` returns the results of this step.
        weights: floating-point tensors.
        grad_output: the gradients of the results of all steps, `(T, ...)`.
        size: the most steps of a group; at least one.
        tensors: the other arguments of all steps, `(T, ...)` in any nesting.
    """
    steps = leaves(grad_output)[0].shape[0]
    groups = max(1, min(steps, -(-steps // max(1, size))))
    size = -(-steps // groups)

    def split(x, mode):
        x = ops.pad(x, [(0, groups * size - steps)] + [(0, 0)] * (len(x.shape) - 1), mode)
        return ops.reshape(x, (groups, size, *x.shape[1:]))

    def add_group(totals, group):
        grad_output, tensors = group

        def run(weights):
            return ops.vectorized_map(lambda x: function(weights, *x), tensors), None

        (gradients,), _ = vjp(run, (weights,), grad_output)
        return [*map(ops.add, totals, gradients)], None

    # The last group is filled with copies of the last step, whose output gradients are zero.
    grad_output = tree_map(functools.partial(split, mode="constant"), grad_output)
    tensors = tree_map(functools.partial(split, mode="edge"), tensors)
    totals, _ = scan(add_group, [*map(ops.zeros_like, weights)], (grad_output, tensors))
    # Without the barrier, XLA sums the gradient of the keys a second time for the bias inside them.
    return optimization_barrier(totals)
