"""Attention weights out of any model."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_attention import (
    AttentionPooling,
    AttentionRNN,
    BahdanauAttention,
    BiDAFAttentionFlow,
    HierarchicalAttention,
    MemoryNetwork,
)
from keras_attention.plotting import attention_weights
from tests.plotting.figures import translator


def test_weights_of_a_functional_model():
    model = translator()
    inputs = [np.array([[3, 4, 0]]), np.array([[5, 6]])]
    before = model(inputs)
    found = attention_weights(model, inputs)
    assert list(found) == ["attention"]
    layer = model.get_layer("attention")
    memory = model.get_layer("memory")(inputs[0])
    query = model.get_layer("query")(inputs[1])
    _, expected = layer(query, memory, return_attention_scores=True)
    np.testing.assert_allclose(found["attention"], expected, rtol=1e-6)
    assert found["attention"][0, :, 2].tolist() == [0, 0]
    # The model is as it was.
    np.testing.assert_array_equal(model(inputs), before)
    assert "call" not in vars(layer)


def test_weights_of_other_layers():
    words = keras.Input((4, 5, 3))
    pooled = HierarchicalAttention(7, name="hierarchy")(words)
    inner = keras.Model(words, pooled, name="inner")
    flow_in = keras.Input((6, 3))
    flow = BiDAFAttentionFlow(name="flow")(flow_in, flow_in)
    decoded = AttentionRNN(keras.layers.GRUCell(3), BahdanauAttention(5), name="decoder")(
        flow_in, flow_in
    )
    model = keras.Model([words, flow_in], [inner(words), flow, decoded])
    found = attention_weights(model, [np.ones((2, 4, 5, 3)), np.ones((2, 6, 3))])
    shapes = keras.tree.map_structure(lambda x: x.shape, found)
    assert [x.shape for x in found["hierarchy"]] == [(2, 4, 5), (2, 4)]
    assert [x.shape for x in found["flow"]] == [(2, 6, 6), (2, 6)]
    assert found["decoder"].shape == (2, 6, 6), shapes


def test_weights_of_a_memory_network_and_of_a_layer_called_twice():
    story, question = keras.Input((3, 4), dtype="int32"), keras.Input((4,), dtype="int32")
    network = MemoryNetwork(9, 5, hops=2, name="network")
    model = keras.Model([story, question], network(story, question))
    ids = np.ones((2, 3, 4), "int32")
    assert attention_weights(model, [ids, ids[:, 0]])["network"].shape == (2, 2, 3)
    x = keras.Input((3, 4))
    attention = keras.layers.Attention(name="twice")
    model = keras.Model(x, attention([attention([x, x]), x]))
    found = attention_weights(model, np.ones((2, 3, 4)))
    assert [weights.shape for weights in found["twice"]] == [(2, 3, 3)] * 2


class Block(keras.layers.Layer):
    """A custom layer with attention in a list."""

    def __init__(self, **options):
        super().__init__(**options)
        self.parts = [keras.layers.Dense(4), keras.layers.Attention(name="inner")]

    def call(self, x):
        dense, attention = self.parts
        return attention([dense(x), x])


class Own(keras.Model):
    def __init__(self):
        super().__init__()
        self.block, self.pooling = Block(), AttentionPooling(5, name="pooling")

    def call(self, x):
        return self.pooling(self.block(x))


def test_weights_of_custom_models():
    found = attention_weights(Own(), np.ones((2, 3, 4)))
    assert {name: x.shape for name, x in found.items()} == {"inner": (2, 3, 3), "pooling": (2, 3)}
    sequential = keras.Sequential([Block(), AttentionPooling(5, name="last")])
    assert set(attention_weights(sequential, np.ones((2, 3, 4)))) == {"inner", "last"}


def test_a_layer_of_two_models_and_two_of_one_name():
    x = keras.Input((3, 4))
    shared = AttentionPooling(5, name="pooling")
    inner = keras.Model(x, shared(x), name="inner")
    other = keras.Model(x, AttentionPooling(7, name="pooling")(x), name="other")
    model = keras.Model(x, [shared(x), inner(x), other(x)])
    found = attention_weights(model, np.ones((2, 3, 4)))
    assert [weights.shape for weights in found["pooling"]] == [(2, 3)] * 2
    assert found["pooling_2"].shape == (2, 3)
    assert "call" not in vars(shared)


def test_a_model_that_is_compiled_by_itself():
    class Compiled(Own):
        def __init__(self):
            super().__init__()
            self.run = tf.function(super().call)

        def call(self, x):
            return self.run(x)

    model = Compiled()
    with pytest.raises(
        ValueError, match=r"\(inner, pooling\) gave numbers.*not in a function that is compiled"
    ):
        attention_weights(model, np.ones((2, 3, 4), "float32"))
    model(np.ones((2, 3, 4), "float32"))
    assert "call" not in vars(model.pooling)


def test_a_model_without_attention():
    x = keras.Input((3,))
    model = keras.Model(x, keras.layers.Dense(2, name="dense")(x), name="plain")
    with pytest.raises(ValueError, match=r"plain: no layer .* layers: .*dense"):
        attention_weights(model, np.ones((1, 3)))
