"""All attentions with a state against loops of their papers, and what they have in common."""

import itertools

import keras
import numpy as np
import pytest

from keras_attention import AttentionRNN, LocationSensitiveAttention
from tests import fast
from tests.helpers import (
    DV,
    RECURRENT,
    TK,
    TQ,
    B,
    assert_all_close,
    assert_close,
    assert_steps_equal_the_call,
    gradients,
    lengths_mask,
    normal,
    numpy,
    randomize,
)
from tests.layers.papers import run

FEW = "location", "forward, agent", "gmm V2b"  # weights, a pair, and centres as states
few_mechanisms = pytest.mark.parametrize("name", fast(RECURRENT, FEW))


@few_mechanisms
def test_a_memory_without_a_valid_step(name):
    layer, inputs = RECURRENT[name].built(), RECURRENT[name].tensors("float32")
    mask = np.array([[False] * TK, [True] * TK])
    call = lambda *x: run(layer, *x, value_mask=mask)  # noqa: E731
    (output, weights), found = gradients(layer, call, inputs)
    assert not numpy(output)[0].any()
    assert not numpy(weights)[0].any()
    assert all(np.isfinite(numpy(x)).all() for x in (output, *found))


def test_a_window_that_nothing_is_read_in():
    """It stays where it was: a place of which nothing is known would read everything."""
    layer = LocationSensitiveAttention(3, half_width=1, dtype="float64")
    query, value = normal(1, B, 3, 3), normal(2, B, 9, DV)
    mask = np.ones((B, 3, 9), bool)
    mask[:, 0, :5] = False  # the first step reads from 5 on
    mask[:, 1, 4:] = False  # the second may not read near
    _, weights = layer(query, value, attention_mask=mask, return_attention_scores=True)
    weights = numpy(weights)
    assert weights[:, 0].any(-1).all()
    assert not weights[:, 1].any()
    for b in range(B):
        place = weights[b, 0].argmax()
        assert abs(np.flatnonzero(weights[b, 2]) - place).max() == 1


@few_mechanisms
def test_a_window_never_loses_its_place(name):
    """Whatever its weights, each step reads at most D steps from where the step before read.

    In training there is no window.
    """
    for seed in range(3):
        layer, free = (RECURRENT[name].make(half_width=x, dtype="float64") for x in (2, None))
        inputs = normal([seed, 1], B, 12, 3), normal([seed, 2], B, 17, DV)
        for one in (layer, free):
            one.build(*(x.shape for x in inputs))
            randomize(one, seed, scale=2)
        weights = numpy(run(layer, *inputs)[1])
        if not layer.get_config().get("noise"):
            assert_close(layer(*inputs, training=True), numpy(free(*inputs)))
        # A chunk also reads what is before the memory step where it stops.
        more = 0 if layer.get_config().get("chunk_size") is None else layer.chunk_size - 1
        for row in weights:
            assert row.any(-1).all()
            assert not layer.moves_forward or np.flatnonzero(row[0]).max() <= 2
            for last, now in itertools.pairwise(row):
                read = np.flatnonzero(now)
                assert read.min() >= last.argmax() - 2 - more
                assert read.max() <= last.argmax() + 2


@pytest.mark.parametrize("name", RECURRENT)
def test_after_a_step_that_may_read_nothing_the_next_reads_on(name):
    layer, (query, *memory) = RECURRENT[name].built(dtype="float64"), RECURRENT[name].tensors()
    mask = np.ones((B, TQ, TK), bool)
    mask[:, 1] = False
    _, weights = run(layer, query, *memory, attention_mask=mask)
    _, expected = run(layer, query[:, ::2], *memory)
    assert not numpy(weights)[:, 1].any()
    assert_close(weights[:, ::2], numpy(expected))


@pytest.mark.parametrize("half_width", [None, 1])
@pytest.mark.parametrize("sizes", [(B, TQ, 0), (B, 0, TK), (0, TQ, TK)])
@pytest.mark.parametrize("name", RECURRENT)
@pytest.mark.each_value
def test_nothing_to_read_or_to_ask(name, sizes, half_width):
    layer, (samples, steps, length) = RECURRENT[name].make(half_width=half_width), sizes
    inputs = np.ones((samples, steps, 3)), np.ones((samples, length, DV))
    output, weights = layer(*inputs, return_attention_scores=True)
    assert not numpy(output).any()
    assert (output.shape, weights.shape) == ((samples, steps, DV), sizes)


@few_mechanisms
@pytest.mark.parametrize("half_width", [None, 2])
@pytest.mark.each_value
def test_in_a_decoder(name, half_width):
    """The loop equals the steps, also where a window adds a place to the state."""
    mechanism = RECURRENT[name]
    attention = mechanism.make(half_width=half_width)
    decoder = AttentionRNN(keras.layers.GRUCell(11), attention, return_state=True)
    sequences, memory = normal(1, B, 5, 3, dtype="float32"), normal(2, B, TK, DV, dtype="float32")
    mask = lengths_mask([5, 7], TK)
    _, *last = decoder(sequences, memory, memory_mask=mask)
    state = assert_steps_equal_the_call(decoder, sequences, memory, mask)
    assert_all_close([*state.cells, *keras.tree.flatten(state.attention)], last, "float32")
