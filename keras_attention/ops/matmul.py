"""Products of sequences and kernels, and of the matrices of every sample.

On PyTorch, `ops.matmul` and `ops.einsum` return views. PyTorch copies gradients that are views
when it adds them up, which makes a layer a tenth slower. `torch.bmm` returns no view.
"""

import math

import keras
import numpy as np

from keras_attention._typing import Tensor
from keras_attention.backend.context import in_graph
from keras_attention.backend.operations import ops

__all__ = [
    "cast",
    "dot_score",
    "kernel_gradient",
    "multiply",
    "project",
    "stored_transposed",
    "sum_of_rows",
    "upcast",
    "upcast_dtype",
    "weighted_sums",
]


# Eager TensorFlow multiplies by one kernel for each sample up to this many numbers of all kernels:
# one operation takes two thirds of the time of three. The gradient makes a kernel for each sample.
SMALL_EAGER = 2**16


def project(sequence: Tensor, kernel: Tensor) -> Tensor:
    """Multiplies every step of a sequence by a kernel.

        y[..., u] = sum_d x[..., d] W[d, u]

    This is a single product of two matrices, except for small ones in eager code.
    `ops.einsum("btd,du->btu", ...)` gives the same numbers, but TensorFlow computes its gradient as
    B products of size D U and then sums them.

    Args:
        sequence: x, `(..., D)`.
        kernel: W, `(D, U)`, of the same dtype.

    Returns:
        y, `(..., U)`, in the dtype of the arguments.

    Example:
        >>> import numpy
        >>> from keras import ops
        >>> from keras_attention.ops.matmul import project
        >>> words, kernel = numpy.array([[[1.0, 2.0], [3.0, 4.0]]]), numpy.array([[1.0], [10.0]])
        >>> ops.convert_to_numpy(project(words, kernel)).tolist()
        [[[21.0], [43.0]]]
    """
    if len(sequence.shape) == 2:
        return ops.matmul(sequence, kernel)
    shape = tuple(sequence.shape)
    known, eager = None not in shape, keras.backend.backend() == "tensorflow" and not in_graph()
    if known and eager and len(shape) == 3 and shape[0] * math.prod(kernel.shape) <= SMALL_EAGER:
        return ops.matmul(sequence, ops.expand_dims(kernel, 0))
    shape = shape if known else ops.shape(sequence)
    rows = ops.reshape(sequence, (-1, kernel.shape[0]))
    return ops.reshape(ops.matmul(rows, kernel), (*shape[:-1], kernel.shape[1]))


def dot_score(query: Tensor, key: Tensor) -> Tensor:
    """Dot products of all queries and keys.

        e[b,i,j] = q[b,i] . k[b,j]

    Args:
        query: q, `(B, Tq, D)`.
        key: k, `(B, Tk, D)`, of the same dtype.

    Returns:
        e, `(B, Tq, Tk)`.
    """
    if keras.backend.backend() != "torch" or keras.backend.is_keras_tensor(query):
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
    if keras.backend.backend() != "torch" or keras.backend.is_keras_tensor(weights):
        return ops.matmul(weights, value)
    import torch

    return torch.bmm(weights, value)


def multiply(x: Tensor, kernel: Tensor) -> Tensor:
    """Multiplies one step, `(B, D)`, or all steps, `(T, B, D)`, by a kernel."""
    if keras.backend.backend() != "jax":
        return project(x, kernel)
    # A reshape would mix steps and samples, and devices that share the samples would collect all.
    return ops.matmul(x, kernel)


def kernel_gradient(x: Tensor, grad_output: Tensor) -> Tensor:
    """The gradient of the kernel of `multiply`, from all steps: x^T g."""
    if keras.backend.backend() == "jax":
        import jax

        return jax.lax.dot_general(x, grad_output, (((0, 1), (0, 1)), ((), ())))
    rows = ops.reshape(x, (-1, x.shape[-1]))
    return ops.matmul(ops.transpose(rows), ops.reshape(grad_output, (-1, grad_output.shape[-1])))


def sum_of_rows(grad_output: Tensor) -> Tensor:
    """The gradient of a bias, from all steps."""
    return ops.sum(grad_output, axis=(0, 1))


def stored_transposed(x: Tensor) -> Tensor:
    """The transpose of a matrix, as an array of its own.

    If a product takes the transpose of a kernel, XLA moves nothing, and in a loop the product takes
    1.5 times as long. XLA cannot remove the maximum, which changes no weight of a usable size.
    """
    half = keras.backend.standardize_dtype(x.dtype) == "float16"
    return ops.maximum(ops.transpose(x), -65504.0 if half else -3e38)


def upcast(x: Tensor) -> Tensor:
    """The tensor in at least float32, which sums of many numbers need."""
    return cast(x, upcast_dtype(x))


def upcast_dtype(x: Tensor) -> str:
    """The dtype of `upcast`."""
    return "float64" if keras.backend.standardize_dtype(x.dtype) == "float64" else "float32"


def cast(x: Tensor, dtype: str) -> Tensor:
    """A tensor of this dtype. A tensor that has it stays as it is."""
    if isinstance(x, np.ndarray):
        return ops.convert_to_tensor(x, dtype)
    x = x.value if isinstance(x, keras.Variable) else x
    return x if keras.backend.standardize_dtype(x.dtype) == dtype else ops.cast(x, dtype)
