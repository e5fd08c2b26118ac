"""The trilinear similarity of attention flow."""

from keras_attention._typing import Tensor
from keras_attention.backend import ops
from keras_attention.ops.matmul import dot_score

__all__ = ["trilinear_score"]


def trilinear_score(
    context: Tensor,
    query: Tensor,
    *,
    query_vector: Tensor,
    product_vector: Tensor,
    context_vector: Tensor | None = None,
) -> Tensor:
    """Score every context step against every query step.

        S[b,t,j] = w . [h[b,t]; u[b,j]; h[b,t] * u[b,j]]
                 = w_h . h[b,t]  +  w_u . u[b,j]  +  (w_hu * h[b,t]) . u[b,j]

    The second line is computed, and its last term is one matrix product. Only the inputs and the
    scores take memory; no tensor of size B T J D is materialised.

    Sizes: B samples, T context and J query steps, D features.

    Args:
        context: h, `(B, T, D)`.
        query: u, `(B, J, D)`.
        query_vector: w_u, `(D,)`, the second third of w.
        product_vector: w_hu, `(D,)`, the last third of w.
        context_vector: w_h, `(D,)`, the first third of w. Leave it out for scores that a softmax
            over j follows: it adds the same number to all scores of a row.

    Returns:
        Scores `(B, T, J)` in the dtype of the inputs.

    Example:
        >>> import numpy
        >>> from keras_attention.ops import trilinear_score
        >>> vectors = {"query_vector": numpy.ones(5), "product_vector": numpy.ones(5)}
        >>> scores = trilinear_score(numpy.ones((2, 7, 5)), numpy.ones((2, 3, 5)), **vectors)
        >>> tuple(scores.shape), float(scores[0, 0, 0])
        ((2, 7, 3), 10.0)

    Reference: https://arxiv.org/abs/1611.01603, section 2, the similarity matrix.
    """
    grad_query = ops.expand_dims(ops.matmul(query, query_vector), 1)
    scores = dot_score(ops.multiply(product_vector, context), query) + grad_query
    if context_vector is None:
        return scores
    return scores + ops.expand_dims(ops.matmul(context, context_vector), 2)
