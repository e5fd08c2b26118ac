"""Products of sequences and kernels."""

import keras
import numpy as np
from keras import ops

from keras_attention._typing import Tensor

__all__ = ["as_dtype", "project"]


def project(sequence: Tensor, kernel: Tensor) -> Tensor:
    """Multiplies every step of a sequence by a kernel.

        y[..., u] = sum_d x[..., d] W[d, u]

    This is a single product of two matrices. `ops.einsum("btd,du->btu", ...)` gives the same
    numbers, but TensorFlow computes its gradient as B products of size D U and then sums them.

    Args:
        sequence: x, `(..., D)`.
        kernel: W, `(D, U)`, of the same dtype.

    Returns:
        y, `(..., U)`, in the dtype of the arguments.

    Example:
        >>> import numpy
        >>> from keras import ops
        >>> from keras_attention.ops.products import project
        >>> words, kernel = numpy.array([[[1.0, 2.0], [3.0, 4.0]]]), numpy.array([[1.0], [10.0]])
        >>> ops.convert_to_numpy(project(words, kernel)).tolist()
        [[[21.0], [43.0]]]
    """
    if len(sequence.shape) == 2:
        return ops.matmul(sequence, kernel)
    shape = tuple(sequence.shape)
    shape = ops.shape(sequence) if None in shape else shape
    rows = ops.reshape(sequence, (-1, kernel.shape[0]))
    return ops.reshape(ops.matmul(rows, kernel), (*shape[:-1], kernel.shape[1]))


def as_dtype(x: Tensor, dtype: str) -> Tensor:
    """A tensor of this dtype. A tensor that has it stays as it is."""
    if isinstance(x, np.ndarray):
        return ops.convert_to_tensor(x, dtype)
    x = x.value if isinstance(x, keras.Variable) else x
    return x if keras.backend.standardize_dtype(x.dtype) == dtype else ops.cast(x, dtype)
