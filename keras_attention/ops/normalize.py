"""Masked normalizers of scores."""

import math

import keras

from keras_attention._typing import Tensor
from keras_attention.backend import ops
from keras_attention.ops.masks import argmax
from keras_attention.ops.matmul import cast

__all__ = [
    "masked_entmax15",
    "masked_hardmax",
    "masked_sigmoid",
    "masked_softmax",
    "masked_sparsemax",
]

# The score of an invalid entry. Unlike -inf it is finite, so that gradients are not NaN where
# nothing is valid. It lies far below any score, with room left to subtract a maximum.
FLOOR = -1e38


def masked_softmax(scores: Tensor, mask: Tensor | None = None) -> Tensor:
    """Compute the softmax over the last axis, restricted to the valid entries.

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
        >>> scores, mask = numpy.array([1, 1, 9], "float32"), numpy.array([True, True, False])
        >>> ops.convert_to_numpy(masked_softmax(scores, mask)).tolist()
        [0.5, 0.5, 0.0]
    """
    scores = _floored(scores, mask)
    # Keras warns about a softmax over one entry, but a memory of one step is valid here. The
    # difference gives a weight of one with a gradient of zero, and keeps NaN.
    weights = ops.exp(scores - scores) if scores.shape[-1] == 1 else ops.softmax(scores, axis=-1)
    return _only(mask, weights)


def masked_sparsemax(scores: Tensor, mask: Tensor | None = None) -> Tensor:
    """Compute the sparsemax over the last axis, restricted to the valid entries.

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
    scores = _floored(scores, mask)
    if scores.shape[-1] == 0:
        return scores
    largest = ops.stop_gradient(ops.max(scores, axis=-1, keepdims=True, initial=-math.inf))
    scores = scores - largest
    support = _sparsemax_support(ops.stop_gradient(scores))
    weights = _only(support, scores - _threshold(support, scores))
    # A row that holds a NaN has an empty support, since comparisons with NaN are False.
    return _only(mask, ops.where(ops.isfinite(largest), weights, float("nan")))


def masked_entmax15(scores: Tensor, mask: Tensor | None = None) -> Tensor:
    """Compute the entmax with alpha = 1.5 over the last axis, restricted to the valid entries.

        a   = max(e / 2 - tau, 0)^2, with tau such that the weights sum to one
        tau = M - sqrt(1 / n - V)    with size n, mean M and variance V of e / 2 over the support

    It lies between softmax and sparsemax: low scores get a weight of exactly zero, and the weights
    are smooth in the scores.

    Args:
        scores: e, `(..., Tk)`, floating point, finite and less than 1e37 in size.
        mask: boolean, broadcastable to `scores`, True for a valid entry; None if all are valid.

    Returns:
        Weights as from `masked_softmax`, but low scores get a weight of exactly zero.

    Example:
        >>> import numpy
        >>> from keras import ops
        >>> from keras_attention.ops import masked_entmax15
        >>> weights = masked_entmax15(numpy.array([1.0, 1.0, -3.0]))
        >>> [round(float(x), 4) for x in weights]
        [0.5, 0.5, 0.0]

    Reference: Peters, Niculae and Martins (2019), https://arxiv.org/abs/1905.05702, section 4. The
    support is found by Newton's method instead of sorting.
    """
    scores = _floored(scores, mask)
    if scores.shape[-1] == 0:
        return scores
    largest = ops.stop_gradient(ops.max(scores, axis=-1, keepdims=True, initial=-math.inf))
    halves = (scores - largest) / 2.0
    support = _entmax15_support(ops.stop_gradient(halves))
    size = ops.maximum(ops.cast(_sizes(support), halves.dtype), 1.0)
    mean = ops.sum(_only(support, halves), axis=-1, keepdims=True) / size
    deviation = _only(support, halves - mean)
    variance = ops.sum(ops.square(deviation), axis=-1, keepdims=True) / size
    # The variance is smaller than 1 / n, except by rounding.
    root = ops.sqrt(ops.maximum(1.0 / size - variance, 1e-12))
    weights = _only(support, ops.square(deviation + root))
    return _only(mask, ops.where(ops.isfinite(largest), weights, float("nan")))


def masked_hardmax(scores: Tensor, mask: Tensor | None = None) -> Tensor:
    """Select one position: the valid entry with the largest score.

        a[..., j] = 1 for the first valid j with the largest e[..., j], otherwise 0

    The gradient is that of `masked_softmax` ("straight-through"), so that a model can train with
    it. It is a biased estimate: the gradient of the function itself is zero.

    Args:
        scores: e, `(..., Tk)`, floating point, finite and less than 1e37 in size.
        mask: boolean, broadcastable to `scores`, True for a valid entry; None if all are valid.

    Returns:
        Weights as from `masked_softmax`.

    Example:
        >>> import numpy
        >>> from keras import ops
        >>> from keras_attention.ops import masked_hardmax
        >>> ops.convert_to_numpy(masked_hardmax(numpy.array([1.0, 3.0, 3.0]))).tolist()
        [0.0, 1.0, 0.0]

    Reference: Bengio, Leonard and Courville (2013), https://arxiv.org/abs/1308.3432, section 4.
    """
    soft = masked_softmax(scores, mask)
    if soft.shape[-1] == 0:
        return soft
    largest = argmax(_floored(scores, mask))
    position = ops.arange(ops.shape(soft)[-1], dtype="int32")
    hard = _only(mask, ops.cast(position == ops.expand_dims(largest, -1), soft.dtype))
    return hard + (soft - ops.stop_gradient(soft))


def masked_sigmoid(scores: Tensor, mask: Tensor | None = None) -> Tensor:
    """Divide the sigmoids of the last axis by their sum over the valid entries.

        a[..., j] = s(e[..., j]) / sum over valid l of s(e[..., l])    j valid; s the sigmoid
        a[..., j] = 0                                                  otherwise

    A sigmoid is at most one, so no entry can silence many others as in a softmax: among N entries,
    high scores share the weight evenly.

    Args:
        scores: e, `(..., Tk)`, floating point, finite and less than 1e37 in size.
        mask: boolean, broadcastable to `scores`, True for a valid entry; None if all are valid.

    Returns:
        Weights as from `masked_softmax`.

    Example:
        >>> import numpy
        >>> from keras import ops
        >>> from keras_attention.ops import masked_sigmoid
        >>> weights = masked_sigmoid(numpy.array([30.0, 40.0, 0.0]))
        >>> [round(float(x), 4) for x in weights]
        [0.4, 0.4, 0.2]

    Reference: Chorowski et al. (2015), https://arxiv.org/abs/1506.07503, section 2.3 ("smoothing").
    """
    # As a softmax of logarithms, the division is safe where every sigmoid is near zero.
    scores = _only(mask, _floored(scores, mask))
    return masked_softmax(ops.log_sigmoid(scores), mask)


def _sparsemax_support(scores):
    """Find the entries with a positive weight, for scores whose largest is zero.

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


def _entmax15_support(halves):
    """Find the entries above tau, for values whose largest is zero.

    f(t) = sum of max(x - t, 0)^2 - 1 falls and is convex. It is not negative at t = -1, so Newton's
    method rises from there to the root tau and never passes it.
    """

    def rises(threshold, previous):
        return ops.any(threshold > previous)

    def step(threshold, _):
        above = ops.maximum(halves - threshold, 0.0)
        more = ops.sum(ops.square(above), axis=-1, keepdims=True) - 1.0
        slope = 2.0 * ops.sum(above, axis=-1, keepdims=True)
        return threshold + ops.maximum(more, 0.0) / slope, threshold

    first = ops.full_like(halves[..., :1], -1.0)
    return halves > ops.while_loop(rises, step, (first, first - 1.0), maximum_iterations=50)[0]


def _sizes(support):
    return ops.sum(ops.cast(support, "int32"), axis=-1, keepdims=True)


def _threshold(support, scores):
    """Return tau, if this were the support."""
    size = ops.maximum(ops.cast(_sizes(support), scores.dtype), 1.0)
    return (ops.sum(_only(support, scores), axis=-1, keepdims=True) - 1.0) / size


def _floored(scores, mask):
    """Cast scores to at least float32, for sums of exponentials; set invalid ones to FLOOR."""
    if keras.backend.standardize_dtype(scores.dtype) != "float64":
        scores = cast(scores, "float32")
    return scores if mask is None else ops.where(mask, scores, ops.cast(FLOOR, scores.dtype))


def _only(mask, values):
    return values if mask is None else ops.where(mask, values, ops.zeros_like(values))
