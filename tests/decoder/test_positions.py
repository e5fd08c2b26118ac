"""Scores that depend on the number of the step, such as a relative distance."""

import keras
import numpy as np
import pytest
from keras import layers, ops

from keras_attention import (
    AttentionRNN,
    BahdanauAttention,
    LocationSensitiveAttention,
    LuongAttention,
    MultiHead,
    MultiSource,
)
from tests.backends import tensor
from tests.helpers import (
    assert_close,
    assert_refused,
    assert_steps_equal_the_call,
    gradients,
    normal,
    numpy,
    randomize,
)

B, T, TK, D, DV, H, U = 2, 5, 7, 3, 6, 4, 5
INSIDE = {
    "alone": lambda attention: attention,
    "heads": lambda attention: MultiHead(attention, 2),
    "sources": lambda attention: MultiSource([attention, LuongAttention("general")]),
}
every_way = pytest.mark.parametrize("inside", INSIDE)


def less_distance(scores, position, weight=0.3):
    distance = ops.expand_dims(position, -1) - ops.arange(ops.shape(scores)[-1], dtype="int32")
    return scores - weight * ops.cast(ops.abs(distance), scores.dtype)


class Relative(BahdanauAttention):
    def score(self, query, key, position):
        return less_distance(super().score(query, key), position)


class Wrong(BahdanauAttention):
    """Counts the queries of a call, which a decoder passes one by one, and matters little."""

    def build(self, query_shape, value_shape=None, key_shape=None):
        super().build(query_shape, value_shape, key_shape)
        self.drop = layers.Dropout(0.1, seed=1)  # draws nothing at inference

    def score(self, query, key):
        count = ops.arange(ops.shape(query)[1], dtype="int32")
        scores = self.drop(super().score(query, key))
        return less_distance(scores, ops.expand_dims(count, 0), weight=0.01)


class Centred(BahdanauAttention):
    """Reads the other queries."""

    def project_query(self, query):
        return super().project_query(query - ops.mean(query, axis=1, keepdims=True))


class WrongTable(BahdanauAttention):
    """Has a table of distances, which is zero at first."""

    def build(self, query_shape, value_shape=None, key_shape=None):
        super().build(query_shape, value_shape, key_shape)
        self.table = self.add_weight((T,), "zeros", name="table")

    def score(self, query, key):
        table = ops.convert_to_tensor(self.table)[: ops.shape(query)[1]]
        tilt = ops.arange(ops.shape(key)[1], dtype="float32") * ops.expand_dims(table, 1)
        return super().score(query, key) + ops.cast(tilt, query.dtype)


def inputs(inside="alone"):
    memory = normal(2, B, TK, DV, dtype="float32")
    sequences = normal(1, B, T, D, dtype="float32")
    return sequences, [memory, memory[:, :3]] if inside == "sources" else memory


def test_a_score_of_the_position_is_that_of_a_loop():
    layer, (_, value) = Relative(U), inputs()
    query = normal(3, B, T, DV, dtype="float32")
    found = layer(tensor(query), tensor(value), return_attention_scores=True)[1]
    plain = BahdanauAttention(U)
    plain.build(query.shape, value.shape)
    plain.set_weights(layer.get_weights())
    scores = numpy(
        plain.score(plain.project_query(tensor(query)), plain.prepare(tensor(value)).key)
    )
    for b in range(B):
        for i in range(T):
            row = [scores[b, i, j] - 0.3 * abs(i - j) for j in range(TK)]
            assert_close(found[b, i], np.exp(row) / np.exp(row).sum(), "float32")
    memory, number = layer.prepare(tensor(value)), np.array([3, 1], "int32")
    alone = layer.attend(tensor(query[:, 0]), memory, position=tensor(number)).weights
    for b in range(B):
        row = [scores[b, 0, j] - 0.3 * abs(number[b] - j) for j in range(TK)]
        assert_close(alone[b], np.exp(row) / np.exp(row).sum(), "float32")


@every_way
@pytest.mark.parametrize("options", [{"query": "previous"}, {"input_feeding": True}])
@pytest.mark.each_value
def test_a_step_of_a_decoder_is_that_of_its_call(inside, options):
    sequences, memory = inputs(inside)
    decoder = AttentionRNN(layers.GRUCell(H), INSIDE[inside](Relative(U)), **options)
    memory = keras.tree.map_structure(tensor, memory)
    decoder(tensor(sequences), memory)
    randomize(decoder)
    assert_steps_equal_the_call(decoder, sequences, memory)


def test_gradients_of_a_loop_are_those_of_unrolled_steps():
    found = []
    for unroll in (False, True):
        decoder = AttentionRNN(layers.GRUCell(H), Relative(U), unroll=unroll)
        decoder.build((B, T, D), (B, TK, DV))
        randomize(decoder)

        def run(sequences, memory, decoder=decoder):
            return [decoder(sequences, memory, training=True)]

        _, of_one = gradients(decoder, run, inputs())
        found.append([numpy(x) for x in of_one])
    for x, y in zip(*found, strict=True):
        np.testing.assert_allclose(x, y, atol=1e-5)


@every_way
@pytest.mark.parametrize("kind", [Wrong, WrongTable, Centred])
@pytest.mark.parametrize("query", ["previous", "current"])
@pytest.mark.each_value
def test_a_hook_that_counts_the_queries_is_refused(inside, kind, query):
    shapes = [
        (B, T, D),
        [(B, TK, DV), (B, 3, DV)] if inside == "sources" else (B, TK, DV),
    ]
    decoder = AttentionRNN(layers.GRUCell(H), INSIDE[inside](kind(U)), query=query)
    fragments = "give a query alone another result", "score(self, query, key, position)"
    assert_refused(lambda: decoder.build(*shapes), *fragments)


class Noisy(BahdanauAttention):
    """Draws random numbers at inference, so no two calls are equal."""

    def build(self, query_shape, value_shape=None, key_shape=None):
        super().build(query_shape, value_shape, key_shape)
        self.generator = keras.random.SeedGenerator(1)

    def score(self, query, key):
        scores = super().score(query, key)
        return scores + keras.random.normal(ops.shape(scores), seed=self.generator)


def test_a_hook_with_random_numbers_is_not_compared():
    AttentionRNN(layers.GRUCell(H), Noisy(U)).build((B, T, D), (B, TK, DV))


def test_a_state_counts_in_place_of_a_position():
    with pytest.raises(TypeError, match="takes no `position`"):

        class Both(LocationSensitiveAttention):
            def score(self, query, key, state, position):
                raise AssertionError
