"""Decoders that share a cell or an attention, and regularizers of a decoder, in files."""

import keras
import numpy as np
import pytest
from keras import layers

from keras_attention import AttentionRNN, BahdanauAttention
from tests.helpers import TK, B
from tests.layers.decoder.cases import DV, D, H, T, tensors


def model_of(*decoders):
    inputs = keras.Input((T, D)), keras.Input((TK, DV))
    outputs = [decoder(*inputs) for decoder in decoders]
    return keras.Model(inputs, outputs if len(outputs) > 1 else outputs[0])


@pytest.mark.parametrize("shared", ["attention", "cell", "one of several cells"])
def test_shared_parts_are_named_before_saving(shared, tmp_path):
    """Keras cannot load such a file: it has the weights of the shared layer once."""
    cell, attention = layers.GRUCell(H), BahdanauAttention(17)
    cells = [layers.GRUCell(H), layers.GRUCell(H)]
    attentions = [BahdanauAttention(17), BahdanauAttention(17)]
    if shared == "attention":
        attentions = [attention, attention]
    else:
        cells = [cell, [layers.GRUCell(H), cell]] if "several" in shared else [cell, cell]
    pairs = zip(cells, attentions, strict=True)
    decoders = [AttentionRNN(*pair, name=f"decoder_{n}") for n, pair in enumerate(pairs)]
    model = model_of(*decoders)
    part = attention if shared == "attention" else cell
    with pytest.warns(UserWarning, match=f"decoder_0 and decoder_1 share {part.name}"):
        model.save(tmp_path / "shared.keras")
    with pytest.raises(ValueError, match="could not be loaded"):
        keras.saving.load_model(tmp_path / "shared.keras")
    decoders = [AttentionRNN(layers.GRUCell(H), BahdanauAttention(17)) for _ in range(2)]
    model_of(*decoders).save(tmp_path / "own.keras")  # without a warning
    keras.saving.load_model(tmp_path / "own.keras")


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
