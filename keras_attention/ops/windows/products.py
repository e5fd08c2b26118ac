"""The products that every implementation of windows has."""

from collections.abc import Callable
from typing import NamedTuple

from keras_attention._typing import Tensor
from keras_attention.backend import ops

__all__ = ["Products"]


class Products(NamedTuple):
    """The products of one implementation; the arguments end with the positions, as in `reference`.

    Attributes:
        dot, tanh, weighted_sum: see `reference`.
        tanh_gradient: the gradients of query, key and vector. Its last argument is the gradient of
            the scores.
        scatter: `scatter(a, x, position, memory)` is the inverse of gathering: it adds a[b,i,w]
            x[b,i] to row s[b,i,w] of zeros, as many as the memory has. Many rows may add up at
            one position, too many for half precision, so it sums in float32.
    """

    dot: Callable
    tanh: Callable
    tanh_gradient: Callable
    weighted_sum: Callable
    scatter: Callable

    def dot_gradient(
        self, query: Tensor, key: Tensor, position: Tensor, grad_output: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Compute the gradients of query and key."""
        grad_query = ops.cast(self.weighted_sum(grad_output, key, position), query.dtype)
        return grad_query, self.scatter(grad_output, query, position, key)

    def sum_gradient(
        self, weights: Tensor, value: Tensor, position: Tensor, grad_output: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Compute the gradients of weights and value."""
        grad_weights = self.dot(grad_output, value, position)
        return grad_weights, self.scatter(weights, grad_output, position, value)
