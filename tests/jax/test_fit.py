"""`fit` on JAX, where layers can only read what the trainer hands them."""

import keras
import numpy as np
import pytest

from keras_attention import (
    AttentionRNN,
    GMMAttention,
    LocationSensitiveAttention,
    MonotonicAttention,
)
from tests.helpers import normal


@pytest.mark.parametrize(
    "attention",
    [
        lambda: MonotonicAttention(6),
        lambda: LocationSensitiveAttention(6, dropout=0.2),
        lambda: GMMAttention(6, half_width=2, dropout=0.1),
    ],
    ids=["monotonic", "location", "gmm"],
)
def test_a_decoder_with_random_numbers_in_its_attention(attention):
    inputs = keras.Input((4, 5)), keras.Input((7, 3))
    outputs = AttentionRNN(keras.layers.GRUCell(3), attention())(*inputs)
    model = keras.Model(inputs, outputs)
    model.compile("sgd", "mse")
    arrays = [normal(n, 8, *shape, dtype="float32") for n, shape in enumerate(((4, 5), (7, 3)))]
    losses = model.fit(arrays, np.zeros((8, 4, 3)), epochs=2, batch_size=4, verbose=0)
    assert np.isfinite(losses.history["loss"]).all()
