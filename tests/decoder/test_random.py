"""Dropout of cells and attentions, and random numbers that hooks or a cell draw in a decoder."""

import keras
import numpy as np
import pytest
from keras import layers, ops

from keras_attention.attention import RecurrentScoringMixin, ScoringMixin
from keras_attention.decoder import AttentionRNN
from keras_attention.layers import BahdanauAttention, LuongAttention, MemoryHop
from tests import fast
from tests.backends import BACKEND, compiled, gradients_by, on_tensorflow, tensor
from tests.decoder.cases import CURRENT, DV, FEEDING, D, H, T, tensors
from tests.helpers import DQ, TK, AnyCell, assert_close, assert_drops, normal, numpy, randomize

CALLS = 4


def dropping_decoders():
    cell, rates = layers.GRUCell, {"dropout": 0.3, "recurrent_dropout": 0.3, "seed": 5}
    stack = [layers.LSTMCell(DQ, **rates), cell(H, **rates)]
    bahdanau, drops = BahdanauAttention(17), {"dropout": 0.3, "seed": 6}
    luong, hop = LuongAttention("general", units=23, **drops), MemoryHop(**drops)
    return {
        "cell": AttentionRNN(cell(H, **rates), bahdanau),
        "attention": AttentionRNN(cell(H), BahdanauAttention(17, **drops)),
        "stack, feeding": AttentionRNN(stack, luong, **FEEDING),
        "attention after the loop": AttentionRNN(cell(H), luong, **CURRENT),
        "cell before the attention": AttentionRNN(cell(H, **rates), bahdanau, **CURRENT),
        "hop, fed": AttentionRNN(cell(DV), hop, input_feeding=True, output_mode="concat"),
    }


@pytest.mark.parametrize("name", dropping_decoders())
def test_dropout_is_for_training(name):
    layer, inputs = dropping_decoders()[name], tensors("float32")
    quiet = numpy(layer(*inputs))
    first, second = (numpy(layer(*inputs, training=True)) for _ in range(2))
    assert not np.isclose(first, quiet).all()
    assert not np.isclose(first, second).all()
    assert np.array_equal(numpy(layer(*inputs)), quiet)


def test_dropout_in_the_loop_draws_once_for_each_memory_step_of_each_sample():
    """With unit vectors as memory, the context shows which weights were read, and their scale.

    Each unit vector stands in the memory twice; both halves drop the same steps.
    """
    attention = BahdanauAttention(17, dropout=0.4, seed=3)
    layer, batch = AttentionRNN(layers.GRUCell(H), attention, output_mode="attention"), 211
    inputs = normal(1, batch, T, D), np.tile(np.eye(TK), (batch, 1, 2))
    context, weights = layer(*inputs, training=True, return_attention_scores=True)
    assert_close(numpy(weights).sum(-1), np.ones((batch, T)), "float32")
    context, weights = numpy(context).reshape(batch, T, 2, TK), numpy(weights)
    dropped = assert_drops(context[:, 0, 0], weights[:, 0])
    for i, half in np.ndindex(T, 2):
        assert np.array_equal(assert_drops(context[:, i, half], weights[:, i]), dropped)
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
    larger = [np.concatenate([x, x]) for x in tensors("float32")]
    graph = tf.function(lambda *x: layer(*x, training=True))
    calls = [numpy(call(*larger)) for call in (graph.python_function, graph.python_function, graph)]
    halves = [half for found in calls for half in np.split(found, 2)]
    assert all(not np.isclose(x, y).all() for n, x in enumerate(halves) for y in halves[:n])


def test_a_loop_that_fails_leaves_no_dropout_behind(monkeypatch):
    layer = AttentionRNN(layers.GRUCell(H, dropout=0.5), BahdanauAttention(17))
    layer.build((None, None, D), (None, None, DV))
    with monkeypatch.context() as patch:
        patch.setattr(layer.attention, "score", lambda query, key: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            layer(np.ones((3, T, D)), np.ones((3, TK, DV)), training=True)
    # Dropout of three samples would not fit.
    assert np.isfinite(numpy(layer(*tensors("float32"), training=True))).all()


class Dropping(ScoringMixin):
    """e = (q W + 1) . drop(k), with a `Dropout` layer of its own."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.drop = layers.Dropout(0.5, seed=3)

    def build(self, query_shape, value_shape=None, key_shape=None):
        self.kernel = self.add_weight((query_shape[-1], value_shape[-1]), name="W")

    def dropped(self, key):
        return self.drop(key, training=True)

    def score(self, query, key):
        key = ops.transpose(self.dropped(key), (0, 2, 1))
        return ops.matmul(self.project(query, self.kernel) + 1, key)


class OwnGenerator(Dropping):
    """The same, with a generator by the name that layers of Keras give to theirs."""

    def __init__(self, **kwargs):
        ScoringMixin.__init__(self, **kwargs)
        self.seed_generator = keras.random.SeedGenerator(3)

    def dropped(self, key):
        return keras.random.dropout(key, 0.5, seed=self.seed_generator)


class DroppingWithState(RecurrentScoringMixin):
    """The same, with the sum of the weights as its state."""

    build, dropped = Dropping.build, Dropping.dropped

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.drop = layers.Dropout(0.5, seed=3)

    def initial_state(self, memory):
        return ops.zeros(ops.shape(memory.value)[:2])

    def score(self, query, key, state):
        return Dropping.score(self, query, key) - ops.expand_dims(state, 1)

    def next_state(self, state, weights):
        return state + weights


class DroppingCell(layers.GRUCell):  # A cell that holds a `Dropout` layer
    def __init__(self, units):
        super().__init__(units)
        self.drop = layers.Dropout(0.5, seed=5)

    def call(self, inputs, states, training=False):
        output, states = super().call(inputs, states)
        return self.drop(output, training=training), states

    def query(self, states):
        return states[0]


CASES = {
    "score": (Dropping, layers.GRUCell, "previous"),
    "own generator": (OwnGenerator, layers.GRUCell, "previous"),
    "score, any cell": (Dropping, AnyCell, "previous"),
    "score, after the loop": (Dropping, layers.GRUCell, "current"),
    "state": (DroppingWithState, layers.GRUCell, "previous"),
    "state, any cell": (DroppingWithState, AnyCell, "current"),
    "cell": (lambda: BahdanauAttention(17), DroppingCell, "previous"),
}
DRAWN = [name for name in CASES if name not in ("own generator", "cell")]
# JAX compiles the loop in eager code, too.
PLACES = ["eager", "XLA", "graph"] if BACKEND == "tensorflow" else ["eager"]


def built(attention, cell, query):
    layer = AttentionRNN(cell(H), attention(), query=query)
    layer.build((None, None, D), (None, None, DV))
    return randomize(layer)


def place_of(place, function):
    if place == "graph":
        import tensorflow as tf

        return tf.function(function, autograph=False)
    return compiled(function, place == "XLA")


@pytest.mark.parametrize("name", fast(CASES, ["score", "own generator", "state, any cell", "cell"]))
@pytest.mark.parametrize("place", fast(PLACES, ["eager"]))
@pytest.mark.each_value
def test_every_step_of_every_call_draws_other_numbers(name, place):
    layer, (steps, memory) = built(*CASES[name]), map(tensor, tensors("float32"))
    same = ops.zeros_like(steps)  # equal inputs, so that only the random numbers differ
    holder = layer.cell if name == "cell" else layer.attention
    generator = getattr(holder, "drop", holder).seed_generator

    def call(steps, memory):
        return layer(steps, memory, training=True, return_attention_scores=True)[::-1]

    call, before = place_of(place, call), numpy(generator.state)
    found = [call(same, memory) for _ in range(CALLS)]
    found = np.concatenate([numpy(x[name == "cell"]) for x in found], axis=1)
    assert len(np.unique(found[0].round(5), axis=0)) == CALLS * T
    assert (numpy(generator.state) - before).tolist() == [0, CALLS * T]


@pytest.mark.parametrize("name", fast(DRAWN, ["score", "state, any cell"]))
@pytest.mark.parametrize("place", fast(PLACES, ["eager"]))
@pytest.mark.each_value
def test_the_gradient_belongs_to_the_numbers_of_the_forward_pass(name, place):
    """The gradient by W is that of difference quotients, at the same random numbers."""
    layer = built(*CASES[name])
    inputs, kernel = tensors("float32"), layer.attention.kernel
    state = layer.attention.drop.seed_generator.state
    start, values = numpy(state), numpy(kernel)

    def loss(*inputs):
        outputs, weights = layer(*inputs, training=True, return_attention_scores=True)
        return ops.sum(ops.square(outputs)) + ops.sum(ops.square(weights)), ()

    # Random numbers depend on whether XLA compiles.
    number = place_of(place, lambda *inputs: ops.stop_gradient(loss(*inputs)[0]))

    def value(step):
        state.assign(start)
        kernel.assign(values + step)
        return float(numpy(number(*map(tensor, inputs))))

    direction = np.sign(np.random.default_rng(0).normal(size=values.shape))

    def quotient(size):
        return (value(size * direction) - value(-size * direction)) / (2 * size)

    # The error of a difference quotient is nearly a multiple of the square of the step.
    expected = (4 * quotient(2e-3) - quotient(4e-3)) / 3
    state.assign(start)
    kernel.assign(values)
    run = place_of(place, loss) if place == "graph" else loss
    _, found = gradients_by(run, inputs, layer.trainable_variables, place == "XLA")
    number = [x.path for x in layer.trainable_variables].index(kernel.path)
    found = np.sum(numpy(found[len(inputs) + number]) * direction)
    assert found == pytest.approx(expected, rel=2e-2, abs=2e-2)
