"""Products that read only the rows of the memory in windows.

`positions` says which rows those are, and `reference` has the equations of the products. `dispatch`
decides which implementation runs where. Only the inputs are stored for the gradient.

Sizes: B samples, Tq query and Tk memory steps, W positions in a window, D features or U units.
"""

import functools

from keras_attention._typing import Tensor
from keras_attention.backend import custom_vjp, differentiate_as, run_loop
from keras_attention.ops.windows.dispatch import products_for
from keras_attention.ops.windows.gathered import GATHERED

__all__ = ["window_dot", "window_sum", "window_tanh"]


def window_dot(query: Tensor, key: Tensor, position: Tensor) -> Tensor:
    """Multiply every query with the keys in its window.

        e[b,i,w] = q[b,i] . k[b, s[b,i,w]]

    Args:
        query: q, `(B, Tq, D)`.
        key: k, `(B, Tk, D)`.
        position: s, `(B, Tq, W)`, integers from 0 to Tk - 1.

    Returns:
        Scores e, `(B, Tq, W)`.
    """
    products = products_for(position)
    gradients = GATHERED.dot_gradient, products.dot_gradient
    return _with_gradient(products.dot, *gradients, query, key, position)


def window_tanh(query: Tensor, key: Tensor, vector: Tensor, position: Tensor) -> Tensor:
    """Score every query against the keys in its window, as `additive_score`.

        e[b,i,w] = sum_u v[u] tanh(q[b,i,u] + k[b, s[b,i,w], u])

    Args:
        query: q, `(B, Tq, U)`, float32 or float64.
        key: k, `(B, Tk, U)`, of the same dtype.
        vector: v, `(U,)`, of the same dtype.
        position: s, `(B, Tq, W)`, integers from 0 to Tk - 1.

    Returns:
        Scores e, `(B, Tq, W)`.
    """
    products = products_for(position)
    gradients = GATHERED.tanh_gradient, products.tanh_gradient
    return _with_gradient(products.tanh, *gradients, query, key, vector, position)


def window_sum(weights: Tensor, value: Tensor, position: Tensor) -> Tensor:
    """Sum the values in every window, weighted.

        c[b,i] = sum_w a[b,i,w] v[b, s[b,i,w]]

    Args:
        weights: a, `(B, Tq, W)`.
        value: v, `(B, Tk, D)`.
        position: s, `(B, Tq, W)`, integers from 0 to Tk - 1.

    Returns:
        Contexts c, `(B, Tq, D)`.
    """
    products = products_for(position)
    gradients = GATHERED.sum_gradient, products.sum_gradient
    return _with_gradient(products.weighted_sum, *gradients, weights, value, position)


def _with_gradient(product, gathered_gradient, gradient, *inputs):
    """Call a product. On TensorFlow its second derivative is that of the gathered windows."""

    def first(*args):
        run = functools.partial(run_loop, gradient)
        return *differentiate_as(gathered_gradient, run, *args), None

    return custom_vjp(functools.partial(run_loop, product), first, *inputs)
