"""All attentions with a state against loops of their papers, and what they have in common."""

import itertools

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention import AttentionRNN, LocationSensitiveAttention, beam_search
from tests import fast
from tests.backends import compiled, on_tensorflow, tensor
from tests.helpers import (
    DTYPES,
    DV,
    MASKS,
    RECURRENT,
    TK,
    TQ,
    B,
    assert_close,
    assert_equals_the_paper,
    assert_gradients,
    assert_refused,
    gradients,
    lengths_mask,
    normal,
    numpy,
)
from tests.oracles import attend

every_mechanism = pytest.mark.parametrize("name", RECURRENT)
FEW = "location", "forward, agent", "gmm V2b"  # weights, a pair, and centres as states
few_mechanisms = pytest.mark.parametrize("name", fast(RECURRENT, FEW))


@every_mechanism
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.each_value
def test_equals_the_paper(name, dtype, jit):
    # The density of a Gaussian magnifies the rounding errors of its centre, and may be above one.
    options = {"before": 1, "scaled": True} if name.startswith("gmm") else {}
    assert_equals_the_paper(RECURRENT[name], dtype, jit, **options)


@few_mechanisms
def test_gradients_are_those_of_the_paper(name):
    mechanism = RECURRENT[name]
    layer = mechanism.built(dtype="float64")

    def oracle(inputs, weights):
        return attend(mechanism.row(layer, weights), *inputs, **MASKS)

    def call(*inputs):
        return layer(*inputs, **MASKS, return_attention_scores=True)

    assert_gradients(layer, call, mechanism.tensors(), oracle)


@every_mechanism
def test_single_steps_equal_the_whole(name):
    mechanism = RECURRENT[name]
    layer = mechanism.built(dtype="float64")
    query, value, key = map(tensor, mechanism.tensors())
    mask = tensor(MASKS["value_mask"])
    expected = layer(query, value, key, value_mask=mask, return_attention_scores=True)
    memory, state = layer.prepare(value, key, mask), None
    for i in range(TQ):
        output, state, weights = layer.attend(query[:, i], memory, state)
        assert_close(output, numpy(expected[0][:, i]))
        assert_close(weights, numpy(expected[1][:, i]))


@few_mechanisms
def test_nan_in_padding_has_no_effect(name):
    mechanism = RECURRENT[name]
    layer = mechanism.built(dtype="float64")
    inputs = mechanism.tensors()
    spoiled = [np.array(x) for x in inputs]
    for x, mask in zip(spoiled, [MASKS["query_mask"], *[MASKS["value_mask"]] * 2], strict=True):
        x[~mask] = np.nan
    assert_close(layer(*map(tensor, spoiled), **MASKS), numpy(layer(*inputs, **MASKS)))


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


@pytest.mark.parametrize("half_width", [0, -1, 2.0, True])
def test_a_wrong_half_width(half_width):
    assert_refused(
        lambda: LocationSensitiveAttention(3, half_width=half_width),
        "`half_width`",
        "a positive integer",
        f"received {half_width!r}",
    )


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
    outputs, last, *kept, weights = decoder(
        sequences, memory, memory_mask=mask, return_attention_scores=True
    )
    prepared = decoder.prepare(ops.convert_to_tensor(memory), ops.convert_to_tensor(mask))
    state = decoder.get_initial_state(prepared)
    for i in range(5):
        output, state, read = decoder.step(ops.convert_to_tensor(sequences[:, i]), state, prepared)
        assert_close(output, numpy(outputs[:, i]), "float32")
        assert_close(read, numpy(weights[:, i]), "float32")
    found = [state.cells[0], *keras.tree.flatten(state.attention)]
    for x, y in zip(found, [last, *kept], strict=True):
        assert_close(x, numpy(y), "float32")


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
    """A call with the tokens of a hypothesis returns the same weights as the search."""
    vocabulary, start, end = 7, 2, 1
    double = {"dtype": "float64"}
    decoder = AttentionRNN(keras.layers.GRUCell(11, **double), RECURRENT[name].make(**double))
    embed = keras.layers.Embedding(vocabulary, 3, **double)
    head = keras.layers.Dense(vocabulary, **double)
    memory = normal(2, B, TK, DV)
    head(decoder(embed(np.zeros((B, 1))), memory))
    for layer in (embed, decoder, head):
        layer.set_weights([3 * x for x in layer.get_weights()])

    def step(tokens, state, memory):
        output, state, weights = decoder.step(embed(tokens), state, memory)
        return head(output), state, weights

    def search(memory):
        prepared = decoder.prepare(memory)
        tokens = {"start_token": start, "end_token": end, "max_length": 9}
        state = decoder.get_initial_state(prepared)
        return beam_search(step, state, prepared, beam_width=3, **tokens)

    found = compiled(search, jit)(tensor(memory))
    for k in range(3):
        words = np.concatenate([np.full((B, 1), start), numpy(found.tokens)[:, k, :-1]], 1)
        _, weights = decoder(embed(words), memory, return_attention_scores=True)
        for b, length in enumerate(numpy(found.lengths).astype(int)[:, k]):
            assert_close(numpy(found.weights)[b, k, :length], numpy(weights)[b, :length])
