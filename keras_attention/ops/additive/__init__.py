"""The additive score of projected queries and keys.

`reference` is the equation, `dispatch` decides which implementation runs where.
"""

import keras

from keras_attention._typing import Tensor
from keras_attention.ops.additive.dispatch import dispatched_score
from keras_attention.ops.matmul import cast

__all__ = ["additive_score"]


def additive_score(query: Tensor, key: Tensor, vector: Tensor) -> Tensor:
    """Score every query against every key, in a common space of U features.

        e[b,i,j] = sum_u v[u] tanh(q[b,i,u] + k[b,j,u])

    The tensor of size B Tq Tk U is never materialised when it is large. XLA sums over blocks of
    features on a CPU, and over all in one kernel on a GPU; the gradient recomputes the tanh.
    Without XLA, the sum runs over tiles of queries instead.

    Sizes: B samples, Tq query and Tk memory steps, U features.

    Args:
        query: q, `(B, Tq, U)`, already projected. Add the bias to it, if you use one.
        key: k, `(B, Tk, U)`, already projected.
        vector: v, `(U,)`.

    Returns:
        Scores `(B, Tq, Tk)` in the dtype of the inputs. Half-precision inputs are summed in
        float32. Second derivatives exist, but need memory for B Tq Tk U values.

    Example:
        >>> import numpy
        >>> from keras_attention.ops import additive_score
        >>> query, key = numpy.zeros((2, 3, 5)), numpy.ones((2, 7, 5))
        >>> scores = additive_score(query, key, numpy.ones(5))
        >>> tuple(scores.shape), round(float(scores[0, 0, 0]), 4)
        ((2, 3, 7), 3.808)

    Reference: https://arxiv.org/abs/1409.0473, appendix A.1.2.
    """
    dtypes = [keras.backend.standardize_dtype(x.dtype) for x in (query, key, vector)]
    # On JAX and PyTorch, the result type of Keras is never float64.
    wide = "float64" if "float64" in dtypes else "float32"
    dtype = wide if wide in dtypes else keras.backend.result_type(*dtypes)
    return cast(dispatched_score(cast(query, wide), cast(key, wide), cast(vector, wide)), dtype)
