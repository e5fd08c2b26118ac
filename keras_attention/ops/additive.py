"""The additive score of projected queries and keys."""

from keras import ops


def additive_score(query, key, vector):
    """Compares every query with every key in a common space of width U.

        e[b,i,j] = sum_u v[u] tanh(q[b,i,u] + k[b,j,u])

    Args:
        query: q, `(B, Tq, U)`, projected; a bias, where there is one, is added to it.
        key: k, `(B, Tk, U)`, projected.
        vector: v, `(U,)`.

    Returns:
        Scores `(B, Tq, Tk)` in the dtype of the inputs. Memory of B Tq Tk U numbers is needed for
        the tanh, and kept for the gradient.
    """
    hidden = ops.tanh(ops.expand_dims(query, 2) + ops.expand_dims(key, 1))  # (B, Tq, Tk, U)
    return ops.einsum("bqku,u->bqk", hidden, vector)
