"""The additive score of all pairs at once."""

from keras_attention._typing import Tensor
from keras_attention.backend import ops, project

__all__ = ["dense_gradient", "dense_score", "score_by_sample", "sum_pairs", "tanh_of_pairs"]


def tanh_of_pairs(query: Tensor, key: Tensor) -> Tensor:
    """Compute tanh(q_i + k_j), `(..., Tq, Tk, U)`."""
    return ops.tanh(ops.expand_dims(query, -2) + ops.expand_dims(key, -3))


def dense_score(query: Tensor, key: Tensor, vector: Tensor) -> Tensor:
    """Compute the score. The arguments may lack the axis B."""
    # A product of two matrices is the fastest way to sum over features.
    return ops.squeeze(project(tanh_of_pairs(query, key), ops.expand_dims(vector, 1)), -1)


def score_by_sample(query: Tensor, key: Tensor, vector: Tensor) -> Tensor:
    """Compute the score of one query as a product for each sample: XLA is faster at its gradient.

    Args:
        query: `(B, 1, U)`. key, vector: as for `dense_score`.
    """
    hidden = ops.squeeze(tanh_of_pairs(query, key), 1)
    columns = ops.broadcast_to(ops.expand_dims(vector, 1), (query.shape[0], query.shape[-1], 1))
    return ops.transpose(ops.matmul(hidden, columns), (0, 2, 1))


def dense_gradient(
    query: Tensor, key: Tensor, vector: Tensor, grad_output: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute the gradients of query, key and vector."""
    hidden = tanh_of_pairs(query, key)
    slope = 1.0 - hidden * hidden
    # A product of matrices, because XLA on a CPU sums slowly over the axis before the last.
    grad_query = ops.squeeze(ops.matmul(ops.expand_dims(grad_output, 2), slope), 2)
    grad_key = ops.sum(ops.expand_dims(grad_output, 3) * slope, 1)
    return vector * grad_query, vector * grad_key, sum_pairs(hidden, grad_output)


def sum_pairs(hidden: Tensor, grad_output: Tensor) -> Tensor:
    """Compute the gradient of the vector, the sum of g h over all pairs, `(U,)`."""
    rows = ops.reshape(hidden, (-1, hidden.shape[-1]))
    return ops.squeeze(ops.matmul(ops.reshape(grad_output, (1, -1)), rows), 0)
