"""Hooks that depend on `training` or on the number of the step, in the loop of a decoder."""

import numpy as np
import pytest
from keras import layers, ops

from keras_attention import AttentionRNN, BahdanauAttention, LuongAttention, MultiHead, MultiSource
from keras_attention.attention import RecurrentScoringMixin
from tests import helpers
from tests.backends import BACKEND, compiled, gradients_by, on_tensorflow, tensor
from tests.decoder.cases import DV, D, H, T, tensors
from tests.helpers import TK, AnyCell, B, assert_all_close, normal, numpy, randomize

U = 5


def decoder(attention, cell=layers.GRUCell, dtype="float64", **options):
    cell, attention = cell(H, dtype=dtype), attention(U, dtype=dtype)
    layer = AttentionRNN(cell, attention, dtype=dtype, **options)
    layer.build((None, T, D), (None, None, DV))
    return randomize(layer)


class Scaling(BahdanauAttention):  # has a layer without weights that depends on `training`
    class Scale(layers.Layer):
        def call(self, x, training=None):
            return 3 * x if training else x

    def __init__(self, units, **kwargs):
        super().__init__(units, **kwargs)
        self.inner = self.Scale(dtype=self.dtype_policy)

    def project_query(self, query):
        return super().project_query(self.inner(query))


class Normalizing(Scaling):  # has a layer that assigns weights in training
    def __init__(self, units, **kwargs):
        super().__init__(units, **kwargs)
        self.inner = layers.BatchNormalization(dtype=self.dtype_policy, momentum=0.5)


@pytest.mark.parametrize("attention", [Scaling, Normalizing])
def test_gradients_are_those_of_training(attention):
    """A loop over any cell is differentiated by the backend, in the call of the decoder."""

    def trained(layer):
        def loss(*inputs):
            outputs = layer(*inputs, training=True)
            return ops.sum(ops.square(outputs)), outputs

        jit = BACKEND == "jax"
        outputs, found = gradients_by(loss, tensors(), layer.trainable_variables, jit)
        return [outputs, *found]

    found, expected = (trained(decoder(attention, cell)) for cell in (layers.GRUCell, AnyCell))
    assert_all_close(found, expected)


@on_tensorflow
@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("cell", [layers.GRUCell, AnyCell])
def test_moving_statistics_move(cell, jit):
    """As in a plain loop of Python, which is that of any cell in eager code."""
    found = []
    for kind, place in ((cell, lambda call: compiled(call, jit)), (AnyCell, lambda call: call)):
        layer = decoder(Normalizing, kind)
        place(lambda *x, layer=layer: layer(*x, training=True))(*map(tensor, tensors()))
        found.append(numpy(layer.attention.inner.moving_mean))
    np.testing.assert_allclose(*found, atol=1e-12)
    assert np.abs(found[0]).max() > 1e-3


class Cosine(BahdanauAttention):  # has no gradient at a query of zero
    def project_query(self, query):
        norm = ops.sqrt(ops.sum(ops.square(query), axis=-1, keepdims=True))
        return super().project_query(query / norm)


@on_tensorflow
def test_hooks_see_no_steps_that_did_not_run():
    """XLA runs a loop of 5 steps in one for 8."""
    import tensorflow as tf

    layer = decoder(Cosine)
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


INSIDE = {
    "alone": lambda attention: attention,
    "heads": lambda attention: MultiHead(attention, 2),
    "sources": lambda attention: MultiSource([attention, LuongAttention("general")]),
}
every_way = pytest.mark.parametrize("inside", INSIDE)


def less_distance(scores, position, weight=0.3):
    distance = ops.expand_dims(position, -1) - ops.arange(ops.shape(scores)[-1], dtype="int32")
    return scores - weight * ops.cast(ops.abs(distance), scores.dtype)


class Relative(BahdanauAttention):  # scores a relative distance
    def score(self, query, key, position):
        return less_distance(super().score(query, key), position)


class Wrong(BahdanauAttention):
    """Counts the queries of a call, which a decoder passes one by one, and matters little."""

    def build(self, *shapes):
        super().build(*shapes)
        self.drop = layers.Dropout(0.1, seed=1)  # draws nothing at inference

    def score(self, query, key):
        count = ops.arange(ops.shape(query)[1], dtype="int32")
        scores = self.drop(super().score(query, key))
        return less_distance(scores, ops.expand_dims(count, 0), weight=0.01)


class Centred(BahdanauAttention):  # reads the other queries
    def project_query(self, query):
        return super().project_query(query - ops.mean(query, axis=1, keepdims=True))


class WrongTable(BahdanauAttention):  # has a table of distances, which is zero at first
    def build(self, *shapes):
        super().build(*shapes)
        self.table = self.add_weight((T,), "zeros", name="table")

    def score(self, query, key):
        table = ops.convert_to_tensor(self.table)[: ops.shape(query)[1]]
        tilt = ops.arange(ops.shape(key)[1], dtype="float32") * ops.expand_dims(table, 1)
        return super().score(query, key) + ops.cast(tilt, query.dtype)


def test_a_score_of_the_position_is_that_of_a_loop():
    layer, value = Relative(U, dtype="float64"), tensors()[1]
    query, number = normal(3, B, T, DV), np.array([3, 1], "int32")
    found = layer(query, value, return_attention_scores=True)[1]
    plain = BahdanauAttention(U, dtype="float64")
    plain.build(query.shape, value.shape)
    plain.set_weights(layer.get_weights())
    scores = numpy(plain.score(plain.project_query(tensor(query)), plain.prepare(value).key))
    memory = layer.prepare(tensor(value))
    alone = layer.attend(tensor(query[:, 0]), memory, position=tensor(number)).weights
    for b, i in np.ndindex(B, T):
        rows = [(found[b, i], i, i)] + [(alone[b], 0, number[b])] * (i == 0)
        for weights, place, position in rows:
            row = [np.exp(scores[b, place, j] - 0.3 * abs(position - j)) for j in range(TK)]
            helpers.assert_close(weights, row / np.sum(row))


@every_way
@pytest.mark.parametrize("options", [{"query": "previous"}, {"input_feeding": True}])
@pytest.mark.each_value
def test_a_step_of_a_decoder_is_that_of_its_call(inside, options):
    sequences, memory = map(tensor, tensors("float32"))
    memory = [memory, memory[:, :3]] if inside == "sources" else memory
    layer = AttentionRNN(layers.GRUCell(H), INSIDE[inside](Relative(U)), **options)
    layer(sequences, memory)
    helpers.assert_steps_equal_the_call(randomize(layer), sequences, memory)


@every_way
@pytest.mark.parametrize("kind", [Wrong, WrongTable, Centred])
@pytest.mark.parametrize("query", ["previous", "current"])
@pytest.mark.each_value
def test_a_hook_that_counts_the_queries_is_refused(inside, kind, query):
    memory = [(B, TK, DV), (B, 3, DV)] if inside == "sources" else (B, TK, DV)
    layer = AttentionRNN(layers.GRUCell(H), INSIDE[inside](kind(U)), query=query)
    fragments = "give a query alone another result", "score(self, query, key, position)"
    helpers.assert_refused(lambda: layer.build((B, T, D), memory), *fragments)


def test_a_state_counts_in_place_of_a_position():
    with pytest.raises(TypeError, match="takes no `position`"):

        class Both(RecurrentScoringMixin):
            def score(self, query, key, state, position):
                raise AssertionError
