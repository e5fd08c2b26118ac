"""Inputs of the additive score, and its oracle: loops over all pairs in float64."""

import numpy as np

from keras_attention.ops import additive_score, compiling
from tests.helpers import numpy

FORWARD, BACKWARD = 2e-6, 1e-5
SIZES = 2, 37, 53, 67


def shapes_of(batch, steps, length, units):
    return (batch, steps, units), (batch, length, units), (units,), (batch, steps, length)


def both_with(choice):
    """A step as in `fit` on TensorFlow: the gradient is computed outside of the layer."""
    import tensorflow as tf

    def run(query, key, vector, upstream):
        with tf.GradientTape() as tape:
            tape.watch((query, key, vector))
            with compiling(choice):
                scores = additive_score(query, key, vector)
        return scores, *tape.gradient(scores, (query, key, vector), upstream)

    return run


def make_inputs(sizes, deviation=1.0, seed=0, dtype="float32"):
    rng = np.random.default_rng(seed)
    pairs = zip((deviation, deviation, 1, 1), shapes_of(*sizes), strict=True)
    return [rng.normal(scale=scale, size=shape).astype(dtype) for scale, shape in pairs]


def oracle(query, key, vector, upstream):
    """Scores and the gradients by query, key and vector, pair by pair in float64."""
    query, key, vector, upstream = (np.float64(x) for x in (query, key, vector, upstream))
    scores = np.zeros(upstream.shape)
    gradients = np.zeros_like(query), np.zeros_like(key), np.zeros_like(vector)
    for b, i, j in np.ndindex(scores.shape):
        hidden = np.tanh(query[b, i] + key[b, j])
        scores[b, i, j] = hidden @ vector
        slope = upstream[b, i, j] * vector * (1 - hidden**2)
        gradients[0][b, i] += slope
        gradients[1][b, j] += slope
        gradients[2][:] += upstream[b, i, j] * hidden
    return scores, *gradients


def assert_exact(found, inputs, few=False):
    """Errors are relative to the largest number of each result.

    With `few` numbers all may nearly cancel; then they are relative to the usual size of a sum.
    """
    limits = FORWARD, BACKWARD, BACKWARD, BACKWARD
    _, _, vector, upstream = (np.float64(x) for x in inputs)
    of_step = np.abs(vector).max(initial=0) * np.linalg.norm(upstream)
    usual = np.linalg.norm(vector), of_step, of_step, np.linalg.norm(upstream)
    for x, expected, limit, scale in zip(found, oracle(*inputs), limits, usual, strict=True):
        assert x.shape == expected.shape
        largest = max(np.abs(expected).max(initial=0), few * scale)
        np.testing.assert_allclose(numpy(x), expected, rtol=0, atol=limit * largest)
