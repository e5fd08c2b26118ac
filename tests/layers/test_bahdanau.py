"""Bahdanau attention against loops of the paper."""

import numpy as np
import pytest

from keras_attention import BahdanauAttention
from tests import helpers
from tests.helpers import BAHDANAU, DK, DQ, DV, TK, TQ, B, assert_all_close, assert_close, numpy
from tests.oracles import attend


@pytest.mark.parametrize(("options", "key", "more"), [
    ({}, DV, {}), ({"use_bias": True, "weight_norm": True}, DK, {"bias": (17,), "gain": ()}),
])  # fmt: skip
def test_weights(options, key, more):
    layer = BahdanauAttention(17, **options)
    layer.build((B, TQ, DQ), (B, TK, DV), None if key == DV else (B, TK, key))
    shapes = {"query_kernel": (DQ, 17), "key_kernel": (key, 17), "score_vector": (17,), **more}
    assert {weight.name: tuple(weight.shape) for weight in layer.weights} == shapes
    assert all(getattr(layer, name).shape == shape for name, shape in shapes.items())
    if more:
        assert numpy(layer.gain) == pytest.approx(17**-0.5)
        assert not numpy(layer.bias).any()


def test_saturated_scores_stay_finite():
    layer, (query, value, key) = BAHDANAU["plain"].built(), BAHDANAU["plain"].tensors()
    inputs = 1e4 * query, value, 1e4 * key
    found = layer(*inputs, return_attention_scores=True)
    assert_all_close(found, attend(BAHDANAU["plain"].row(layer), *inputs), "float32")


def test_training_can_start_from_a_normalized_vector_of_zeros():
    layer = BAHDANAU["normalized"].built(dtype="float64")
    layer.score_vector.assign(np.zeros(17))
    query, value, key = BAHDANAU["normalized"].tensors()
    outputs, found = helpers.gradients(layer, lambda *x: [layer(*x)], (query, value, key))
    assert_close(outputs[0], np.broadcast_to(value.mean(axis=1, keepdims=True), outputs[0].shape))
    assert all(np.isfinite(numpy(gradient)).all() for gradient in found)
