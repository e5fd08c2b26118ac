"""Measures of whether the weights of a classifier are reasons for its predictions.

A reason is faithful if the prediction depends on it. These functions erase parts of the input
(DeYoung et al., 2020): words of a text, or instances of a bag. They also compare the weights of
models that differ in their seed only (Jain and Wallace, 2019; Wiegreffe and Pinter, 2019). They
take any classifier and any importance of its parts: attention weights, `gradient_times_input`, the
coefficients of a linear model, or random values, which the others should beat.

References: https://aclanthology.org/2020.acl-main.408, section 4;
https://aclanthology.org/N19-1357; https://aclanthology.org/D19-1002
"""

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from keras_attention._spec import check_number, raise_value_error
from keras_attention._typing import Tensor
from keras_attention.backend import ops, vjp

__all__ = [
    "comprehensiveness",
    "erase",
    "gradient_times_input",
    "jensen_shannon",
    "overlap",
    "sufficiency",
]

# From inputs (B, ...) to the probabilities of the classes (B, C).
Predict: TypeAlias = Callable[[Tensor], Tensor]


def comprehensiveness(
    predict: Predict, inputs: Tensor, importance: Tensor, share: float = 0.1, pad: int = 0
) -> np.ndarray:
    """Measure how much the predicted class loses without the most important parts. More is better.

        c[b] = p(y | x[b]) - p(y | x[b] without them),    y = argmax p(. | x[b])

    Args:
        predict: the classifier, from inputs to probabilities `(B, C)`, such as the method
            `predict_on_batch` of a model that ends in a softmax.
        inputs: ids x, `(B, N)`, or with more axes, such as sentences of words `(B, S, W)`. Or bags
            of instances, `(B, N, D)`; `predict` must mask instances that hold nothing but `pad`.
        importance: as large as the inputs, or of their first axes: `(B, S)` to erase whole
            sentences, `(B, N)` to erase instances.
        share: how many of the parts of a sample count as the most important, in (0, 1]; rounded up.
        pad: the id of padding, which is no part, and replaces what is erased. Of bags, a number
            that no instance repeats in all features.

    Returns:
        c, `(B,)`, from -1 to 1.

    Raises:
        ValueError: the shapes do not fit; there is one class only; the importance holds NaN; the
            share is out of range.

    Example:
        >>> import numpy
        >>> from keras_attention.faithfulness import comprehensiveness
        >>> def predict(ids):  # the class is 1 as far as the word 7 occurs
        ...     p = 0.9 * (ids == 7).any(axis=1)
        ...     return numpy.stack([1 - p, p], axis=1)
        >>> words = numpy.array([[4, 7, 5, 6]])
        >>> comprehensiveness(predict, words, numpy.array([[0.1, 0.7, 0.1, 0.1]])).round(3).tolist()
        [0.9]
        >>> comprehensiveness(predict, words, numpy.array([[0.7, 0.1, 0.1, 0.1]])).round(3).tolist()
        [0.0]
    """
    return _loss(predict, inputs, importance, share, pad, keep=False)


def sufficiency(
    predict: Predict, inputs: Tensor, importance: Tensor, share: float = 0.1, pad: int = 0
) -> np.ndarray:
    """Measure how much the predicted class loses with the important parts alone. Less is better.

        s[b] = p(y | x[b]) - p(y | only they),    y = argmax p(. | x[b])

    Arguments, returns, raises: see `comprehensiveness`.

    Example:
        >>> import numpy
        >>> from keras_attention.faithfulness import sufficiency
        >>> def predict(ids):  # the class is 1 as far as the word 7 occurs
        ...     p = 0.9 * (ids == 7).any(axis=1)
        ...     return numpy.stack([1 - p, p], axis=1)
        >>> words = numpy.array([[4, 7, 5, 6]])
        >>> sufficiency(predict, words, numpy.array([[0.1, 0.7, 0.1, 0.1]])).round(3).tolist()
        [0.0]
        >>> sufficiency(predict, words, numpy.array([[0.7, 0.1, 0.1, 0.1]])).round(3).tolist()
        [0.9]
    """
    return _loss(predict, inputs, importance, share, pad, keep=True)


def erase(
    inputs: Tensor, importance: Tensor, share: float = 0.1, pad: int = 0, keep: bool = False
) -> np.ndarray:
    """Erase the most important parts of the inputs, or with `keep` everything else.

    Of n parts, the `ceil(share n)` with the largest importance are chosen, the first of equal ones.

    Arguments, raises: see `comprehensiveness`.

    Example:
        >>> import numpy
        >>> from keras_attention.faithfulness import erase
        >>> words = numpy.array([[4, 7, 5, 0]])
        >>> importance = numpy.array([[0.2, 0.7, 0.1, 0.0]])
        >>> erase(words, importance, share=0.5).tolist()
        [[0, 0, 5, 0]]
        >>> erase(words, importance, share=0.5, keep=True).tolist()
        [[4, 7, 0, 0]]
    """
    inputs = np.asarray(inputs)
    chosen = _most_important(inputs, importance, share, pad)
    chosen = chosen.reshape(chosen.shape + (1,) * (inputs.ndim - chosen.ndim))
    return np.where(chosen == keep, inputs, pad)


def _loss(predict, inputs, importance, share, pad, keep):
    inputs = np.asarray(inputs)
    erased = erase(inputs, importance, share, pad, keep)
    before, after = (_probabilities(predict, x) for x in (inputs, erased))
    chosen = before.argmax(axis=1)[:, None]
    return np.take_along_axis(before - after, chosen, axis=1)[:, 0]


def _probabilities(predict, inputs):
    probabilities = ops.convert_to_numpy(predict(inputs))
    shape, count = probabilities.shape, len(inputs)
    if len(shape) != 2 or shape[0] != count or shape[1] < 2:
        expected = f"`predict` must return probabilities of shape ({count}, classes), two or more"
        raise_value_error("faithfulness", expected, shape)
    return probabilities


def _most_important(inputs, importance, share, pad, name="importance"):
    """Mark the share of the parts with the largest importance, the first of equal ones."""
    check_number("faithfulness", "share", share, above=0, most=1)
    importance = np.asarray(importance, "float64")
    shape = importance.shape
    if not inputs.size:
        raise_value_error("faithfulness", "`inputs` must hold at least one sample", inputs.shape)
    if importance.ndim < 2 or shape != inputs.shape[: importance.ndim]:
        expected = f"`{name}` must have the shape of the inputs, {inputs.shape}, or of first axes"
        raise_value_error("faithfulness", expected, shape)
    # One row for each sample. A part of several ids is present if one of them is no padding.
    importance = importance.reshape(len(inputs), -1)
    present = (inputs != pad).reshape(*importance.shape, -1).any(axis=-1)
    if np.isnan(importance[present]).any():
        raise ValueError(f"faithfulness: `{name}` holds NaN. Replace it.")
    # Otherwise the rounding of a product such as 0.1 * 30 would choose one more.
    count = np.ceil(np.round(share * present.sum(axis=1), 9))
    order = np.lexsort((-importance, ~present))
    chosen = np.zeros_like(present)
    np.put_along_axis(chosen, order, np.arange(present.shape[1]) < count[:, None], axis=1)
    return chosen.reshape(shape)


def jensen_shannon(first: Tensor, second: Tensor) -> np.ndarray:
    """Measure the distance of two distributions of weights, from 0 to log 2 = 0.69.

        JS(a, b) = (KL(a, m) + KL(b, m)) / 2,    m = (a + b) / 2
        KL(a, m) = sum_j a_j log(a_j / m_j)

    Args:
        first, second: a and b, `(B, ...)`, the weights of two models. The weights of a sample are
            divided by their sum.

    Returns:
        JS, `(B,)`; zero where all weights are.

    Example:
        >>> import numpy
        >>> from keras_attention.faithfulness import jensen_shannon
        >>> first = numpy.array([[0.5, 0.5, 0.0], [0.9, 0.1, 0.0], [1.0, 0.0, 0.0]])
        >>> second = numpy.array([[0.5, 0.5, 0.0], [0.1, 0.9, 0.0], [0.0, 0.0, 1.0]])
        >>> jensen_shannon(first, second).round(2).tolist()
        [0.0, 0.37, 0.69]
    """
    a, b = _distribution("first", first), _distribution("second", second)
    _check_same_shape(a, b)
    middle = (a + b) / 2
    return (_relative_entropy(a, middle) + _relative_entropy(b, middle)) / 2


def overlap(
    first: Tensor, second: Tensor, inputs: Tensor, share: float = 0.1, pad: int = 0
) -> np.ndarray:
    """Measure the share of the most important parts that two models have in common.

        o[b] = |top(a[b]) and top(a'[b])| / |top(a[b])|

    About `share` is what random importance reaches.

    Args:
        first, second: a and a', the importance of parts by two models, as in `comprehensiveness`.
        inputs, share, pad: see `comprehensiveness`.

    Returns:
        o, `(B,)`; one without any part.

    Example:
        >>> import numpy
        >>> from keras_attention.faithfulness import overlap
        >>> words = numpy.array([[4, 7, 5, 6]])
        >>> first, second = numpy.array([[[0.4, 0.3, 0.2, 0.1]], [[0.1, 0.4, 0.3, 0.2]]])
        >>> overlap(first, second, words, share=0.5).tolist()
        [0.5]
    """
    inputs = np.asarray(inputs)
    top = _most_important(inputs, first, share, pad, "first")
    other = _most_important(inputs, second, share, pad, "second")
    _check_same_shape(top, other)
    axes = tuple(range(1, top.ndim))
    count = top.sum(axis=axes)
    return np.where(count > 0, (top & other).sum(axis=axes) / np.maximum(count, 1), 1.0)


def _distribution(name, weights):
    weights = np.asarray(weights, "float64")
    if weights.ndim < 2 or not np.isfinite(weights).all() or (weights < 0).any():
        expected = f"`{name}` must hold weights (batch, ...), finite and not negative"
        raise_value_error("faithfulness", expected, weights)
    rows = weights.reshape(len(weights), -1)
    total = rows.sum(axis=1, keepdims=True)
    return rows / np.where(total > 0, total, 1)


def _relative_entropy(a, middle):
    return np.sum(a * np.log(np.where(a > 0, a / np.where(middle > 0, middle, 1), 1)), axis=1)


def _check_same_shape(first, second):
    if first.shape != second.shape:
        expected = f"`second` must have the shape of `first`, {first.shape}"
        raise_value_error("faithfulness", expected, second.shape)


def gradient_times_input(predict: Predict, features: Tensor) -> np.ndarray:
    """Compute the importance of embedded words by the gradient (Denil et al., 2014).

        g[b,...] = sum_d x[b,...,d] dp(y | x[b]) / dx[b,...,d],    y = argmax p(. | x[b])

    Args:
        predict: the classifier, from features to probabilities `(B, C)`, in tensors of Keras's
            backend: the model from the embedded words on.
        features: x, `(B, ..., D)`.

    Returns:
        g, `(B, ...)`.

    Example:
        The first word speaks for the predicted class, the second one against it:

        >>> import numpy
        >>> from keras import ops
        >>> from keras_attention.faithfulness import gradient_times_input
        >>> def predict(features):
        ...     return ops.softmax(ops.sum(features, axis=1))
        >>> words = numpy.array([[[3.0, 0.0], [0.0, 1.0], [0.0, 0.0]]])
        >>> [round(x, 3) for x in gradient_times_input(predict, words)[0].tolist()]
        [0.315, -0.105, 0.0]

    Reference: https://arxiv.org/abs/1412.6815
    """
    features = ops.convert_to_tensor(features)

    def predicted(features):
        return ops.max(ops.cast(predict(features), features.dtype), axis=1), None

    ones = ops.ones((features.shape[0],), features.dtype)
    (gradient,), _ = vjp(predicted, (features,), ones)
    return ops.convert_to_numpy(ops.sum(gradient * features, axis=-1))
