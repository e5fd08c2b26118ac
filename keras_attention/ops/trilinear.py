"""The trilinear similarity of attention flow."""

from keras import ops

from keras_attention.ops.products import project

__all__ = ["trilinear_score"]


def trilinear_score(context, query, *, query_vector, product_vector, context_vector=None):
    """Compares every context step with every query step.

        S[b,t,j] = w . [h[b,t]; u[b,j]; h[b,t] * u[b,j]]
                 = w_h . h[b,t]  +  (w_u + w_hu * h[b,t]) . u[b,j]

    The second line is what is computed: one matrix product, so that memory goes into the inputs
    and the scores, and nothing of size B T J D is formed.

    Args:
        context: h, `(B, T, D)`.
        query: u, `(B, J, D)`.
        query_vector, product_vector, context_vector: w_u, w_hu and w_h, the thirds of w, `(D,)`;
            w_h, which adds the same to all scores of a row, may be left out.

    Returns:
        Scores `(B, T, J)` in the dtype of the inputs.

    Reference: https://arxiv.org/abs/1611.01603, section 2, the similarity matrix.
    """
    pairs = ops.einsum("btd,bjd->btj", query_vector + product_vector * context, query)
    if context_vector is None:
        return pairs
    return pairs + project(context, ops.expand_dims(context_vector, 1))
