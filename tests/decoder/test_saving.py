"""One decoder for training and one for inference, and a regularizer of a decoder, in files."""

import keras
import numpy as np
import pytest
from keras import layers

from keras_attention import AttentionRNN, BahdanauAttention
from tests.decoder.cases import DV, D, H, T, tensors
from tests.helpers import TK, B, assert_close, numpy


def model_of(decoder):
    inputs = keras.Input((T, D)), keras.Input((TK, DV))
    return keras.Model(inputs, decoder(*inputs))


def test_a_decoder_of_its_own_is_saved_as_before(tmp_path):
    """The usual pair, one decoder for training and one for inference, in two models."""
    cell, attention = layers.GRUCell(H), BahdanauAttention(17)
    train, infer = (AttentionRNN(cell, attention, name=name) for name in ("train", "infer"))
    model, _, x = model_of(train), model_of(infer), list(tensors("float32"))
    model.save(tmp_path / "train.keras")
    loaded = keras.saving.load_model(tmp_path / "train.keras")
    assert_close(loaded(x), numpy(model(x)), "float32")


@pytest.mark.slow
def test_a_regularizer_of_the_decoder_counts_and_is_saved(tmp_path):
    options = {"activity_regularizer": keras.regularizers.L2(0.1)}
    model = model_of(AttentionRNN(layers.GRUCell(H), BahdanauAttention(17), **options))
    model.compile(keras.optimizers.SGD(0.0), "mse")
    model.save(tmp_path / "regularized.keras")
    for one in (model, keras.saving.load_model(tmp_path / "regularized.keras")):
        x = list(tensors("float32"))
        output = one.predict_on_batch(x)
        loss = one.train_on_batch(x, np.zeros_like(output))
        squares = np.square(output)
        assert loss == pytest.approx(squares.mean() + 0.1 * squares.sum() / B, rel=1e-5)
