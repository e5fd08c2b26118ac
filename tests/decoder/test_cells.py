"""Cells that assign weights, add losses or are stacked, whose output is not their first state."""

import keras
import numpy as np
import pytest
from keras import layers

from keras_attention import AttentionRNN, BahdanauAttention, ResidualRNNCells
from tests import helpers, oracles
from tests.backends import on_tensorflow, tensor
from tests.decoder.cases import CURRENT, DV, FEEDING, PREVIOUS, D, H, T, tensors
from tests.helpers import DQ, B, assert_all_close, assert_refused, numpy

OPTIONS = {"previous": PREVIOUS, "current": CURRENT, "fed": FEEDING}
every_option = pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)


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


class Doubling(layers.GRUCell):  # A cell that changes its output around `call`
    def __call__(self, inputs, states, **options):
        output, states = super().__call__(inputs, states, **options)
        return 2 * output, states


def test_a_cell_may_compute_around_its_call():
    cell = Doubling(H, dtype="float64")
    layer = AttentionRNN(cell, BahdanauAttention(17, dtype="float64"), "current", dtype="float64")
    helpers.assert_steps_equal_the_call(layer, *tensors(), dtype="float64")


@on_tensorflow
@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("unroll", [False, True])
@every_option
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


def test_losses_that_a_cell_adds_count_in_training():
    """Only unrolled, as in `keras.layers.RNN`: a loss cannot leave the loop of a graph."""

    class Costly(layers.GRUCell):
        def call(self, inputs, states, training=False):
            output, states = super().call(inputs, states, training=training)
            self.add_loss(keras.ops.mean(keras.ops.square(output)))
            return output, states

    inputs = keras.Input((T, D)), keras.Input((helpers.TK, DV))
    layer = AttentionRNN(Costly(H), BahdanauAttention(17), output_mode="concat", unroll=True)
    model = keras.Model(inputs, layer(*inputs))
    model.compile(keras.optimizers.SGD(0.0), "mse", jit_compile=False)
    x = list(tensors("float32"))
    output = model.predict_on_batch(x)
    # Each step adds the mean of its squares; together that is T times the mean over all steps.
    expected = np.square(output).mean() + T * np.square(output[:, :, DV:]).mean()
    weights = [numpy(weight) for weight in model.trainable_weights]
    assert model.train_on_batch(x, np.zeros_like(output)) == pytest.approx(expected, rel=1e-5)
    assert model.test_on_batch(x, np.zeros_like(output)) == pytest.approx(expected, rel=1e-5)
    assert_all_close(model.trainable_weights, weights, "float32")


def lstm(units):
    return layers.LSTMCell(units, dtype="float64")


def gru(units):
    return layers.GRUCell(units, dtype="float64")


def stack():
    return layers.StackedRNNCells([lstm(DQ), gru(H)], dtype="float64")


class Residual(layers.GRUCell):
    """A cell that adds its input to its output, so that the output is not its first state."""

    def __init__(self, units):
        super().__init__(units, dtype="float64")

    def call(self, inputs, states, training=None):
        output, states = super().call(inputs, states)
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


CELLS = {
    "a query": lambda: Remembering(2),
    "a query on top": lambda: [lstm(DQ), Remembering(2)],
    "residual": lambda: ResidualRNNCells([lstm(H), gru(H)], dtype="float64"),
    "residual, of a stack": lambda: ResidualRNNCells([gru(H), stack()], dtype="float64"),
}


def loop_of(cell):
    if not isinstance(cell, layers.StackedRNNCells):
        kind = oracles.lstm if isinstance(cell, layers.LSTMCell) else oracles.gru
        step = kind(**{weight.name: numpy(weight) for weight in cell.trainable_weights})
        if not isinstance(cell, Remembering):
            return step

        def remember(x, states):
            output, states = step(x, states[:1])
            output = output + x[: len(output)]
            return output, [*states, output]

        return remember
    steps = [loop_of(x) for x in cell.cells]

    def run(x, states):
        new = []
        for step, state in zip(steps, states, strict=True):
            hidden, state = step(x, state)
            x = hidden + x if new and isinstance(cell, ResidualRNNCells) else hidden
            new.append(state)
        return x, new

    return run


def zeros_of(cell):
    if isinstance(cell, layers.StackedRNNCells):
        return [zeros_of(x) for x in cell.cells]
    return [np.zeros(n) for n in keras.tree.flatten([cell.state_size])]


def query_of(cell, states):
    if isinstance(cell, ResidualRNNCells):
        return sum(map(query_of, cell.cells, states))
    if isinstance(cell, layers.StackedRNNCells):
        return query_of(cell.cells[-1], states[-1])
    return states[isinstance(cell, Remembering)]


def decoder(cell, **options):
    attention = BahdanauAttention(17, dtype="float64")
    layer = AttentionRNN(cell, attention, dtype="float64", output_mode="concat", **options)
    layer.build((None, None, D), (None, None, DV))
    return helpers.randomize(layer)


@pytest.mark.parametrize("cell", CELLS)
@every_option
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.each_value
def test_cells_whose_output_is_not_their_first_state(cell, options, training):
    layer, inputs = decoder(CELLS[cell](), **options), tensors()
    row, cell = helpers.BAHDANAU["plain"].row(layer.attention), layer.cell
    outputs, weights, _ = oracles.attention_rnn(
        row,
        [loop_of(cell)],
        *inputs,
        [[zeros_of(cell)]] * B,
        [np.zeros(DV)] * B,
        ask=lambda states: query_of(cell, states),
        output_mode="concat",
        **options,
    )
    found = layer(*inputs, return_attention_scores=True, training=training)
    assert_all_close(found, [outputs, weights])
    helpers.assert_steps_equal_the_call(layer, *inputs, dtype="float64")


def test_residual_cells_in_a_layer_of_keras():
    cell = ResidualRNNCells((kind(H) for kind in (lstm, gru, lstm)), dtype="float64")
    layer, sequences = layers.RNN(cell, return_sequences=True, dtype="float64"), tensors()[0]
    found = numpy(layer(sequences))
    step, expected = loop_of(cell), []
    for b in range(B):
        states = zeros_of(cell)
        for x in sequences[b]:
            output, states = step(x, states)
            expected.append(output)
    helpers.assert_close(found, np.reshape(expected, (B, T, H)))


CELL, WANTED = layers.GRUCell(3), "`cells` must be a list of Keras RNN cells, such as ["
test_bad_cells = helpers.refusals(*(
    (lambda cells=cells: ResidualRNNCells(cells, name="stack"), "stack: ", *words)
    for cells, *words in (
        ([CELL] * 2, "`cells` must not hold one cell more than once; received [", "Make each: ["),
        (CELL, "at least two cells", "1 of [3]"),
        ([], WANTED, "received []"),
        ([CELL, layers.GRU(3)], WANTED, "keras.layers.GRUCell("),
        ([CELL, layers.LSTMCell(5)], "the same number of units", "received 2 of [3, 5] units"),
    )
))  # fmt: skip


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("cell", [lambda: Residual(2), lambda: [lstm(DQ), Residual(2)]])
def test_cells_that_hide_the_query_are_refused(cell, symbolic):
    inputs = tensors()
    if symbolic:
        inputs = [keras.Input(x.shape[1:], dtype="float64") for x in inputs]
    wanted = "`query(states)`", "must keep as its first state", 'query="current"'
    assert_refused(lambda: decoder(cell())(*inputs), *wanted)
    assert decoder(cell(), query="current")(*inputs) is not None


def test_a_cell_with_a_wrong_output_size():
    cell = Residual(3)
    cell.output_size = 5
    layer = AttentionRNN(cell, BahdanauAttention(17, dtype="float64"), query="current")
    assert_refused(lambda: layer(*tensors()), "`output_size = 3`")
