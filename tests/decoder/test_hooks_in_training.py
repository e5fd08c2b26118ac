"""Hooks that do something else in training, in the loop of a decoder and in its gradient."""

import numpy as np
import pytest
from keras import layers, ops

from keras_attention import AttentionRNN, BahdanauAttention
from tests.backends import BACKEND, compiled, gradients_by, on_tensorflow, tensor
from tests.decoder.cases import DV, D, H, tensors
from tests.helpers import AnyCell, assert_all_close, numpy, randomize


class Scale(layers.Layer):
    def call(self, x, training=None):
        return 3 * x if training else x


class Scaling(BahdanauAttention):
    """Has a layer without weights that depends on `training`."""

    def __init__(self, units, **kwargs):
        super().__init__(units, **kwargs)
        self.inner = Scale(dtype=self.dtype_policy)

    def project_query(self, query):
        return super().project_query(self.inner(query))


class Normalizing(Scaling):
    """Has a layer that assigns weights in training."""

    def __init__(self, units, **kwargs):
        super().__init__(units, **kwargs)
        self.inner = layers.BatchNormalization(dtype=self.dtype_policy, momentum=0.5)


def decoder(attention, cell):
    layer = AttentionRNN(cell(H, dtype="float64"), attention(7, dtype="float64"), dtype="float64")
    layer.build((None, None, D), (None, None, DV))
    return randomize(layer)


def trained(layer):
    def loss(*inputs):
        outputs = layer(*inputs, training=True)
        return ops.sum(ops.square(outputs)), outputs

    variables = layer.trainable_variables
    outputs, grads = gradients_by(loss, tensors(), variables, jit=BACKEND == "jax")
    return [outputs, *grads]


@pytest.mark.parametrize("attention", [Scaling, Normalizing])
def test_gradients_are_those_of_training(attention):
    """A loop over any cell is differentiated by the backend, in the call of the decoder."""
    found, expected = (trained(decoder(attention, cell)) for cell in (layers.GRUCell, AnyCell))
    assert_all_close(found, expected)


@on_tensorflow
@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("cell", [layers.GRUCell, AnyCell])
def test_moving_statistics_move(cell, jit):
    found = []
    for kind in (cell, AnyCell):
        layer = decoder(Normalizing, kind)
        call = compiled(lambda *x, layer=layer: layer(*x, training=True), jit)
        if kind is cell:
            call(*map(tensor, tensors()))
        else:
            layer(*tensors(), training=True)  # eagerly, a plain loop of Python
        found.append(numpy(layer.attention.inner.moving_mean))
    np.testing.assert_allclose(*found, atol=1e-12)
    assert np.abs(found[0]).max() > 1e-3


class Cosine(Scaling):
    """Has no gradient at a query of zero."""

    def project_query(self, query):
        norm = ops.sqrt(ops.sum(ops.square(query), axis=-1, keepdims=True))
        return super().project_query(query / norm)


@on_tensorflow
def test_hooks_see_no_steps_that_did_not_run():
    """XLA runs a loop of 5 steps in one for 8."""
    import tensorflow as tf

    layer = decoder(Cosine, layers.GRUCell)
    sequences, memory = map(tensor, tensors())
    state = tf.ones((len(sequences), H), "float64")

    def gradients(sequences, memory):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(sequences, memory, initial_state=state, training=True) ** 2)
        return tape.gradient(loss, [x.value for x in layer.trainable_variables])

    expected = gradients(sequences, memory)
    shapes = [tf.TensorSpec((None, None, x.shape[-1]), x.dtype) for x in (sequences, memory)]
    found = tf.function(gradients, shapes, autograph=False)(sequences, memory)
    assert_all_close(found, expected)
    assert all(np.isfinite(x).all() for x in found)
