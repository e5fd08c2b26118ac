"""All attentions with a state against loops of their papers, and what they have in common."""

import itertools

import keras
import numpy as np
import pytest

from keras_attention import AttentionRNN, LocationSensitiveAttention
from tests import fast
from tests.backends import on_tensorflow
from tests.decoder.cases import assert_beams_carry_states
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
)

FEW = "location", "forward, agent", "gmm V2b"  # weights, a pair, and centres as states
few_mechanisms = pytest.mark.parametrize("name", fast(RECURRENT, FEW))


@few_mechanisms
def test_a_memory_without_a_valid_step(name):
    mechanism = RECURRENT[name]
    layer = mechanism.built()
    inputs = mechanism.tensors("float32")
    mask = np.array([[False] * TK, [True] * TK])

    def call(*inputs):
        return layer(*inputs, value_mask=mask, return_attention_scores=True)

    (output, weights), found = gradients(layer, call, inputs)
    assert not numpy(output)[0].any()
    assert not numpy(weights)[0].any()
    assert all(np.isfinite(numpy(x)).all() for x in (output, *found))


def test_a_window_at_inference():
    """Step i reads at most D steps from what step i - 1 read most; the first reads everything."""
    options = {"units": 17, "filters": 3, "kernel_size": 5, "dtype": "float64"}
    layer = LocationSensitiveAttention(half_width=1, **options)
    free = LocationSensitiveAttention(**options)
    query, value = normal(1, B, 5, 3), normal(2, B, 9, DV)
    for x in (layer, free):
        x.build(query.shape, value.shape)
        for n, weight in enumerate(x.weights):
            weight.assign(normal(n, *weight.shape))
    _, weights = layer(query, value, return_attention_scores=True)
    weights = numpy(weights)
    for b in range(B):
        for i in range(1, 5):
            place = weights[b, i - 1].argmax()
            read = np.flatnonzero(weights[b, i])
            assert read.min() >= place - 1
            assert read.max() <= place + 1
    assert (weights[:, 0] > 0).all()
    assert_close(layer(query, value, training=True), numpy(free(query, value)))
    assert np.abs(numpy(layer(query, value)) - numpy(free(query, value))).max() > 1e-3


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
    """Whatever its weights, each step reads at most D steps from where the step before read."""
    mechanism = RECURRENT[name]
    for seed in range(3):
        layer = mechanism.make(half_width=2, dtype="float64")
        query, value = normal([seed, 1], B, 12, 3), normal([seed, 2], B, 17, DV)
        layer.build(query.shape, value.shape)
        for n, weight in enumerate(layer.weights):
            weight.assign(2 * normal([seed, n], *weight.shape))
        _, weights = layer(query, value, return_attention_scores=True)
        weights = numpy(weights)
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
    mechanism = RECURRENT[name]
    layer = mechanism.built(dtype="float64")
    mask = np.ones((B, TQ, TK), bool)
    mask[:, 1] = False
    inputs = mechanism.tensors()
    _, weights = layer(*inputs, attention_mask=mask, return_attention_scores=True)
    without = [inputs[0][:, ::2], *inputs[1:]]
    _, expected = layer(*without, return_attention_scores=True)
    assert not numpy(weights)[:, 1].any()
    assert_close(weights[:, ::2], numpy(expected))


@pytest.mark.parametrize("half_width", [None, 1])
@pytest.mark.parametrize("name", RECURRENT)
def test_an_empty_memory(name, half_width):
    layer = RECURRENT[name].make(half_width=half_width)
    output, weights = layer(np.ones((B, TQ, 3)), np.ones((B, 0, DV)), return_attention_scores=True)
    assert not numpy(output).any()
    assert weights.shape == (B, TQ, 0)


@pytest.mark.parametrize("name", FEW)
def test_a_window_of_an_empty_batch(name):
    layer = RECURRENT[name].make(half_width=2)
    assert layer(np.ones((0, TQ, 3)), np.ones((0, TK, DV))).shape == (0, TQ, DV)


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


@on_tensorflow
@pytest.mark.parametrize(
    ("name", "jit"),
    [
        ("location", False),
        *(pytest.param(x, False, marks=pytest.mark.slow) for x in FEW[1:]),
        *(pytest.param(x, False, marks=pytest.mark.exhaustive) for x in RECURRENT if x not in FEW),
        *(pytest.param(x, True, marks=pytest.mark.exhaustive) for x in FEW),
    ],
)
def test_each_beam_carries_its_own_state(name, jit):
    attention = RECURRENT[name].make(dtype="float64")
    options = {"width": 3, "length": 9, "jit": jit, "spread": 1}
    assert_beams_carry_states(attention, normal(2, B, TK, DV), **options)
