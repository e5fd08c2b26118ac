"""Gradients of stored results, and of the weights of many steps."""

import functools
from collections.abc import Callable

from keras_attention._typing import Nested, Size, Tensor
from keras_attention.backend import (
    custom_vjp,
    leaves,
    ops,
    optimization_barrier,
    scan,
    tree_map,
    vectorized_gradients,
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
    size: Size,
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
    steps = ops.shape(leaves(grad_output)[0])[0]
    static = isinstance(steps, int) and isinstance(size, int)
    least, most = (min, max) if static else (ops.minimum, ops.maximum)
    groups = -(-steps // least(steps, most(1, size)))
    size = -(-steps // groups)

    def split(x, fill):
        missing = groups * size - steps
        if not isinstance(missing, int) or missing:
            rest = ops.broadcast_to(fill(x[-1:]), (missing, *ops.shape(x)[1:]))
            x = ops.concatenate([x, rest])
        return ops.reshape(x, (groups, size, *ops.shape(x)[1:]))

    def add_group(totals, group):
        gradients = vectorized_gradients(function, weights, *group)
        return [*map(ops.add, totals, gradients)], None

    # The last group is filled with copies of the last step, whose output gradients are zero.
    grad_output = tree_map(functools.partial(split, fill=ops.zeros_like), grad_output)
    tensors = tree_map(functools.partial(split, fill=lambda x: x), tensors)
    totals, _ = scan(add_group, [*map(ops.zeros_like, weights)], (grad_output, tensors))
    # Without the barrier, XLA sums the gradient of the keys a second time for the bias inside them.
    return optimization_barrier(totals)
