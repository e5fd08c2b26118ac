"""Cells that assign weights, add losses or return another output than their first state."""

import keras
import numpy as np
import pytest
from keras import layers

from keras_attention import AttentionRNN, BahdanauAttention
from tests import fast, oracles
from tests.backends import on_tensorflow, tensor
from tests.decoder.cases import CURRENT, DV, FEEDING, PREVIOUS, D, Decoder, H, T, tensors
from tests.helpers import (
    BAHDANAU,
    DQ,
    TK,
    B,
    assert_all_close,
    assert_close,
    assert_refused,
    assert_steps_equal_the_call,
    numpy,
    randomize,
)


class Counting(layers.GRUCell):
    """A cell that counts its steps and multiplies its output by the count."""

    def build(self, input_shape):
        super().build(input_shape)
        self.steps = self.add_weight((), initializer="zeros", trainable=False, name="steps")

    def call(self, inputs, states, training=False):
        self.steps.assign_add(1.0)
        output, states = super().call(inputs, states, training=training)
        return self.steps * output, states

    def query(self, states):
        return states[0]


class Doubling(layers.GRUCell):
    """A cell that changes its output around `call`."""

    def __call__(self, inputs, states, **options):
        output, states = super().__call__(inputs, states, **options)
        return 2 * output, states


def test_a_cell_may_compute_around_its_call():
    cell = Doubling(H, dtype="float64")
    layer = AttentionRNN(cell, BahdanauAttention(17, dtype="float64"), "current", dtype="float64")
    assert_steps_equal_the_call(layer, *tensors(), dtype="float64")


@on_tensorflow
@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("unroll", [False, True])
@pytest.mark.parametrize(
    "options", [PREVIOUS, CURRENT, FEEDING], ids=["previous", "current", "fed"]
)
@pytest.mark.each_value
def test_assignments_of_a_cell_survive_the_loop_of_a_graph(options, unroll, jit):
    import tensorflow as tf

    inputs = [tensor(x, "float32") for x in tensors("float32")]
    layer = AttentionRNN(Counting(H), BahdanauAttention(17), unroll=unroll, **options)
    layer.build(inputs[0].shape, inputs[1].shape)

    def thrice(call):
        layer.cell.steps.assign(0.0)
        outputs = [numpy(call(*inputs)) for _ in range(3)]
        return np.stack(outputs), float(layer.cell.steps)

    expected, steps = thrice(layer)
    assert steps >= 3 * T
    found, again = thrice(tf.function(lambda *x: layer(*x), jit_compile=jit))
    assert again == steps
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("jit", fast([False, True], [False]))
@pytest.mark.parametrize(
    "options", fast([PREVIOUS, CURRENT], [PREVIOUS]), ids=["previous", "current"]
)
@pytest.mark.each_value
def test_losses_that_a_cell_adds_count_in_training(options, jit):
    """Only unrolled, as in `keras.layers.RNN`: a loss cannot leave the loop of a graph."""

    class Costly(layers.GRUCell):
        def call(self, inputs, states, training=False):
            output, states = super().call(inputs, states, training=training)
            self.add_loss(keras.ops.mean(keras.ops.square(output)))
            return output, states

    inputs = keras.Input((T, D)), keras.Input((TK, DV))
    layer = AttentionRNN(
        Costly(H), BahdanauAttention(17), output_mode="concat", unroll=True, **options
    )
    model = keras.Model(inputs, layer(*inputs))
    model.compile(keras.optimizers.SGD(0.0), "mse", jit_compile=jit)
    x = list(tensors("float32"))
    output = model.predict_on_batch(x)
    # Each step adds the mean of its squares; together that is T times the mean over all steps.
    expected = np.square(output).mean() + T * np.square(output[:, :, DV:]).mean()
    weights = [numpy(weight) for weight in model.trainable_weights]
    assert model.train_on_batch(x, np.zeros_like(output)) == pytest.approx(expected, rel=1e-5)
    assert model.test_on_batch(x, np.zeros_like(output)) == pytest.approx(expected, rel=1e-5)
    assert_all_close(model.trainable_weights, weights, "float32")


class Residual(keras.layers.Layer):
    """A cell that adds its input to its output, so that the output is not its first state."""

    def __init__(self, units):
        super().__init__(dtype="float64")
        self.cell = layers.GRUCell(units, dtype="float64")
        self.state_size, self.output_size = self.cell.state_size, units

    def build(self, shape):
        self.cell.build(shape)

    def call(self, inputs, states, training=None):
        output, states = self.cell(inputs, states)
        return output + inputs[:, : output.shape[-1]], states


class Remembering(Residual):
    """A residual cell that stores its output in a second state, where `query` finds it."""

    def __init__(self, units):
        super().__init__(units)
        self.state_size = [units, units]

    def call(self, inputs, states, training=None):
        output, inner = super().call(inputs, states[:1])
        return output, [*inner, output]

    def query(self, states):
        return states[1]


def stacked(kind):
    return [layers.LSTMCell(DQ, dtype="float64"), kind(2)]


def residual_oracle(decoder, layer, sequences, memory):
    """Outputs and weights of a decoder around a residual cell, or a stack that ends with one."""
    cells = layer.cell.cells if isinstance(layer.cell, layers.StackedRNNCells) else [layer.cell]
    row = decoder.mechanism.row(layer.attention)

    def weights(cell):
        return {w.name: numpy(w) for w in cell.trainable_weights}

    def add_input(step):
        def run(x, states):
            output, states = step(x, states[:1])
            output = output + x[: len(output)]
            return output, [*states, output]

        return run

    steps = [
        oracles.lstm(**weights(cell))
        if isinstance(cell, layers.LSTMCell)
        else add_input(oracles.gru(**weights(cell)))
        for cell in cells
    ]
    zeros = [np.zeros(layer.attention.output_size(2, DV))] * B
    first = [
        [[np.zeros(n) for n in keras.tree.flatten([cell.state_size])] for cell in cells]
        for _ in range(B)
    ]
    return oracles.attention_rnn(
        row, steps, sequences, memory, first, zeros, ask=lambda s: s[1], **decoder.options
    )


def residual_decoder(cell, **options):
    attention = BahdanauAttention(17, dtype="float64")
    layer = AttentionRNN(cell, attention, dtype="float64", **options)
    layer.build((None, None, D), (None, None, DV))
    return randomize(layer)


@pytest.mark.parametrize("cell", [lambda: Remembering(2), lambda: stacked(Remembering)])
@pytest.mark.parametrize("options", [PREVIOUS, CURRENT, FEEDING])
@pytest.mark.each_value
def test_cells_whose_output_is_not_their_first_state(cell, options):
    layer = residual_decoder(cell(), output_mode="concat", **options)
    decoder = Decoder(BAHDANAU["plain"], options={**options, "output_mode": "concat"})
    inputs = tensors()
    outputs, weights = layer(*inputs, return_attention_scores=True)
    expected = residual_oracle(decoder, layer, *inputs)
    assert_close(outputs, expected[0])
    assert_close(weights, expected[1])
    prepared = layer.prepare(inputs[1])
    states = layer.get_initial_state(prepared)
    for i in range(T):
        output, states, _ = layer.step(inputs[0][:, i], states, prepared)
        assert_close(output, expected[0][:, i])


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("cell", [lambda: Residual(2), lambda: stacked(Residual)])
def test_cells_that_hide_the_query_are_refused(cell, symbolic):
    inputs = tensors()
    if symbolic:
        inputs = [keras.Input(x.shape[1:], dtype="float64") for x in inputs]
    assert_refused(
        lambda: residual_decoder(cell())(*inputs),
        "`query(states)`",
        "must keep as its first state",
        'query="current"',
    )
    assert residual_decoder(cell(), query="current")(*inputs) is not None


def test_a_cell_with_a_wrong_output_size():
    cell = Residual(3)
    cell.output_size = 5
    layer = AttentionRNN(cell, BahdanauAttention(17, dtype="float64"), query="current")
    assert_refused(lambda: layer(*tensors()), "`output_size = 3`")
