"""Attention weights out of any model."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_attention as ka
from keras_attention.plotting import attention_weights
from tests.helpers import numpy
from tests.plotting.figures import translator


def test_weights_of_a_functional_model():
    model = translator()
    inputs = [np.array([[3, 4, 0]]), np.array([[5, 6]])]
    before = model(inputs)
    found = attention_weights(model, inputs)
    assert list(found) == ["attention"]
    layer, memory, query = (model.get_layer(name) for name in ("attention", "memory", "query"))
    _, expected = layer(query(inputs[1]), memory(inputs[0]), return_attention_scores=True)
    np.testing.assert_allclose(found["attention"], expected, rtol=1e-6)
    assert found["attention"][0, :, 2].tolist() == [0, 0]
    # The model is as it was.
    np.testing.assert_array_equal(model(inputs), before)
    assert "call" not in vars(layer)


def test_weights_of_other_layers():
    words, flow_in = keras.Input((4, 5, 3)), keras.Input((6, 3))
    inner = keras.Model(words, ka.HierarchicalAttention(7, name="hierarchy")(words), name="inner")
    decoder = ka.AttentionRNN(keras.layers.GRUCell(3), ka.BahdanauAttention(5), name="decoder")
    story, question = keras.Input((3, 4), dtype="int32"), keras.Input((4,), dtype="int32")
    outputs = [
        inner(words),
        ka.BiDAFAttentionFlow(name="flow")(flow_in, flow_in),
        decoder(flow_in, flow_in),
        ka.MemoryNetwork(9, 5, hops=2, name="network")(story, question),
    ]
    model = keras.Model([words, flow_in, story, question], outputs)
    sizes = (2, 4, 5, 3), (2, 6, 3), (2, 3, 4), (2, 4)
    found = attention_weights(model, [np.ones(size) for size in sizes])
    assert {name: [y.shape for y in x] if isinstance(x, list | tuple) else x.shape
            for name, x in found.items()} == {
        "hierarchy": [(2, 4, 5), (2, 4)],
        "flow": [(2, 6, 6), (2, 6)],
        "decoder": (2, 6, 6),
        "network": (2, 2, 3),
    }  # fmt: skip


class Block(keras.layers.Layer):  # A custom layer with attention in a list
    def __init__(self, **options):
        super().__init__(**options)
        self.parts = [keras.layers.Dense(4), keras.layers.Attention(name="inner")]

    def call(self, x):
        dense, attention = self.parts
        return attention([dense(x), x])


class Own(keras.Model):  # it also calls a method that it stores
    def __init__(self):
        super().__init__()
        self.block, self.pooling = Block(), ka.AttentionPooling(5, name="pooling")
        self.steps = {"read": [self._read]}

    def _read(self, x):
        return self.block(x)

    def call(self, x):
        return self.pooling(self.steps["read"][0](x))


def test_weights_of_custom_models_and_of_layers_that_are_shared_or_called_twice():
    found = attention_weights(Own(), np.ones((2, 3, 4)))
    assert {name: x.shape for name, x in found.items()} == {"inner": (2, 3, 3), "pooling": (2, 3)}
    sequential = keras.Sequential([Block(), ka.AttentionPooling(5, name="last")])
    assert set(attention_weights(sequential, np.ones((2, 3, 4)))) == {"inner", "last"}
    x = keras.Input((3, 4))
    shared, twice = ka.AttentionPooling(5, name="pooling"), keras.layers.Attention(name="twice")
    inner = keras.Model(x, shared(x), name="inner")
    other = keras.Model(x, ka.AttentionPooling(7, name="pooling")(x), name="other")
    model = keras.Model(x, [shared(x), inner(x), other(x), twice([twice([x, x]), x])])
    found = attention_weights(model, np.ones((2, 3, 4)))
    assert [weights.shape for weights in found["pooling"]] == [(2, 3)] * 2
    assert found["pooling_2"].shape == (2, 3)
    assert [weights.shape for weights in found["twice"]] == [(2, 3, 3)] * 2
    assert "call" not in vars(shared)


def test_a_model_whose_layers_cannot_be_read():
    x = keras.Input((3,))
    plain = keras.Model(x, keras.layers.Dense(2, name="dense")(x), name="plain")
    with pytest.raises(ValueError, match=r"plain: no layer .* layers: none"):
        attention_weights(plain, np.ones((1, 3)))

    class Compiled(Own):
        def __init__(self):
            super().__init__()
            self.run = tf.function(super().call)

        def call(self, x):
            return self.run(x)

    model = Compiled()
    with pytest.raises(ValueError, match=r"function that is compiled.* layers: inner, pooling"):
        attention_weights(model, np.ones((2, 3, 4), "float32"))
    model(np.ones((2, 3, 4), "float32"))
    assert "call" not in vars(model.pooling)


class Stopping(keras.layers.Layer):
    stopped = False

    def call(self, x):
        if self.stopped:
            raise KeyboardInterrupt
        return x


def test_a_model_that_fails_stays_as_it_was():
    inputs, stopping = keras.Input((3, 4)), Stopping()
    first = keras.layers.Attention(name="first")([inputs, inputs])
    model = keras.Model(inputs, ka.AttentionPooling(5, name="last")(stopping(first)))
    x = np.random.default_rng(0).normal(size=(2, 3, 4)).astype("float32")
    expected = numpy(model(x))
    stopping.stopped = True
    with pytest.raises(KeyboardInterrupt):
        attention_weights(model, x)
    stopping.stopped = False
    np.testing.assert_array_equal(numpy(model(x)), expected)
    assert not any("call" in vars(layer) for layer in model.layers)
    assert set(attention_weights(model, x)) == {"first", "last"}


def test_an_error_while_weights_are_read_is_not_hidden():
    class Wrong(keras.layers.Attention):
        def call(self, inputs, return_attention_scores=False):
            return (inputs[0], "no numbers") if return_attention_scores else inputs[0]

    x = keras.Input((3, 4))
    model = keras.Model(x, Wrong(name="wrong")([x, x]))
    with pytest.raises(ValueError, match="could not convert string to float"):
        attention_weights(model, np.ones((2, 3, 4)))
