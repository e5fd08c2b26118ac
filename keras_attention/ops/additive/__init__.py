"""The additive score of projected queries and keys.

`reference` is the equation. `choose` says which form runs where, and why: `cpu` or `gpu` where XLA
compiles, `plain` elsewhere.
"""

import functools
import math

import keras

from keras_attention._typing import Tensor
from keras_attention.backend.context import Place, in_loop
from keras_attention.backend.gradients import differentiable, run_after
from keras_attention.ops.additive.choose import SMALL_EAGER, STORED, Forms, run
from keras_attention.ops.additive.cpu import grouped_gradient, grouped_score
from keras_attention.ops.additive.gpu import fused_gradient, fused_score
from keras_attention.ops.additive.plain import (
    blocked_gradient,
    blocked_score,
    score_by_sample,
    second_gradient,
    whole_gradient,
    whole_score,
)
from keras_attention.ops.additive.reference import score
from keras_attention.ops.matmul import cast

__all__ = ["additive_score"]


def additive_score(query: Tensor, key: Tensor, vector: Tensor) -> Tensor:
    """Scores every query against every key, in a common space of U features.

        e[b,i,j] = sum_u v[u] tanh(q[b,i,u] + k[b,j,u])

    The tensor of size B Tq Tk U is never materialised when it is large. XLA sums over groups of
    features on a CPU, and over all in one kernel on a GPU; the gradient recomputes the tanh.
    Without XLA, the sum runs over blocks of queries instead.

    Sizes: B samples, Tq query and Tk memory steps, U features.

    Args:
        query: q, `(B, Tq, U)`, already projected. Add the bias to it, if you use one.
        key: k, `(B, Tk, U)`, already projected.
        vector: v, `(U,)`.

    Returns:
        Scores `(B, Tq, Tk)` in the dtype of the inputs. Half-precision inputs are summed in
        float32. Second derivatives exist, but need memory for B Tq Tk U numbers.

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
    query, key, vector = cast(query, wide), cast(key, wide), cast(vector, wide)
    place = Place.of(query, key)
    if _stores_tanh(place, query, key):
        form = score
        if place.graph:
            form = score_by_sample if place.compiled else whole_score
        return cast(form(query, key, vector), dtype)
    choose = functools.partial(run, place, SCORE)
    return cast(differentiable(choose, _gradient, query, key, vector), dtype)


def _stores_tanh(place, query, key):
    """Whether the tanh are stored for the gradient, which is faster than recomputing them."""
    sizes = *query.shape, key.shape[1]
    if place.backend == "jax" or None in sizes:
        return False
    count = math.prod(sizes)
    if query.shape[1] == 1 and count <= STORED:
        return not in_loop()
    return count <= SMALL_EAGER and not place.graph


def _gradient(query, key, vector, grad_output):
    """The gradients of query, key and vector."""
    query = run_after(grad_output, query)
    place = Place.of(query, key)
    gradient = functools.partial(run, place, GRADIENT)
    if place.backend != "tensorflow":
        return gradient(query, key, vector, grad_output)
    # TensorFlow cannot differentiate compiled loops, so the second derivative is written out.
    return differentiable(gradient, second_gradient, query, key, vector, grad_output)


SCORE = Forms(whole_score, grouped_score, fused_score, blocked_score)
GRADIENT = Forms(whole_gradient, grouped_gradient, fused_gradient, blocked_gradient)
