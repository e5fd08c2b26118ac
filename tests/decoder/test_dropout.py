"""Dropout of the cells and of the attention inside a decoder."""

import keras
import numpy as np
import pytest
from keras import layers

from keras_attention import AttentionRNN, BahdanauAttention, LuongAttention, MemoryHop
from tests.backends import on_tensorflow
from tests.decoder.cases import CURRENT, DV, FEEDING, PREVIOUS, D, H, T, tensors
from tests.helpers import DQ, TK, B, assert_close, assert_drops, normal, numpy


def dropping_decoders():
    cell, rates = layers.GRUCell, {"dropout": 0.3, "recurrent_dropout": 0.3, "seed": 5}
    stack = [layers.LSTMCell(DQ, **rates), cell(H, **rates)]
    bahdanau = BahdanauAttention(17, dropout=0.3, seed=6)
    luong = LuongAttention("general", units=23, dropout=0.3, seed=6)
    return {
        "cell": AttentionRNN(cell(H, **rates), BahdanauAttention(17)),
        "attention": AttentionRNN(cell(H), bahdanau),
        "stack, feeding": AttentionRNN(stack, luong, **FEEDING),
        "attention after the loop": AttentionRNN(cell(H), luong, **CURRENT),
        "cell before the attention": AttentionRNN(cell(H, **rates), LuongAttention(), **CURRENT),
    }


@pytest.mark.parametrize("name", dropping_decoders())
def test_dropout_is_for_training(name):
    layer = dropping_decoders()[name]
    inputs = tensors("float32")
    quiet = numpy(layer(*inputs))
    first, second = (numpy(layer(*inputs, training=True)) for _ in range(2))
    assert not np.isclose(first, quiet).all()
    assert not np.isclose(first, second).all()
    assert np.array_equal(numpy(layer(*inputs)), quiet)


USUAL = [("stack, feeding", False)]
SLOW = [("cell before the attention", False), ("attention after the loop", True)]
REST = [(name, False) for name in ("attention", "cell", "attention after the loop")]
REST += [("stack, feeding", True)]


@pytest.mark.parametrize(
    ("name", "jit"),
    [
        *USUAL,
        *(pytest.param(*x, marks=pytest.mark.slow) for x in SLOW),
        *(pytest.param(*x, marks=pytest.mark.exhaustive) for x in REST),
    ],
)
def test_dropout_trains(name, jit):
    inputs = keras.Input((None, D)), keras.Input((None, DV))
    layer = dropping_decoders()[name]
    model = keras.Model(inputs, layer(*inputs))
    model.compile("sgd", "mse", jit_compile=jit)
    before = [numpy(w) for w in model.trainable_weights]
    x = list(tensors("float32"))
    y = np.ones((B, T, model.output.shape[-1]))
    losses = [model.train_on_batch(x, y) for _ in range(2)]
    assert np.isfinite(losses).all()
    for old, new in zip(before, model.trainable_weights, strict=True):
        assert np.isfinite(numpy(new)).all()
        assert not np.array_equal(old, numpy(new))
    model.optimizer.learning_rate.assign(0.0)
    # Weights and inputs stay the same, so only a new draw can change the loss.
    still = [model.train_on_batch(x, y) for _ in range(2)]
    assert still[0] != still[1]


def test_dropout_in_the_loop_drops_the_same_memory_steps_throughout():
    """With unit vectors as memory, the context shows which weights were read, and their scale."""
    attention = BahdanauAttention(17, dropout=0.4, seed=3)
    layer = AttentionRNN(layers.GRUCell(H), attention, output_mode="attention")
    batch = 211
    inputs = normal(1, batch, T, D), np.tile(np.eye(TK), (batch, 1, 1))
    context, weights = layer(*inputs, training=True, return_attention_scores=True)
    assert_close(numpy(weights).sum(-1), np.ones((batch, T)), "float32")
    context, weights = numpy(context), numpy(weights)
    first = assert_drops(context[:, 0], weights[:, 0])
    for i in range(1, T):
        assert np.array_equal(assert_drops(context[:, i], weights[:, i]), first)


def test_dropout_in_the_loop_draws_once_for_each_memory_step_of_each_sample():
    """Each unit vector stands in the memory twice; both halves drop the same steps."""
    attention = BahdanauAttention(17, dropout=0.4, seed=3)
    layer = AttentionRNN(layers.GRUCell(H), attention, output_mode="attention")
    batch = 211
    inputs = normal(1, batch, T, D), np.tile(np.eye(TK), (batch, 1, 2))
    context, weights = layer(*inputs, training=True, return_attention_scores=True)
    dropped = numpy(context).reshape(batch, T, 2, TK) == 0
    assert (numpy(weights) > 0).all()
    assert np.array_equal(dropped[:, :, 0], dropped[:, :, 1])
    dropped = dropped[:, 0, 0]
    # Four standard deviations of the mean of so many draws, and of their correlation.
    assert np.abs(dropped.mean(axis=0) - 0.4).max() < 4 * np.sqrt(0.24 / batch)
    together = np.corrcoef(dropped, rowvar=False)[~np.eye(TK, dtype=bool)]
    assert np.abs(together).max() < 4 / np.sqrt(batch)


@on_tensorflow
@pytest.mark.parametrize("rate", ["dropout", "recurrent_dropout"])
@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.each_value
def test_every_call_draws_new_dropout_of_a_cell(rate, number):
    import tensorflow as tf

    rates = [{}, {}]
    rates[number] = {rate: 0.5, "seed": 5}
    stack = [layers.LSTMCell(DQ, **rates[0]), layers.GRUCell(H, **rates[1])]
    layer = AttentionRNN(stack, BahdanauAttention(17))
    sequences, memory = tensors("float32")
    first, second = (numpy(layer(sequences, memory, training=True)) for _ in range(2))
    assert not np.isclose(first, second).all()
    larger = [np.concatenate([x, x]) for x in (sequences, memory)]
    halves = np.split(numpy(layer(*larger, training=True)), 2)
    assert not np.isclose(*halves).all()
    graph = tf.function(lambda *x: layer(*x, training=True))
    assert not np.isclose(numpy(graph(*larger)), numpy(layer(*larger, training=True))).all()


def test_a_loop_that_fails_leaves_no_dropout_behind(monkeypatch):
    layer = AttentionRNN(layers.GRUCell(H, dropout=0.5), BahdanauAttention(17))
    layer.build((None, None, D), (None, None, DV))
    with monkeypatch.context() as patch:
        patch.setattr(layer.attention, "score", lambda query, key: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            layer(np.ones((3, T, D)), np.ones((3, TK, DV)), training=True)
    # Dropout of three samples would not fit.
    assert np.isfinite(numpy(layer(*tensors("float32"), training=True))).all()


@pytest.mark.parametrize("options", [PREVIOUS, CURRENT, FEEDING])
def test_an_attention_with_a_constant_weight_and_dropout_is_accepted(options):
    attention = MemoryHop(dropout=0.4, seed=3)
    layer = AttentionRNN(layers.GRUCell(DV), attention, output_mode="concat", **options)
    inputs = tensors("float32")
    first, second = (numpy(layer(*inputs, training=True)) for _ in range(2))
    assert not np.isclose(first, second).all()
