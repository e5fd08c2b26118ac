"""Bahdanau attention against loops of the paper."""

import numpy as np
import pytest

from keras_attention import BahdanauAttention
from tests.helpers import (
    BAHDANAU,
    DK,
    DQ,
    DV,
    TK,
    TQ,
    B,
    assert_close,
    gradients,
    numpy,
)
from tests.oracles import attend


def test_weights():
    layer = BahdanauAttention(17, use_bias=True, weight_norm=True)
    layer.build((B, TQ, DQ), (B, TK, DV), (B, TK, DK))
    shapes = {weight.name: tuple(weight.shape) for weight in layer.weights}
    assert shapes == {
        "query_kernel": (DQ, 17),
        "key_kernel": (DK, 17),
        "score_vector": (17,),
        "bias": (17,),
        "gain": (),
    }
    assert all(getattr(layer, name).shape == shape for name, shape in shapes.items())
    assert numpy(layer.gain) == pytest.approx(17**-0.5)
    assert not numpy(layer.bias).any()
    plain = BahdanauAttention(17)
    plain.build((B, TQ, DQ), (B, TK, DV))
    shapes = {weight.name: tuple(weight.shape) for weight in plain.weights}
    assert shapes == {"query_kernel": (DQ, 17), "key_kernel": (DV, 17), "score_vector": (17,)}


def test_saturated_scores_stay_finite():
    layer = BAHDANAU["plain"].built()
    query, value, key = BAHDANAU["plain"].tensors()
    output, weights = layer(1e4 * query, value, 1e4 * key, return_attention_scores=True)
    expected = attend(BAHDANAU["plain"].row(layer), 1e4 * query, value, 1e4 * key)
    assert_close(output, expected[0], "float32")
    assert_close(weights, expected[1], "float32")


def test_training_can_start_from_a_normalized_vector_of_zeros():
    layer = BAHDANAU["normalized"].built(dtype="float64")
    layer.score_vector.assign(np.zeros(17))
    query, value, key = BAHDANAU["normalized"].tensors()
    outputs, found = gradients(layer, lambda *x: [layer(*x)], (query, value, key))
    assert_close(outputs[0], np.broadcast_to(value.mean(axis=1, keepdims=True), outputs[0].shape))
    assert all(np.isfinite(numpy(gradient)).all() for gradient in found)
