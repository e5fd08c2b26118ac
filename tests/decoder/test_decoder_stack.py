"""The stack of recurrent layers with an attention beside them, against a loop of its equations."""

import numpy as np
import pytest
from keras import layers

import keras_attention.decoder.decoder_stack as module
from keras_attention import BahdanauAttention, DecoderStack, LuongAttention
from keras_attention.backend import ExecutionContext
from tests import fast, helpers, oracles
from tests.backends import only_on
from tests.decoder import cases
from tests.decoder.cases import DV, HOLES, MASKS, SEQUENCES_MASK, D, H, T, oracle_parts, tensors
from tests.helpers import LUONG, MECHANISMS, B, assert_close, assert_refused, normal, numpy

KINDS = {"gru": layers.GRU, "lstm": layers.LSTM}
# The mechanism, and the kind and units of every layer.
CASES = {
    "four LSTMs": (helpers.BAHDANAU["plain"], (("lstm", 7), ("lstm", H), ("lstm", H), ("lstm", H))),
    "two kinds": (LUONG["general-local-m"], (("gru", 7), ("lstm", H), ("gru", H))),
    "two layers": (MECHANISMS["vector"], (("lstm", 7), ("gru", H))),
    "a state": (MECHANISMS["past weights"], (("gru", 7), ("gru", H), ("gru", H))),
}
every_case = pytest.mark.parametrize("name", CASES)


def rnn(units=3, kind=layers.GRU, **options):
    return kind(units, return_sequences=True, **options)


def make(name, dtype="float64"):
    mechanism, kinds = CASES[name]
    options = {"recurrent_initializer": "glorot_uniform", "dtype": dtype}
    rnns = [rnn(units, KINDS[kind], **options) for kind, units in kinds]
    return DecoderStack(rnns, mechanism.make(dtype=dtype))


def built(name, d=D, dv=DV):
    layer = make(name)
    layer.build((None, None, d), (None, None, dv))
    return helpers.randomize(layer)


def run_oracle(name, layer, sequences, memory, weights=None, initial=None, **masks):
    row, cells, states = oracle_parts(layer, *CASES[name], layer.rnns, weights, initial)
    return oracles.decoder_stack(row, cells, sequences, memory, states, **masks)


@every_case
def test_equals_the_loop_of_the_equations(name, monkeypatch):
    """So do its steps, and the layers of Keras, which run as they are on a GPU."""
    layer = built(name)
    for masks in ({}, MASKS):
        result = layer(*tensors(), **masks, return_attention_scores=True)
        helpers.assert_all_close(result, run_oracle(name, layer, *tensors(), **masks))
    assert_close(layer(*tensors(), **MASKS), numpy(result[0]))
    helpers.assert_steps_equal_the_call(layer, *tensors(), HOLES, "float64")
    monkeypatch.setattr(module, "_uses_keras_call", lambda *_: True)
    helpers.assert_all_close(layer(*tensors(), **MASKS, return_attention_scores=True), result)


def test_on_a_gpu_the_layers_may_use_cudnn(monkeypatch):
    """A layer without cuDNN, or that Keras knows no kernel for, keeps the loop of this package."""
    context = ExecutionContext("tensorflow", "gpu", graph=True)
    monkeypatch.setattr(module, "execution_context", lambda *_: context)
    rnns = layers.LSTM(3), layers.LSTM(3, use_cudnn=False), layers.RNN(layers.LSTMCell(3))
    for one, wanted in zip(rnns, (True, False, False), strict=True):
        one.build((2, 5, 7))
        assert module._uses_keras_call(one, None, True) is wanted


class Doubled(layers.GRU):
    def call(self, *args, **kwargs):
        return 2 * super().call(*args, **kwargs)


class Inside(layers.GRU):
    def inner_loop(self, *args, **kwargs):
        last, outputs, states = super().inner_loop(*args, **kwargs)
        return last, 2 * outputs, states


@pytest.mark.parametrize("kind", [Doubled, Inside])
def test_a_subclass_keeps_its_call(kind):
    first, last, plain = rnn(7), rnn(H, kind), rnn(H)
    layer, other = (DecoderStack([first, x], LuongAttention()) for x in (last, plain))
    twice = numpy(layer(*tensors("float32")))
    other(*tensors("float32"))
    other.set_weights(layer.get_weights())
    assert_close(2 * numpy(other(*tensors("float32"))), twice, "float32")


@pytest.mark.parametrize("jit", fast([False, True], [False], slow=0))
def test_masked_steps_may_hold_anything(jit):
    cases.assert_masked_steps_may_hold_anything(built("two kinds"), jit)


@pytest.mark.parametrize("training", [False, True])
def test_gradients_are_those_of_the_loop(training, monkeypatch):
    small = LUONG["general-global"], (("lstm", 2), ("gru", 3), ("lstm", 3))
    monkeypatch.setitem(CASES, "small", small)
    layer = built("small", d=2, dv=5)
    inputs = normal(1, B, 3, 2), normal(2, B, 5, 5)
    masks = {"sequences_mask": SEQUENCES_MASK[:, :3], "memory_mask": HOLES[:, :5]}

    def call(*inputs):
        return list(layer(*inputs, **masks, return_attention_scores=True, training=training))

    def oracle(inputs, weights):
        return list(run_oracle("small", layer, *inputs, weights=weights, **masks))

    helpers.assert_gradients(layer, call, inputs, oracle)


@pytest.mark.parametrize("nested", [False, True])
def test_initial_states(nested):
    layer = built("two kinds")
    sequences, memory = tensors()
    h, c = normal(4, B, H), normal(5, B, H)
    flat = [normal(3, B, 7), h, c, normal(6, B, H)]
    given = [flat[0], [h, c], [flat[3]]] if nested else flat
    expected, _ = run_oracle("two kinds", layer, sequences, memory, initial=flat)
    assert_close(layer(sequences, memory, initial_state=given), expected)
    state = layer.get_initial_state(layer.prepare(memory), given)
    assert_close(layer.step(sequences[:, 0], state, layer.prepare(memory))[0], expected[:, 0])


def test_stacked_cells_in_a_layer():
    stacked = layers.RNN([layers.LSTMCell(7), layers.GRUCell(H)], return_sequences=True)
    layer = DecoderStack([stacked, rnn(H, layers.LSTM)], LuongAttention())
    helpers.assert_steps_equal_the_call(layer, *tensors("float32"))


def test_dropout_of_the_layers_and_of_the_attention():
    rnns = [rnn(H, layers.LSTM, dropout=0.5, seed=n) for n in range(3)]
    layer = DecoderStack(rnns, BahdanauAttention(5, dropout=0.5, seed=3))
    inputs = tensors("float32")
    plain = numpy(layer(*inputs))
    assert_close(layer(*inputs), plain, "float32")
    dropped = [numpy(layer(*inputs, training=True)) for _ in range(2)]
    assert abs(dropped[0] - dropped[1]).max() > 1e-3 < abs(dropped[0] - plain).max()


def test_nothing_to_read():
    layer, (sequences, memory) = built("two layers"), tensors()
    for batch, steps in ((0, 1), (B, 0)):
        outputs, weights = layer(sequences[:batch, :steps], memory[:batch], None, None, None, True)
        assert numpy(outputs).shape == (batch, steps, H)
        assert numpy(weights).shape == (batch, steps, memory.shape[1])


@only_on("tensorflow", reason="only a TensorFlow graph has unknown lengths")
@pytest.mark.parametrize("training", fast([False, True], [False]))
def test_unknown_lengths(training):
    import tensorflow as tf

    layer = built("two kinds")
    specs = tf.TensorSpec((None, None, D), "float64"), tf.TensorSpec((None, None, DV), "float64")
    run = tf.function(lambda *x: layer(*x, training=training), input_signature=specs)
    for length in (2, T):
        sequences, memory = (x[:, :length] for x in tensors())
        assert_close(run(sequences, memory), numpy(layer(sequences, memory)))


ONE, TWO = rnn(), rnn()
BOTH, LIST = [ONE, TWO], "`rnns` must be a list of at least two recurrent layers of Keras with ret"
ATTENTION = BahdanauAttention(5)


def stack(rnns, attention=ATTENTION):
    return DecoderStack(rnns, attention, name="stack")


test_refusals = helpers.refusals(*((lambda x=x: stack(*x), "stack: ", *words) for x, *words in (
    *(([x], LIST) for x in (
        ONE, [ONE], [], [ONE, layers.GRU(3)], [ONE, layers.GRUCell(3)], [ONE, None],
        [ONE, layers.Bidirectional(rnn())])),
    ([[ONE, ONE]], "`rnns` must not hold one layer more than once"),
    *(([[ONE, rnn(**{x: True})]], "must hold stateless layers that run forwards", f"{x}=True")
      for x in ("go_backwards", "stateful")),
    ([[ONE, TWO, rnn(5)]], "the same number of units", "received [3, 5] units"),
    ([BOTH, TWO], "stack: `attention` must be one layer built on Scor"),
    ([BOTH, BahdanauAttention], "Make one: BahdanauAttention(...)"),
    ([BOTH, BahdanauAttention(5, dtype="float16")],
     "must compute in one dtype", "float16 for `attention`"),
)))  # fmt: skip


def test_refusals_of_calls():
    attention = BahdanauAttention(5)
    attention.build((2, 9), (2, 5, 11))
    message = "the layer was built for `query` of 9 features; received float32 of shape (2, 3)"
    assert_refused(lambda: stack(BOTH, attention)(np.ones((2, 3, 5)), np.ones((2, 7, 11))), message)
    layer = make("two layers")
    sequences, memory = tensors()
    assert_refused(lambda: layer.prepare(memory), "no weights yet")
    layer(sequences, memory)
    assert_refused(lambda: layer.step(sequences[:, 0], None, layer.prepare(memory)), "DecoderState")
    wanted = "must hold 3 cell states [(2, 7), (2, 7), (2, 11)]"
    assert_refused(lambda: layer(sequences, memory, initial_state=[normal(1, B, 7)]), wanted)


def test_the_dtype_is_that_of_the_layers():
    rnns = [rnn(dtype="float64") for _ in range(2)]
    assert stack(rnns, BahdanauAttention(5, dtype="float64")).compute_dtype == "float64"
