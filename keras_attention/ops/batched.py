"""Products of the matrices of every sample.

On PyTorch, `ops.matmul` and `ops.einsum` return views. PyTorch copies gradients that are views
when it adds them up, which makes a layer a tenth slower. `torch.bmm` returns no view.
"""

import keras
from keras import ops

from keras_attention._typing import Tensor

__all__ = ["dot_score", "weighted_sums"]


def dot_score(query: Tensor, key: Tensor) -> Tensor:
    """Dot products of all queries and keys.

        e[b,i,j] = q[b,i] . k[b,j]

    Args:
        query: q, `(B, Tq, D)`.
        key: k, `(B, Tk, D)`, of the same dtype.

    Returns:
        e, `(B, Tq, Tk)`.
    """
    if not _on_torch(query, key):
        return ops.einsum("bid,bjd->bij", query, key)
    import torch

    query, key = (ops.convert_to_tensor(x) for x in (query, key))
    if query.shape[1] == 1:
        # In this order, the gradient of the keys is not transposed, so it needs no copy.
        return torch.bmm(key, query.transpose(1, 2)).transpose(1, 2)
    return torch.bmm(query, key.transpose(1, 2))


def weighted_sums(weights: Tensor, value: Tensor) -> Tensor:
    """The sum of the values for all queries.

        c[b,i] = sum_j a[b,i,j] v[b,j]

    Args:
        weights: a, `(B, Tq, Tk)`.
        value: v, `(B, Tk, D)`, of the same dtype.

    Returns:
        c, `(B, Tq, D)`.
    """
    if not _on_torch(weights, value):
        return ops.matmul(weights, value)
    import torch

    return torch.bmm(weights, value)


def _on_torch(*tensors):
    if keras.backend.backend() != "torch":
        return False
    return not any(keras.backend.is_keras_tensor(x) for x in tensors)
