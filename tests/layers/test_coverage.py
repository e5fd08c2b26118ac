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
@pytest.mark.parametrize("mask", [None, MASK])
def test_the_loss_of_a_layer(weight, mask):
    layer = CoverageAttention(11, weight)
    _, weights = layer(*INPUTS, query_mask=mask, return_attention_scores=True)
    expected = weight * loss_of_weights(
        numpy(weights), np.ones_like(MASK) if mask is None else mask
    )
    assert [float(numpy(x)) for x in layer.losses] == pytest.approx([expected], rel=1e-5)


def test_the_loss_of_a_decoder():
    decoder = AttentionRNN(keras.layers.GRUCell(7), CoverageAttention(11))
    _, weights = decoder(
        *INPUTS,
        sequences_mask=MASK,
        memory_mask=lengths_mask([5, 7], TK),
        return_attention_scores=True,
    )
    expected = loss_of_weights(numpy(weights), MASK)
    assert [float(numpy(x)) for x in decoder.losses] == pytest.approx([expected], rel=1e-5)


@pytest.mark.slow
def test_training_reduces_the_loss():
    """Whatever the keys are, the decoder learns to read every place once."""
    keras.utils.set_random_seed(1)
    sequences, memory = keras.Input((None, 3)), keras.Input((None, DV))
    decoder = AttentionRNN(keras.layers.GRUCell(7), CoverageAttention(11))
    model = keras.Model([sequences, memory], decoder(sequences, memory))
    model.compile(keras.optimizers.Adam(0.03), loss=lambda y, x: 0.0 * keras.ops.sum(x))
    target = np.zeros((B, T, 7), "float32")
    history = model.fit(list(INPUTS), target, epochs=30, verbose=0).history["loss"]
    assert history[-1] < 0.6 * history[0]


def test_the_loss_of_no_sample_is_zero():
    layer = CoverageAttention(3)
    layer(*(x[:0] for x in INPUTS))
    assert [float(numpy(x)) for x in layer.losses] == [0.0]


def test_without_a_loss():
    layer = CoverageAttention(11, 0)
    layer(*INPUTS)
    assert layer.losses == []
