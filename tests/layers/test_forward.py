"""The agent of forward attention, and its arguments."""

import numpy as np
import pytest

from keras_attention import ForwardAttention
from tests.helpers import normal, numpy


def test_an_agent_that_always_moves_stays_at_the_end():
    layer = ForwardAttention(3, transition_agent=True)
    query, value = normal(1, 2, 9, 5, dtype="float32"), normal(2, 2, 4, 3, dtype="float32")
    layer.build(query.shape, value.shape)
    layer.agent_bias.assign(30.0)
    _, weights = layer(query, value, return_attention_scores=True)
    np.testing.assert_allclose(numpy(weights).sum(-1), 1, atol=1e-5)
    np.testing.assert_allclose(numpy(weights)[:, 4:, 3], 1, atol=1e-4)


@pytest.mark.parametrize("agent", [False, True])
def test_a_step_that_can_reach_nothing_changes_nothing(agent):
    layer = ForwardAttention(3, transition_agent=agent)
    query, value = normal(1, 1, 4, 6, dtype="float32"), normal(2, 1, 5, 6, dtype="float32")
    mask = np.ones((4, 5), bool)
    mask[1] = [False, False, False, True, True]
    options = {"attention_mask": mask, "return_attention_scores": True}
    _, weights = layer(query, value, **options)
    np.testing.assert_allclose(numpy(weights).sum(-1), [[1, 0, 1, 1]], atol=1e-6)
    without = np.delete(query, 1, axis=1)
    _, expected = layer(without, value, return_attention_scores=True)
    np.testing.assert_allclose(np.delete(numpy(weights), 1, axis=1), numpy(expected), atol=1e-6)
