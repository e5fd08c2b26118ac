"""The loss of attention with coverage."""

import keras
import numpy as np
import pytest

from keras_attention import AttentionRNN, CoverageAttention
from tests.helpers import DV, TK, B, lengths_mask, normal, numpy

T = 5
INPUTS = normal(1, B, T, 3, dtype="float32"), normal(2, B, TK, DV, dtype="float32")
MASK = np.array([[True, True, True, True, True], [True, True, False, False, False]])


def loss_of_weights(weights, mask):
    total = 0.0
    for b in range(B):
        coverage, losses = np.zeros(TK), []
        for i in range(T):
            if mask[b, i]:
                losses.append(sum(np.minimum(weights[b, i], coverage)))
                coverage = coverage + weights[b, i]
        total += np.mean(losses) / B
    return total


@pytest.mark.parametrize("weight", [1.0, 0.25])
@pytest.mark.parametrize("mask", [np.ones_like(MASK), MASK])
@pytest.mark.parametrize("decoder", [False, True])
def test_the_loss(weight, mask, decoder):
    layer, masks = CoverageAttention(11, weight), {"query_mask": mask}
    if decoder:
        layer = AttentionRNN(keras.layers.GRUCell(7), layer)
        masks = {"sequences_mask": mask, "memory_mask": lengths_mask([5, 7], TK)}
    _, weights = layer(*INPUTS, **masks, return_attention_scores=True)
    expected = weight * loss_of_weights(numpy(weights), mask)
    assert [float(numpy(x)) for x in layer.losses] == pytest.approx([expected], rel=1e-5)


@pytest.mark.parametrize(("weight", "samples", "losses"), [(1, 0, [0.0]), (0, B, [])])
def test_no_loss(weight, samples, losses):
    layer = CoverageAttention(3, weight)
    layer(*(x[:samples] for x in INPUTS))
    assert [float(numpy(x)) for x in layer.losses] == losses
