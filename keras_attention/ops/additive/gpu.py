"""The additive score on a GPU: each sum is one kernel, which stores no pairs.

There XLA fuses the sum of queries and keys, the tanh and the sum over them. Its own gradient would
store the tanh of all pairs, because three sums need it. Here each of these sums computes the tanh
again.
"""

from keras import ops

from keras_attention._typing import Tensor
from keras_attention.ops.additive.reference import score

__all__ = ["fused_gradient", "fused_score"]

fused_score = score


def fused_gradient(
    query: Tensor, key: Tensor, vector: Tensor, upstream: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of query, key and vector.

    Of the query, v_u sum_j g_ij (1 - h_iju^2), likewise of the key over i; of the vector,
    sum_ij g_ij h_iju. g is the upstream gradient, h the tanh.
    """
    # XLA would compute one tanh for all three, and store it, if their arguments were the same. It
    # cannot remove these bounds, which change no tanh.
    hidden = [
        ops.tanh(ops.expand_dims(ops.maximum(query, -bound), 2) + ops.expand_dims(key, 1))
        for bound in (1e38, 2e38, 3e38)
    ]
    weights = ops.expand_dims(upstream, 3)
    of_query, of_key = (
        vector * ops.sum(weights * (1.0 - h * h), axis)
        for h, axis in zip(hidden, (2, 1), strict=False)
    )
    # One axis after the other keeps rounding errors small.
    of_vector = ops.sum(ops.sum(ops.sum(weights * hidden[2], 2), 1), 0)
    return of_query, of_key, of_vector
