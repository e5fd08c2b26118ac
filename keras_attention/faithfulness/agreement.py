"""Whether two models find the same parts important."""

from typing import Any

import numpy as np

from keras_attention._spec import refuse
from keras_attention.faithfulness._parts import as_rows, most_important, present_parts

__all__ = ["jensen_shannon", "overlap"]


def jensen_shannon(first: Any, second: Any) -> np.ndarray:
    """How far two distributions of weights are apart, from 0 to log 2 = 0.69.

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
    a, b = (_distribution(name, x) for name, x in {"first": first, "second": second}.items())
    _check_same("second", b.shape, a.shape, "`first`")
    middle = (a + b) / 2
    return (_relative_entropy(a, middle) + _relative_entropy(b, middle)) / 2


def overlap(first: Any, second: Any, inputs: Any, share: float = 0.1, pad: int = 0) -> np.ndarray:
    """How many of the most important parts two models have in common, from 0 to 1.

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
    tops = []
    for name, importance in {"first": first, "second": second}.items():
        parts = present_parts(inputs, importance, pad, name)
        tops.append(as_rows(most_important(importance, parts, share, name)))
    _check_same("second", tops[1].shape, tops[0].shape, "`first`")
    count = tops[0].sum(axis=1)
    return np.where(count > 0, (tops[0] & tops[1]).sum(axis=1) / np.maximum(count, 1), 1.0)


def _distribution(name, weights):
    weights = np.asarray(weights, "float64")
    if weights.ndim < 2 or not np.isfinite(weights).all() or (weights < 0).any():
        expected = f"`{name}` must hold weights (batch, ...), finite and not negative"
        refuse("faithfulness", expected, weights)
    rows = as_rows(weights)
    total = rows.sum(axis=1, keepdims=True)
    return rows / np.where(total > 0, total, 1)


def _relative_entropy(a, middle):
    return np.sum(a * np.log(np.where(a > 0, a / np.where(middle > 0, middle, 1), 1)), axis=1)


def _check_same(name, shape, wanted, other):
    if shape != wanted:
        raise ValueError(
            f"faithfulness: `{name}` must have the shape of {other}, {wanted}; received {shape}."
        )
