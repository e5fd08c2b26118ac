"""The additive score on a GPU: each pass over all pairs is one kernel, which stores no pairs.

    r = 1 / (1 + e^2(q + k)),        tanh(q + k) = 1 - 2r,        tanh'(q + k) = 4 (r - r^2)

XLA's own gradient would store the tanh of all pairs. Here the score, the gradient of the query and
the gradient of the key are one pass each, which computes r again. Scores have the error of
rounding sum_u |v_u|, which is less than that of the tensor cores that project query and key.

A pass makes two sums at once. With one sum, XLA of JAX 0.11 also tries Triton for the kernel, and
compiled that for four minutes for an H200; two sums compiled in half a second. On that GPU the form
of `cpu.py`, which multiplies e^2q and e^2k, needs two thirds of the time. But they may overflow, and
where a conditional asks for that, XLA computes both of its branches.
"""

import keras
from keras import ops

from keras_attention._typing import Tensor

__all__ = ["fused_gradient", "fused_score"]


def fused_score(query: Tensor, key: Tensor, vector: Tensor) -> Tensor:
    """The score, sum_u v_u - 2 sum_u v_u r_iju."""
    r = _reciprocal(query, key)
    whole, part = _two_sums(ops.broadcast_to(vector, ops.shape(r)), vector * r, 3)
    return whole - 2.0 * part


def fused_gradient(
    query: Tensor, key: Tensor, vector: Tensor, upstream: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of query, key and vector.

    Of the query, 4 v_u sum_j g_ij (r_iju - r_iju^2), likewise of the key over i; of the vector,
    2 sum_ij g_ij (1/2 - r_iju). g is the upstream gradient. Both passes give the last sum.
    """
    weights = ops.expand_dims(upstream, 3)

    def sums(bound, axis):
        # XLA would compute one r for both passes, and store it, if their arguments were the same.
        # It cannot remove these bounds, which change no r.
        r = _reciprocal(ops.maximum(query, -bound), key)
        return _two_sums(weights * (r - r * r), weights * (0.5 - r), axis)

    of_query, first = sums(1e38, 2)
    of_key, second = sums(1.5e38, 1)
    # One axis after the other keeps rounding errors small.
    of_vector = ops.sum(ops.sum(first, 1) + ops.sum(second, 1), 0)
    return 4.0 * vector * of_query, 4.0 * vector * of_key, of_vector


def _reciprocal(query, key):
    pairs = ops.expand_dims(query, 2) + ops.expand_dims(key, 1)
    return 1.0 / (1.0 + ops.exp(2.0 * pairs))


def _two_sums(first, second, axis):
    """The sums of two tensors of one shape, on JAX by one operation."""
    if keras.backend.backend() != "jax":
        return ops.sum(first, axis), ops.sum(second, axis)
    from jax import lax
    from jax import numpy as jnp

    zero = jnp.zeros((), first.dtype)
    add = lambda x, y: (x[0] + y[0], x[1] + y[1])  # noqa: E731
    return lax.reduce((first, second), (zero, zero), add, (axis,))
