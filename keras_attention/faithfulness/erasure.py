"""What a prediction loses when parts of the input are erased."""

from typing import Any

import numpy as np
from keras import ops

from keras_attention._spec import refuse
from keras_attention.faithfulness._parts import Predict, most_important, present_parts

__all__ = ["comprehensiveness", "erase", "sufficiency"]


def comprehensiveness(
    predict: Predict, inputs: Any, importance: Any, share: float = 0.1, pad: int = 0
) -> np.ndarray:
    """How much the predicted class loses without the most important parts. More is better.

        c[b] = p(y | x[b]) - p(y | x[b] without them),    y = argmax p(. | x[b])

    Args:
        predict: the classifier, from ids to probabilities `(B, C)`, such as the method
            `predict_on_batch` of a model that ends in a softmax.
        inputs: ids x, `(B, N)`, or with more axes, such as sentences of words `(B, S, W)`.
        importance: as large as the inputs, or `(B, S)` to erase whole sentences.
        share: how many of the parts of a sample count as the most important, in (0, 1]; rounded up.
        pad: the id of padding, which is no part, and replaces what is erased.

    Returns:
        c, `(B,)`, from -1 to 1.

    Raises:
        ValueError: the shapes do not fit; the importance holds NaN; the share is out of range.

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
    predict: Predict, inputs: Any, importance: Any, share: float = 0.1, pad: int = 0
) -> np.ndarray:
    """How much the predicted class loses with nothing but the most important parts. Less is better.

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
    inputs: Any, importance: Any, share: float = 0.1, pad: int = 0, keep: bool = False
) -> np.ndarray:
    """The inputs without their most important parts, or with `keep` nothing else.

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
    chosen = most_important(importance, present_parts(inputs, importance, pad), share)
    chosen = chosen.reshape(chosen.shape + (1,) * (inputs.ndim - chosen.ndim))
    return np.where(chosen == keep, inputs, pad)


def _loss(predict, inputs, importance, share, pad, keep):
    inputs = np.asarray(inputs)
    erased = erase(inputs, importance, share, pad, keep)
    before, after = (_probabilities(predict, x) for x in (inputs, erased))
    chosen = before.argmax(axis=1)[:, None]
    before, after = (np.take_along_axis(p, chosen, axis=1)[:, 0] for p in (before, after))
    return before - after


def _probabilities(predict, inputs):
    found = predict(inputs)
    found = ops.convert_to_numpy(found) if ops.is_tensor(found) else np.asarray(found)
    if found.ndim != 2 or len(found) != len(inputs):
        expected = f"`predict` must return probabilities of shape ({len(inputs)}, classes)"
        refuse("faithfulness", expected, found.shape)
    return found
