"""The additive score of projected queries and keys."""

import keras
from keras import ops

from keras_attention.ops._additive import differentiable_score

__all__ = ["additive_score"]


def additive_score(query, key, vector):
    """Compares every query with every key in a common space of width U.

        e[b,i,j] = sum_u v[u] tanh(q[b,i,u] + k[b,j,u])

    A large tensor of size B Tq Tk U is never materialised: XLA sums over groups of features, and
    the gradient computes the tanh again. Without XLA, blocks of queries take the place of groups.

    Args:
        query: q, `(B, Tq, U)`, projected; add the bias, where there is one, to it.
        key: k, `(B, Tk, U)`, projected.
        vector: v, `(U,)`.

    Returns:
        Scores `(B, Tq, Tk)` in the dtype of the inputs. Half-precision inputs are summed in
        float32. Second derivatives exist; they need memory for B Tq Tk U numbers.
    """
    dtype = keras.backend.result_type(query.dtype, key.dtype, vector.dtype)
    wide = "float64" if dtype == "float64" else "float32"
    query, key, vector = (ops.cast(x, wide) for x in (query, key, vector))
    return ops.cast(differentiable_score(query, key, vector), dtype)
