"""From scores to weights, under a mask."""

import math

import keras
from keras import ops

from keras_attention._typing import Tensor

__all__ = ["masked_softmax", "masked_sparsemax"]

# The score of an invalid entry. Unlike -inf it is finite, so that gradients are not NaN where
# nothing is valid. It lies far below any score, with room left to subtract a maximum.
FLOOR = -1e38


def masked_softmax(scores: Tensor, mask: Tensor | None = None) -> Tensor:
    """Softmax over the last axis, restricted to the valid entries.

        a[..., j] = exp(e[..., j]) / sum over valid l of exp(e[..., l])    j valid
        a[..., j] = 0                                                      otherwise

    Args:
        scores: e, `(..., Tk)`, floating point, finite and less than 1e37 in size.
        mask: boolean, broadcastable to `scores`, True for a valid entry; None if all are valid.

    Returns:
        Weights of the shape of `scores`, in float32 (float64 for float64 scores). A row sums to
        one. A row without a valid entry is exactly zero, and so is its gradient.

    Example:
        >>> import numpy
        >>> from keras import ops
        >>> from keras_attention.ops import masked_softmax
        >>> weights = masked_softmax(numpy.array([1.0, 1.0, 9.0]), numpy.array([True, True, False]))
        >>> ops.convert_to_numpy(weights).tolist()
        [0.5, 0.5, 0.0]
    """
    scores = _widen(scores)
    if mask is None:
        return _softmax(scores)
    return _only(mask, _softmax(_floored(scores, mask)))


def masked_sparsemax(scores: Tensor, mask: Tensor | None = None) -> Tensor:
    """Sparsemax over the last axis, restricted to the valid entries.

        a   = argmin over the simplex of |a - e|^2 = max(e - tau, 0)
        tau = (sum of e over the support - 1) / size of the support

    Args:
        scores: e, `(..., Tk)`, floating point, finite and less than 1e37 in size.
        mask: boolean, broadcastable to `scores`, True for a valid entry; None if all are valid.

    Returns:
        Weights as from `masked_softmax`, but low scores get a weight of exactly zero.

    Example:
        >>> import numpy
        >>> from keras import ops
        >>> from keras_attention.ops import masked_sparsemax
        >>> ops.convert_to_numpy(masked_sparsemax(numpy.array([1.0, 0.5, -3.0]))).tolist()
        [0.75, 0.25, 0.0]

    Reference: Martins and Astudillo (2016), https://arxiv.org/abs/1602.02068, algorithm 1. Unlike
    there, the support is found without sorting.
    """
    scores = _widen(scores)
    if scores.shape[-1] == 0:
        return scores
    if mask is not None:
        scores = _floored(scores, mask)
    largest = ops.max(scores, axis=-1, keepdims=True, initial=-math.inf)
    largest = ops.stop_gradient(largest)
    scores = scores - largest
    support = _sparsemax_support(ops.stop_gradient(scores))
    weights = _only(support, scores - _threshold(support, scores))
    # A row that holds a NaN has an empty support, since comparisons with NaN are False.
    weights = ops.where(ops.isfinite(largest), weights, float("nan"))
    return weights if mask is None else _only(mask, weights)


def _sparsemax_support(scores):
    """Finds the entries with a positive weight, for scores whose largest is zero.

    tau is at least max - 1, so the search starts with the entries above that. The threshold of the
    current entries is never above tau: keeping the entries above it drops some outside the support
    and none inside. A few passes over the scores suffice, where sorting each row would need many.
    """

    def changes(support, size, previous):
        return ops.any(size < previous)

    def shrink(support, size, previous):
        support = scores > _threshold(support, scores)
        return support, _sizes(support), size

    support = scores > -1.0
    size = _sizes(support)
    return ops.while_loop(changes, shrink, (support, size, size + 1))[0]


def _sizes(support):
    return ops.sum(ops.cast(support, "int32"), axis=-1, keepdims=True)


def _threshold(support, scores):
    """tau, if this were the support."""
    size = ops.maximum(ops.cast(_sizes(support), scores.dtype), 1.0)
    return (ops.sum(_only(support, scores), axis=-1, keepdims=True) - 1.0) / size


def _softmax(scores):
    # Keras warns about a softmax over one entry, but a memory of one step is valid here. The
    # difference gives a weight of one with a gradient of zero, and keeps NaN.
    return ops.exp(scores - scores) if scores.shape[-1] == 1 else ops.softmax(scores, axis=-1)


def _widen(scores):
    """Casts half-precision scores to float32, which a sum of exponentials needs."""
    return (
        scores
        if keras.backend.standardize_dtype(scores.dtype) == "float64"
        else ops.cast(scores, "float32")
    )


def _floored(scores, mask):
    return ops.where(mask, scores, ops.cast(FLOOR, scores.dtype))


def _only(mask, values):
    return ops.where(mask, values, ops.zeros_like(values))
