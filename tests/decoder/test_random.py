"""Random numbers that the hooks of an attention, or a cell, draw in the steps of a decoder."""

import keras
import numpy as np
import pytest
from keras import layers, ops

from keras_attention import AttentionRNN, BahdanauAttention, RecurrentScoringMixin, ScoringMixin
from tests import fast
from tests.backends import BACKEND, compiled, gradients_by, tensor
from tests.decoder.cases import DV, D, H, T, tensors
from tests.helpers import TK, AnyCell, B, numpy, randomize

CALLS = 4


class Dropping(ScoringMixin):
    """e = (q W + 1) . drop(k), with a `Dropout` layer of its own."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.drop = layers.Dropout(0.5, seed=3)

    def build(self, query_shape, value_shape=None, key_shape=None):
        self.kernel = self.add_weight((query_shape[-1], value_shape[-1]), name="W")

    def score(self, query, key):
        key = ops.transpose(self.drop(key, training=True), (0, 2, 1))
        return ops.matmul(self.project(query, self.kernel) + 1, key)


class OwnGenerator(Dropping):
    """The same, with a generator by the name that layers of Keras give to theirs."""

    def __init__(self, **kwargs):
        ScoringMixin.__init__(self, **kwargs)
        self.seed_generator = keras.random.SeedGenerator(3)

    @property
    def drop(self):
        return self

    def score(self, query, key):
        key = keras.random.dropout(key, 0.5, seed=self.seed_generator)
        key = ops.transpose(key, (0, 2, 1))
        return ops.matmul(self.project(query, self.kernel) + 1, key)


class DroppingWithState(RecurrentScoringMixin):
    """The same, with the sum of the weights as its state."""

    build = Dropping.build

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.drop = layers.Dropout(0.5, seed=3)

    def initial_state(self, memory):
        return ops.zeros(ops.shape(memory.value)[:2])

    def score(self, query, key, state):
        return Dropping.score(self, query, key) - ops.expand_dims(state, 1)

    def next_state(self, state, weights):
        return state + weights


class DroppingCell(layers.Layer):
    """A cell that holds a `Dropout` layer."""

    def __init__(self, units):
        super().__init__()
        self.cell, self.drop = layers.GRUCell(units), layers.Dropout(0.5, seed=5)
        self.state_size = units

    def build(self, shape):
        self.cell.build(shape)

    def call(self, inputs, states, training=False):
        output, states = self.cell(inputs, states)
        return self.drop(output, training=training), states

    def query(self, states):
        return states[0]


def built(attention, cell, query):
    layer = AttentionRNN(cell(H), attention(), query=query)
    layer.build((None, None, D), (None, None, DV))
    return randomize(layer)


CASES = {
    "score": (Dropping, layers.GRUCell, "previous"),
    "own generator": (OwnGenerator, layers.GRUCell, "previous"),
    "score, any cell": (Dropping, AnyCell, "previous"),
    "score, after the loop": (Dropping, layers.GRUCell, "current"),
    "state": (DroppingWithState, layers.GRUCell, "previous"),
    "state, any cell": (DroppingWithState, AnyCell, "current"),
}
# JAX compiles the loop in eager code, too.
PLACES = ["eager", "XLA", "graph"] if BACKEND == "tensorflow" else ["eager"]


def place_of(place, function):
    if place == "graph":
        import tensorflow as tf

        return tf.function(function, autograph=False)
    return compiled(function, place == "XLA")


@pytest.mark.parametrize("name", fast(CASES, ["score", "own generator", "state, any cell"]))
@pytest.mark.parametrize("place", fast(PLACES, ["eager"]))
@pytest.mark.each_value
def test_every_step_of_every_call_draws_other_numbers(name, place):
    layer = built(*CASES[name])
    steps, memory = (tensor(x) for x in tensors("float32"))
    same = ops.zeros_like(steps)  # equal inputs, so that only the random numbers differ

    def call(steps, memory):
        return layer(steps, memory, training=True, return_attention_scores=True)[1]

    call = place_of(place, call)
    weights = np.concatenate([numpy(call(same, memory)) for _ in range(CALLS)], axis=1)
    assert len(np.unique(weights[0].round(5), axis=0)) == CALLS * T


@pytest.mark.parametrize("name", fast(CASES, ["score", "state, any cell"]))
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
    jit = place == "XLA"
    run = loss
    if place == "graph":
        import tensorflow as tf

        run = tf.function(loss, autograph=False)
    _, found = gradients_by(run, inputs, layer.trainable_variables, jit)
    number = [x.path for x in layer.trainable_variables].index(kernel.path)
    found = np.sum(numpy(found[len(inputs) + number]) * direction)
    assert found == pytest.approx(expected, rel=2e-2, abs=2e-2)


@pytest.mark.parametrize("kind", fast(["cell", "score", "score with a state"], ["score"]))
@pytest.mark.parametrize("jit", fast([False, True], [False]) if BACKEND == "tensorflow" else [True])
@pytest.mark.each_value
def test_a_model_trains(kind, jit):
    """`fit` fails if a random generator leaves the loop."""
    steps, memory = keras.Input((None, D)), keras.Input((None, DV))
    attention = {"score": Dropping, "score with a state": DroppingWithState}.get(kind)
    cell = DroppingCell(H) if attention is None else AnyCell(H)
    attention = BahdanauAttention(17) if attention is None else attention()
    model = keras.Model([steps, memory], AttentionRNN(cell, attention)(steps, memory))
    model.compile("sgd", "mse", jit_compile=jit and BACKEND != "torch")
    x = [np.concatenate([x] * 3) for x in tensors("float32")]
    generator = (cell if kind == "cell" else attention).drop.seed_generator
    _, before = numpy(generator.state)
    model.fit(x, np.zeros((3 * B, T, H), "float32"), batch_size=2 * B, verbose=0)
    _, after = numpy(generator.state)
    assert after - before == 2 * T  # two batches


def test_a_sequence_of_queries_draws_for_each():
    layer = DroppingWithState()
    query, value = np.ones((B, T, D), "float32"), tensors("float32")[1]
    layer.build(query.shape, value.shape)
    randomize(layer)
    calls = [numpy(layer(query, value, return_attention_scores=True)[1]) for _ in range(CALLS)]
    weights = np.concatenate(calls, axis=1)
    assert weights.shape == (B, CALLS * T, TK)
    assert len(np.unique(weights[0].round(5), axis=0)) == CALLS * T
