"""The prior of dynamic convolution attention."""

import numpy as np
import pytest

from keras_attention import DynamicConvolutionAttention
from tests.helpers import numpy
from tests.recurrent_oracles import beta_binomial


@pytest.mark.parametrize("length", [1, 2, 11])
def test_the_prior_alone_moves(length):
    """With a score vector of zeros, the weights of a step are the prior of those before."""
    layer = DynamicConvolutionAttention(3, prior_length=length, dtype="float64")
    query, value = np.ones((1, 2, 5)), np.ones((1, 30, 7))
    layer.build(query.shape, value.shape)
    layer.score_vector.assign(np.zeros(3))
    _, weights = layer(query, value, return_attention_scores=True)
    prior = beta_binomial(length - 1, 0.1, 0.9)
    assert sum(prior) == pytest.approx(1)
    assert np.arange(length) @ prior == pytest.approx((length - 1) * 0.1)
    for row, expected in zip(numpy(weights)[0], (prior, np.convolve(prior, prior)), strict=True):
        np.testing.assert_allclose(row[: len(expected)], expected, rtol=0, atol=1e-6)
        assert not row[len(expected) :].any()
