"""The additive score on a GPU: passes over all pairs, which store no pairs.

    r = sigmoid(-2 (q + k)),        tanh(q + k) = 1 - 2r,        tanh'(q + k) = 4 (r - r^2)

XLA's own gradient would store the tanh of all pairs, because three sums need it. Here the gradient
computes r in two passes, one for the query and one for the key. The gradient of the vector has the
error of rounding sum_ij |g_ij|, which shows where all q + k are near zero.

On JAX each pass is one operation that makes two sums. With a single sum of tanh, XLA of JAX 0.11
compiled the kernel for more than a minute on an H200 (docs/howto/gpu.md). `feature_blocked.py`,
which multiplies e^(2q) and e^(2k), would be faster still. But these may overflow, and where a
conditional asks for that, XLA computes both of its branches.
"""

from keras_attention._typing import Tensor
from keras_attention.backend import execution_context, ops, two_sums
from keras_attention.ops.additive.reference import score

__all__ = ["fused_gradient", "fused_score"]


def fused_score(query: Tensor, key: Tensor, vector: Tensor) -> Tensor:
    """Compute the score; on JAX as the sums over two halves of the features."""
    if execution_context(query).backend != "jax":
        return score(query, key, vector)
    odd = [(0, 0)] * 2 + [(0, vector.shape[0] % 2)]
    query, key, vector = ops.pad(query, odd), ops.pad(key, odd), ops.pad(vector, odd[2:])
    first, second = (
        v * ops.tanh(_pairs(q, k))
        for q, k, v in zip(*(ops.split(x, 2, -1) for x in (query, key, vector)), strict=True)
    )
    return sum(two_sums(first, second, 3))


def fused_gradient(
    query: Tensor, key: Tensor, vector: Tensor, grad_output: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute the gradients of query, key and vector.

    Query: 4 v_u sum_j g_ij (r_iju - r_iju^2). Key: likewise over i. Vector: each pass gives half of
    2 sum_ij g_ij (1/2 - r_iju). g is the gradient of the scores.
    """
    weights = ops.expand_dims(grad_output, 3)

    def sums(bound, axis):
        # XLA would compute one r for both passes, and store it, if their arguments were the same.
        # It cannot remove these bounds, which change no finite r.
        r = ops.sigmoid(-2.0 * _pairs(ops.maximum(query, -bound), key))
        return two_sums(weights * (r - r * r), weights * (0.5 - r), axis)

    grad_query, first = sums(1e38, 2)
    grad_key, second = sums(1.5e38, 1)
    # One axis after the other keeps rounding errors small.
    grad_vector = ops.sum(ops.sum(first, 1) + ops.sum(second, 1), 0)
    return 4.0 * vector * grad_query, 4.0 * vector * grad_key, grad_vector


def _pairs(query, key):
    return ops.expand_dims(query, 2) + ops.expand_dims(key, 1)
