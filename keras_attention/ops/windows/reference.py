"""The products that read windows, as their equations, which every implementation must equal."""

from keras_attention._typing import Tensor
from keras_attention.backend import ops
from keras_attention.ops.windows.positions import take_windows

__all__ = ["dot", "tanh", "weighted_sum"]


def dot(query: Tensor, key: Tensor, position: Tensor) -> Tensor:
    """Compute e[b,i,w] = q[b,i] . k[b, s[b,i,w]]; see `window_dot`."""
    return ops.einsum("bid,biwd->biw", query, take_windows(key, position))


def tanh(query: Tensor, key: Tensor, vector: Tensor, position: Tensor) -> Tensor:
    """Compute e[b,i,w] = sum_u v[u] tanh(q[b,i,u] + k[b, s[b,i,w], u]); see `window_tanh`."""
    return ops.sum(vector * ops.tanh(ops.expand_dims(query, 2) + take_windows(key, position)), -1)


def weighted_sum(weights: Tensor, value: Tensor, position: Tensor) -> Tensor:
    """Compute c[b,i] = sum_w a[b,i,w] v[b, s[b,i,w]]; see `window_sum`."""
    return ops.einsum("biw,biwd->bid", weights, take_windows(value, position))
