"""From scores to weights, under a mask."""

import keras
from keras import ops

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
    ordered = ops.flip(ops.sort(ops.stop_gradient(scores), axis=-1), axis=-1)
    largest = ordered[..., :1]
    scores = scores - largest
    support = _sparsemax_support(ops.stop_gradient(scores), ordered - largest)
    if mask is not None:
        support = ops.logical_and(support, mask)
    size = ops.maximum(ops.sum(ops.cast(support, scores.dtype), axis=-1, keepdims=True), 1.0)
    tau = (ops.sum(_only(support, scores), axis=-1, keepdims=True) - 1.0) / size
    return _only(support, scores - tau)


def _sparsemax_support(scores, ordered):
    """Which entries stay positive: the k largest, k the last with 1 + k e_k > e_1 + .. + e_k."""
    # Entries below max - 1 are never in the support; the clip keeps masked ones from overflowing.
    ordered = ops.maximum(ordered, -2.0)
    rank = ops.cumsum(ops.ones_like(ordered), axis=-1)
    inside = 1.0 + rank * ordered > ops.cumsum(ordered, axis=-1)
    size = ops.sum(ops.cast(inside, scores.dtype), axis=-1, keepdims=True)
    tau = (ops.sum(_only(inside, ordered), axis=-1, keepdims=True) - 1.0) / size
    return scores > tau


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
