"""From scores to weights, under a mask."""

import math

import keras
from keras import ops

__all__ = ["masked_softmax", "masked_sparsemax"]

# Stands for the score of an invalid entry. Finite, unlike -inf, whose gradient is NaN where nothing
# is valid; and far below any score, yet with room left to subtract a maximum.
FLOOR = -1e38


def masked_softmax(scores, mask=None):
    """Softmax over the last axis, restricted to the valid entries.

        a[..., j] = exp(e[..., j]) / sum over valid l of exp(e[..., l])    j valid
        a[..., j] = 0                                                      otherwise

    Args:
        scores: `(..., Tk)`, floating point, finite and less than 1e37 in size.
        mask: boolean, broadcastable to `scores`; True marks a valid entry. None: all are valid.

    Returns:
        Weights of the shape of `scores`, in float32 (float64 for float64 scores). A row sums to
        one, or is exactly zero, with zero gradients, where nothing is valid.
    """
    scores = _widen(scores)
    if mask is None:
        return _softmax(scores)
    return _only(mask, _softmax(_floored(scores, mask)))


def masked_sparsemax(scores, mask=None):
    """Sparsemax over the last axis (Martins and Astudillo, 2016), restricted to the valid entries.

        a = argmin over the simplex of |a - e|^2 = max(e - tau, 0),
        tau = (sum of e over the support - 1) / size of the support

    Args, Returns: as of `masked_softmax`; weak entries get a weight of exactly zero.

    Reference: https://arxiv.org/abs/1602.02068, algorithm 1.
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
    # Comparisons hide a NaN: a row that holds one has no support.
    weights = ops.where(ops.isfinite(largest), weights, float("nan"))
    return weights if mask is None else _only(mask, weights)


def _sparsemax_support(scores):
    """Which entries stay positive, for scores whose largest is zero.

    tau is at least max - 1. Starting there, taking the threshold of the entries above the last one
    drops entries that are not in the support, and none that is. This needs a few passes over the
    scores, where a sort of each row would need many.
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
    """tau, were this the support."""
    size = ops.maximum(ops.cast(_sizes(support), scores.dtype), 1.0)
    return (ops.sum(_only(support, scores), axis=-1, keepdims=True) - 1.0) / size


def _softmax(scores):
    # Keras warns of a softmax over one entry; here a memory of one step is nothing unusual.
    # The difference gives it a gradient, of zeros.
    return ops.exp(scores - scores) if scores.shape[-1] == 1 else ops.softmax(scores, axis=-1)


def _widen(scores):
    """Half-precision scores in float32: sums of exponentials need the digits."""
    return (
        scores
        if keras.backend.standardize_dtype(scores.dtype) == "float64"
        else ops.cast(scores, "float32")
    )


def _floored(scores, mask):
    return ops.where(mask, scores, ops.cast(FLOOR, scores.dtype))


def _only(mask, values):
    return ops.where(mask, values, ops.zeros_like(values))
