"""The additive score of a key that includes a convolution of weights."""

from keras_attention._typing import Tensor
from keras_attention.backend import custom_vjp, ops, project, run_after
from keras_attention.ops.shift import fold, unfold

__all__ = ["convolved_score"]


def convolved_score(
    query: Tensor, key: Tensor | None, weights: Tensor, filters: Tensor, vector: Tensor
) -> Tensor:
    """Score one query, which also sees past weights.

        e[b,j] = v . tanh(q[b] + k[b,j] + sum_w F[w] z[b, j + w - (W - 1) // 2])

    The backward pass computes the tanh again, so a loop stores nothing of the size of the keys.

    Args:
        query: q, `(B, U)`. key: k, `(B, Tk, U)`, or None for zeros. Both are projected.
        weights: z, `(B, Tk)`.
        filters: F, `(W, U)`, or `(B, W, U)` for each sample its own.
        vector: v, `(U,)`.

    Returns:
        e, `(B, Tk)`.
    """
    keys = [] if key is None else [key]
    return custom_vjp(_score, _gradient, query, weights, filters, vector, *keys)


def _score(query, weights, filters, vector, *keys):
    hidden, _ = _hidden(query, weights, filters, *keys)
    return ops.squeeze(project(hidden, ops.expand_dims(vector, 1)), 2)


def _hidden(query, weights, filters, *keys):
    width = filters.shape[-2]
    near = unfold(weights, (width - 1) // 2, width)
    shared = len(filters.shape) == 2
    total = project(near, filters) if shared else ops.matmul(near, filters)
    for key in keys:
        total = total + key
    return ops.tanh(total + ops.expand_dims(query, 1)), near


def _gradient(query, weights, filters, vector, *rest):
    *keys, grad_output = rest
    hidden, near = _hidden(run_after(grad_output, query), weights, filters, *keys)
    slope = ops.expand_dims(grad_output, 2) * (vector * (1.0 - ops.square(hidden)))
    if len(filters.shape) == 2:
        rows = [ops.reshape(x, (-1, x.shape[2])) for x in (near, slope)]
        grad_filters = ops.matmul(ops.transpose(rows[0]), rows[1])
        of_near = project(slope, ops.transpose(filters))
    else:
        grad_filters = ops.matmul(ops.transpose(near, (0, 2, 1)), slope)
        of_near = ops.matmul(slope, ops.transpose(filters, (0, 2, 1)))
    grad_weights = fold(of_near, (filters.shape[-2] - 1) // 2)
    rows = ops.reshape(hidden, (-1, hidden.shape[2]))
    grad_vector = ops.matmul(ops.reshape(grad_output, (1, -1)), rows)
    return ops.sum(slope, 1), grad_weights, grad_filters, grad_vector[0], *([slope] * len(keys))
