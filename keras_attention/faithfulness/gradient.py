"""The usual alternative to attention weights."""

from typing import Any

import numpy as np
from keras import ops

from keras_attention.faithfulness._parts import Predict
from keras_attention.ops.gradients import vector_jacobian

__all__ = ["gradient_times_input"]


def gradient_times_input(predict: Predict, features: Any) -> np.ndarray:
    """The importance of embedded words by the gradient (Denil et al., 2014).

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
    (gradient,), _ = vector_jacobian(predicted, (features,), ones)
    return ops.convert_to_numpy(ops.sum(gradient * features, axis=-1))
