"""Products of sequences and kernels, and of the matrices of every sample."""

import keras
import numpy as np

from keras_attention._typing import Tensor
from keras_attention.backend import batched_matmul, ops

__all__ = ["bias_gradient", "cast", "dot_score", "materialized_transpose", "upcast", "upcast_dtype"]


def dot_score(query: Tensor, key: Tensor) -> Tensor:
    """Multiply all queries with all keys.

        e[b,i,j] = q[b,i] . k[b,j]

    Args:
        query: q, `(B, Tq, D)`.
        key: k, `(B, Tk, D)`, of the same dtype.

    Returns:
        e, `(B, Tq, Tk)`.
    """
    return batched_matmul(query, key, transpose=True)


def bias_gradient(grad_output: Tensor) -> Tensor:
    """Compute the gradient of a bias from all steps."""
    return ops.sum(grad_output, axis=(0, 1))


def materialized_transpose(x: Tensor) -> Tensor:
    """Transpose a matrix into an array of its own.

    If a product takes the transpose of a kernel, XLA moves nothing, and in a loop the product takes
    1.5 times as long. XLA cannot remove the maximum, which changes no weight of a usable size.
    """
    half = keras.backend.standardize_dtype(x.dtype) == "float16"
    return ops.maximum(ops.transpose(x), -65504.0 if half else -3e38)


def upcast(x: Tensor) -> Tensor:
    """Cast a tensor to at least float32, which sums of many values need."""
    return cast(x, upcast_dtype(x))


def upcast_dtype(x: Tensor) -> str:
    """Return the dtype of `upcast`."""
    return "float64" if keras.backend.standardize_dtype(x.dtype) == "float64" else "float32"


def cast(x: Tensor, dtype: str) -> Tensor:
    """Cast to a tensor of this dtype, if it is not one already."""
    if isinstance(x, np.ndarray):
        return ops.convert_to_tensor(x, dtype)
    x = x.value if isinstance(x, keras.Variable) else x
    return x if keras.backend.standardize_dtype(x.dtype) == dtype else ops.cast(x, dtype)
