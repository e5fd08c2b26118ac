"""The additive score as its equation, which every implementation must equal."""

from keras_attention._typing import Tensor
from keras_attention.backend import ops

__all__ = ["score"]


def score(query: Tensor, key: Tensor, vector: Tensor) -> Tensor:
    """Compute e[b,i,j] = sum_u v[u] tanh(q[b,i,u] + k[b,j,u]); see `additive_score`."""
    pairs = ops.expand_dims(query, 2) + ops.expand_dims(key, 1)
    return ops.sum(vector * ops.tanh(pairs), axis=-1)
