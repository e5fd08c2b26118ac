"""Residual stacks against loops over their cells."""

import numpy as np
import pytest
from keras import layers

from keras_attention import AttentionRNN, BahdanauAttention, LuongAttention, ResidualRNNCells
from tests import oracles
from tests.decoder.cases import MASKS, H, T, tensors
from tests.helpers import (
    assert_close,
    assert_refused,
    assert_steps_equal_the_call,
    numpy,
    randomize,
)

KINDS = {"lstm": (layers.LSTMCell, oracles.lstm), "gru": (layers.GRUCell, oracles.gru)}


def make(*kinds):
    return ResidualRNNCells([KINDS[kind][0](H, dtype="float64") for kind in kinds], dtype="float64")


def steps_of(stack, kinds):
    return [
        KINDS[kind][1](**{weight.name: numpy(weight) for weight in cell.trainable_weights})
        for kind, cell in zip(kinds, stack.cells, strict=True)
    ]


def run(steps, sequence, kinds):
    """The outputs of a stack for one sequence."""
    states = [[np.zeros(H)] * (2 if kind == "lstm" else 1) for kind in kinds]
    outputs = []
    for x in sequence:
        total = None
        for n, step in enumerate(steps):
            hidden, states[n] = step(x if total is None else total, states[n])
            total = hidden if total is None else total + hidden
        outputs.append(total)
    return np.array(outputs)


@pytest.mark.parametrize("kinds", [("gru", "gru"), ("lstm", "gru", "lstm")])
def test_in_a_layer_of_keras(kinds):
    stack = make(*kinds)
    layer = layers.RNN(stack, return_sequences=True, dtype="float64")
    sequences, _ = tensors()
    layer.build(sequences.shape)
    randomize(layer)
    steps = steps_of(stack, kinds)
    expected = [run(steps, sequence, kinds) for sequence in sequences]
    assert_close(layer(sequences), np.array(expected))


def test_without_attention_in_a_decoder():
    """The output of the cells, which do not depend on an attention that runs after the loop."""
    kinds = ("lstm", "gru")
    stack = make(*kinds)
    layer = AttentionRNN(stack, LuongAttention(dtype="float64"), output_mode="cell")
    inputs = tensors()
    layer.build(inputs[0].shape, inputs[1].shape)
    randomize(layer)
    expected = [run(steps_of(stack, kinds), sequence, kinds) for sequence in inputs[0]]
    assert_close(layer(*inputs), np.array(expected))


@pytest.mark.parametrize("training", [False, True])
def test_the_query_is_the_output_of_the_step_before(training):
    stack = make("lstm", "gru")
    layer = AttentionRNN(stack, BahdanauAttention(7, dtype="float64"))
    sequences, memory = tensors()
    outputs, weights = layer(sequences, memory, return_attention_scores=True, training=training)
    prepared = layer.prepare(memory)
    for i in range(1, T):
        query = numpy(outputs)[:, i - 1]
        assert_close(weights[:, i], numpy(layer.attention.attend(query, prepared).weights))


def test_the_query_of_a_stack_in_a_stack():
    inner = layers.StackedRNNCells([layers.LSTMCell(H), layers.GRUCell(H)])
    stack = ResidualRNNCells([layers.GRUCell(H), inner])
    layer, inputs = AttentionRNN(stack, BahdanauAttention(5)), tensors("float32")
    state = assert_steps_equal_the_call(layer, *inputs)
    assert_close(stack.query(state.cells), numpy(layer(*inputs))[:, -1], "float32")


def test_a_step_is_a_step_of_the_loop():
    layer = AttentionRNN(make("lstm", "gru"), BahdanauAttention(7, dtype="float64"))
    assert_steps_equal_the_call(layer, *tensors(), MASKS["memory_mask"], "float64")


def test_cells_of_a_generator():
    assert len(ResidualRNNCells(layers.GRUCell(3) for _ in range(3)).cells) == 3


CELL, WANTED = layers.GRUCell(3), "`cells` must be a list of Keras RNN cells, such as ["
BAD_CELLS = [
    ([CELL] * 2, "`cells` must not hold one cell more than once; received [", "Make each: ["),
    (CELL, "at least two cells", "1 of [3]"),
    ([CELL], "at least two cells", "1 of [3]"),
    ([], WANTED, "received []"),
    ([CELL, layers.GRU(3)], WANTED, "keras.layers.GRUCell("),
    ([CELL, layers.LSTMCell(5)], "the same number of units", "received 2 of [3, 5] units"),
]


@pytest.mark.parametrize("refusal", BAD_CELLS, ids=lambda x: x[1])
def test_bad_cells(refusal):
    cells, *fragments = refusal
    assert_refused(lambda: ResidualRNNCells(cells, name="stack"), "stack: ", *fragments)
