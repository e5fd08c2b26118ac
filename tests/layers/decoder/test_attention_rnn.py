import itertools
import os
import subprocess
import sys
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

from keras_attention import AttentionRNN, BahdanauAttention, LuongAttention, MemoryHop
from tests import oracles
from tests.helpers import (
    BAHDANAU,
    DQ,
    LUONG,
    MECHANISMS,
    TK,
    TOLERANCES,
    B,
    Mechanism,
    arguments,
    assert_close,
    assert_gradients,
    assert_refused,
    gradients,
    lengths_mask,
    normal,
    numpy,
    randomize,
    weight_arrays,
)

ROOT = Path(__file__).parents[1]

T, D, DV, H = 5, 3, 13, 11
CELLS = {"gru": (layers.GRUCell, oracles.gru), "lstm": (layers.LSTMCell, oracles.lstm)}
# TensorFlow has no orthogonal initializer in bfloat16.
INITIALIZER = {"recurrent_initializer": "glorot_uniform"}


@dataclass(frozen=True)
class Decoder:
    """A configuration of an AttentionRNN, and the oracle of the same equations."""

    mechanism: Mechanism
    cells: tuple = (("gru", H),)
    options: dict = field(default_factory=dict)

    def make(self, dtype="float64", **kwargs):
        cells = [CELLS[kind][0](units, dtype=dtype, **INITIALIZER) for kind, units in self.cells]
        cell = cells if len(cells) > 1 else cells[0]
        attention = self.mechanism.make(dtype=dtype)
        return AttentionRNN(cell, attention, dtype=dtype, **self.options, **kwargs)

    def built(self, d=D, dv=DV, dtype="float64", **kwargs):
        layer = self.make(dtype, **kwargs)
        layer.build((None, T if layer.unroll else None, d), (None, None, dv))
        return randomize(layer)

    def run_oracle(self, layer, sequences, memory, weights=None, initial=None, fed=None, **masks):
        """Outputs, weights and the flat list of last states; `initial` is such a list."""
        arrays = weights or weight_arrays(layer)
        arrays = {id(w): a for w, a in zip(layer.trainable_weights, arrays, strict=True)}
        cells = layer.cell.cells if len(self.cells) > 1 else [layer.cell]
        steps = [
            CELLS[kind][1](**{w.name: arrays[id(w)] for w in cell.trainable_weights})
            for (kind, _), cell in zip(self.cells, cells, strict=True)
        ]
        attention = layer.attention
        row = self.mechanism.row(attention, [arrays[id(w)] for w in attention.trainable_weights])
        counts = [1 if kind == "gru" else 2 for kind, _ in self.cells]
        ends = [0, *itertools.accumulate(counts)]
        batch = len(memory)
        if initial is None:
            sizes = np.repeat([size for _, size in self.cells], counts)
            initial = [np.zeros((batch, size)) for size in sizes]
        if fed is None:
            fed = np.zeros((batch, attention.output_size(None, memory.shape[-1])))
        options = {"query": "previous", **self.options}
        options.setdefault("output_mode", "cell" if options["query"] == "previous" else "attention")
        states = [
            [[x[b] for x in initial[i:j]] for i, j in itertools.pairwise(ends)]
            for b in range(batch)
        ]
        outputs, weights, last = oracles.attention_rnn(
            row, steps, sequences, memory, states, fed, **options, **masks
        )
        flat = [[*keras.tree.flatten(s), *[fed] * layer.input_feeding] for s, fed in last]
        return outputs, weights, [np.array(x) for x in zip(*flat, strict=True)]


PREVIOUS, CURRENT = {"query": "previous"}, {"query": "current"}
FEEDING = {**CURRENT, "input_feeding": True}
STACK = (("lstm", DQ), ("gru", H))
VECTOR = MECHANISMS["vector"]
CASES = {
    "bahdanau": Decoder(BAHDANAU["plain"]),
    "bahdanau-lstm-concat": Decoder(BAHDANAU["sparse"], (("lstm", H),), {"output_mode": "concat"}),
    "bahdanau-stack": Decoder(BAHDANAU["normalized"], STACK, {"output_mode": "attention"}),
    "previous-local-m": Decoder(LUONG["general-local-m"], (("lstm", H),), PREVIOUS),
    "current": Decoder(LUONG["general-global"], (("gru", H),), CURRENT),
    "current-stack-concat": Decoder(VECTOR, STACK, {**CURRENT, "output_mode": "concat"}),
    "current-dot-local-m": Decoder(LUONG["dot-local-m"], (("lstm", DV),), CURRENT),
    "current-bahdanau": Decoder(
        BAHDANAU["bias"], (("gru", H),), {**CURRENT, "output_mode": "cell"}
    ),
    "feeding": Decoder(VECTOR, (("lstm", H),), FEEDING),
    "feeding-stack": Decoder(LUONG["concat-local-m"], STACK, {**FEEDING, "output_mode": "concat"}),
}
ATTENTIONS = {
    **{f"bahdanau-{name}": mechanism for name, mechanism in BAHDANAU.items()},
    **LUONG,
    "vector": VECTOR,
}
every_case = pytest.mark.parametrize("name", CASES)
SEQUENCES_MASK = np.array([[False, True, False, True, True], [True, True, True, False, False]])
MEMORY_MASK = np.stack([lengths_mask([5], TK)[0], np.arange(TK) >= 1])
# With a hole in the middle, and one in front, in the middle and at the end.
HOLES = np.array([[1, 0, 1, 1, 1, 1, 1], [0, 1, 1, 0, 1, 1, 0]], bool)
MASKS = {"sequences_mask": SEQUENCES_MASK, "memory_mask": HOLES}


def tensors(dtype="float64"):
    return normal(1, B, T, D, dtype=dtype), normal(2, B, TK, DV, dtype=dtype)


def assert_all_close(actual, expected, dtype="float64"):
    for x, y in zip(actual, expected, strict=True):
        assert_close(x, y, dtype)


@every_case
@pytest.mark.parametrize("dtype", TOLERANCES)
def test_equals_the_loop_of_the_paper(name, dtype):
    layer = CASES[name].built(dtype=dtype)
    sequences, memory = tensors(dtype)
    # Every step rounds the state again, which adds up.
    inputs = sequences[:, : 3 if dtype == "bfloat16" else T], memory
    result = layer(*inputs, memory_mask=MEMORY_MASK, return_attention_scores=True)
    expected = CASES[name].run_oracle(layer, *inputs, memory_mask=MEMORY_MASK)
    assert all(x.dtype.name == dtype for x in result)
    assert_all_close(result, expected[:2], dtype)
    assert_close(layer(*inputs, memory_mask=MEMORY_MASK), expected[0], dtype)


@pytest.mark.parametrize("name", ATTENTIONS)
@pytest.mark.parametrize("options", [PREVIOUS, FEEDING], ids=["previous", "feeding"])
def test_every_attention_in_the_loop_and_step_by_step(name, options):
    decoder = Decoder(ATTENTIONS[name], (("gru", DV),), options)
    check_steps(decoder)


@every_case
def test_step_by_step_is_the_whole_run(name):
    check_steps(CASES[name])


def check_steps(decoder):
    layer = decoder.built(return_state=True)
    sequences, memory = tensors()
    outputs, *states, weights = layer(
        sequences, memory, memory_mask=HOLES, return_attention_scores=True
    )
    expected = decoder.run_oracle(layer, sequences, memory, memory_mask=HOLES)
    states = keras.tree.flatten(states)
    assert_all_close([outputs, weights, *states], [*expected[:2], *expected[2]])
    prepared, now = layer.prepare(memory, HOLES), layer.get_initial_state(B)
    for i in range(T):
        output, now, align = layer.step(sequences[:, i], now, prepared, position=i)
        assert_close(output, expected[0][:, i])
        assert_close(align, expected[1][:, i])
    assert_all_close(keras.tree.flatten(now), expected[2])


@every_case
def test_masked_steps_keep_the_state_and_give_zeros(name):
    layer = CASES[name].built(return_state=True)
    inputs = tensors()
    outputs, *states, weights = layer(*inputs, **MASKS, return_attention_scores=True)
    expected = CASES[name].run_oracle(layer, *inputs, **MASKS)
    assert_all_close([outputs, weights, *keras.tree.flatten(states)], [*expected[:2], *expected[2]])


@every_case
@pytest.mark.parametrize("jit", [False, True])
def test_masked_steps_may_hold_anything(name, jit):
    """Outputs and gradients are the same whatever stands at the masked steps."""
    layer = CASES[name].built()
    sequences, memory = tensors()

    def call(*inputs):
        return layer(*inputs, **MASKS, return_attention_scores=True)

    spoiled = (
        np.where(SEQUENCES_MASK[..., None], sequences, np.nan),
        np.where(HOLES[..., None], memory, np.inf),
    )
    outputs, found = gradients(layer, call, (sequences, memory), jit)
    spoiled_outputs, spoiled_gradients = gradients(layer, call, spoiled, jit)
    assert_all_close([*spoiled_outputs, *spoiled_gradients], [numpy(x) for x in [*outputs, *found]])


@pytest.mark.parametrize("name", ["bahdanau-lstm-concat", "current-stack-concat", "feeding-stack"])
def test_gradients_are_those_of_the_loop(name):
    small = {"bahdanau-lstm-concat": (("lstm", 3),)}.get(name, (("lstm", 2), ("gru", 3)))
    decoder = replace(CASES[name], cells=small)
    layer = decoder.built(d=2, dv=5, return_state=True)
    inputs = normal(1, B, 3, 2), normal(2, B, 5, 5)
    masks = {"sequences_mask": SEQUENCES_MASK[:, :3], "memory_mask": MEMORY_MASK[:, :5]}

    def call(*inputs):
        return keras.tree.flatten(layer(*inputs, **masks, return_attention_scores=True))

    def oracle(inputs, weights):
        outputs, align, states = decoder.run_oracle(layer, *inputs, weights=weights, **masks)
        return [outputs, *states, align]

    assert_gradients(layer, call, inputs, oracle)


def forms_of_initial_state():
    h, c, g, fed = (normal([7, n], B, size) for n, size in enumerate((DQ, DQ, H, 23)))
    gru, stack = CASES["bahdanau"], CASES["bahdanau-stack"]
    feeding, lstm = Decoder(VECTOR, STACK, FEEDING), replace(gru, cells=(("lstm", DQ),))
    return {
        "gru: a tensor": (gru, g, [g], None),
        "gru: a list": (gru, [g], [g], None),
        "gru: a tuple": (gru, (g,), [g], None),
        "lstm: a list": (lstm, [h, c], [h, c], None),
        "stack: nested": (stack, [[h, c], g], [h, c, g], None),
        "stack: nested lists": (stack, [[h, c], [g]], [h, c, g], None),
        "stack: flat": (stack, [h, c, g], [h, c, g], None),
        "feeding: states": (feeding, [[h, c], g], [h, c, g], None),
        "feeding: states and vector": (feeding, [[h, c], g, fed], [h, c, g], fed),
        "feeding: flat": (feeding, [h, c, g, fed], [h, c, g], fed),
    }


@pytest.mark.parametrize("form", forms_of_initial_state())
def test_initial_state(form):
    decoder, given, initial, fed = forms_of_initial_state()[form]
    layer = decoder.built()
    sequences, memory = tensors()
    expected = decoder.run_oracle(layer, sequences, memory, initial=initial, fed=fed)[0]
    assert_close(layer(sequences, memory, initial_state=given), expected)
    assert_close(layer(sequences, memory, given), expected)
    states = layer.get_initial_state(B, given)
    output, *_ = layer.step(sequences[:, 0], states, layer.prepare(memory))
    assert_close(output, expected[:, 0])
    symbols = keras.tree.map_structure(lambda x: keras.Input(x.shape[1:], dtype="float64"), given)
    inputs = [keras.Input((None, D), dtype="float64"), keras.Input((None, DV), dtype="float64")]
    outputs = [layer(*inputs, initial_state=symbols), layer(*inputs, symbols)]
    model = keras.Model([*inputs, *keras.tree.flatten(symbols)], outputs)
    for output in model([sequences, memory, *keras.tree.flatten(given)]):
        assert_close(output, expected)


@pytest.mark.parametrize(
    ("attention", "options", "query", "output"),
    [
        (BahdanauAttention(17), {}, "previous", "cell"),
        (BahdanauAttention(17), CURRENT, "current", "attention"),
        (BahdanauAttention(17), {"input_feeding": True}, "current", "attention"),
        (LuongAttention(), {}, "current", "attention"),
        (LuongAttention(), PREVIOUS, "previous", "cell"),
        (LuongAttention(), {"output_mode": "concat"}, "current", "concat"),
    ],
)
def test_defaults_are_those_of_the_paper_of_the_attention(attention, options, query, output):
    config = AttentionRNN(layers.GRUCell(H), attention, **options).get_config()
    assert (config["query"], config["output_mode"]) == (query, output)


@pytest.mark.parametrize("name", ["bahdanau-stack", "feeding"])
def test_last_states_continue_the_sequence(name):
    layer = CASES[name].built(return_state=True)
    sequences, memory = tensors()
    whole = layer(sequences, memory)
    _, *states = layer(sequences[:, :2], memory)
    rest, *states = layer(sequences[:, 2:], memory, initial_state=states)
    assert_close(rest, numpy(whole[0])[:, 2:])
    last = [numpy(x) for x in keras.tree.flatten(whole[1:])]
    assert_all_close(keras.tree.flatten(states), last)


@pytest.mark.parametrize("return_state", [False, True])
@pytest.mark.parametrize("scores", [False, True])
@pytest.mark.parametrize("name", ["bahdanau", "feeding"])
def test_what_is_returned(name, return_state, scores):
    layer = CASES[name].built(return_state=return_state)
    inputs = tensors()
    outputs, weights, states = CASES[name].run_oracle(layer, *inputs)
    result = layer(*inputs, return_attention_scores=scores)
    expected = [outputs, *(states if return_state else []), *([weights] if scores else [])]
    assert isinstance(result, list) == (len(expected) > 1)
    assert_all_close(result if len(expected) > 1 else [result], expected)


@every_case
def test_unrolled_is_the_loop(name):
    layer = CASES[name].built(return_state=True)
    unrolled = CASES[name].built(return_state=True, unroll=True)
    result = unrolled(*tensors(), **MASKS, return_attention_scores=True)
    expected = layer(*tensors(), **MASKS, return_attention_scores=True)
    expected = [numpy(x) for x in keras.tree.flatten(expected)]
    assert_all_close(keras.tree.flatten(result), expected)


def test_unrolling_compiles():
    layer = CASES["feeding"].built(dtype="float32", unroll=True)
    inputs = tensors("float32")
    expected = CASES["feeding"].run_oracle(layer, *inputs)[0]
    result = tf.function(layer, jit_compile=True)(*[tf.constant(x, "float32") for x in inputs])
    assert_close(result, expected, "float32")


@pytest.mark.parametrize("name", ["bahdanau", "current", "feeding"])
def test_keys_are_projected_once(name):
    decoder = CASES[name]
    calls = []

    class Counting(decoder.mechanism.layer):
        def project_key(self, key):
            calls.append(key.shape)
            return super().project_key(key)

    # Eager, so that what stands inside the loop runs at every step.
    layer = replace(decoder, mechanism=replace(decoder.mechanism, layer=Counting)).make()
    inputs = tensors()
    layer(*inputs)
    calls.clear()
    layer(*inputs)
    assert calls == [(B, TK, DV)]


@pytest.mark.parametrize(
    "options", [PREVIOUS, FEEDING, CURRENT], ids=["previous", "feeding", "current"]
)
def test_positions_beyond_256_are_exact_in_bfloat16(options):
    steps = 300
    attention = LuongAttention("general", "local-m", half_width=1, dtype="bfloat16")
    cell = layers.GRUCell(2, dtype="bfloat16", **INITIALIZER)
    layer = AttentionRNN(cell, attention, dtype="bfloat16", **options)
    inputs = [tf.constant(normal(n, 1, steps, 2), "bfloat16") for n in range(2)]
    layer(inputs[0][:, :2], inputs[1][:, :2])
    run = tf.function(lambda *x: layer(*x, return_attention_scores=True)[1])
    inside = numpy(run(*inputs))[0] > 0
    rows, columns = np.indices(inside.shape)
    assert np.array_equal(inside, np.abs(rows - columns) <= 1)


def dropping_decoders():
    cell, rates = layers.GRUCell, {"dropout": 0.3, "recurrent_dropout": 0.3, "seed": 5}
    stack = [layers.LSTMCell(DQ, **rates), cell(H, **rates)]
    bahdanau = BahdanauAttention(17, dropout=0.3, seed=6)
    luong = LuongAttention("general", units=23, dropout=0.3, seed=6)
    return {
        "cell": AttentionRNN(cell(H, **rates), BahdanauAttention(17)),
        "attention": AttentionRNN(cell(H), bahdanau),
        "stack, feeding": AttentionRNN(stack, luong, **FEEDING),
        "attention after the loop": AttentionRNN(cell(H), luong, **CURRENT),
        "cell before the attention": AttentionRNN(cell(H, **rates), LuongAttention(), **CURRENT),
    }


@pytest.mark.parametrize("name", dropping_decoders())
def test_dropout_is_for_training(name):
    layer = dropping_decoders()[name]
    inputs = tensors("float32")
    quiet = numpy(layer(*inputs))
    first, second = (numpy(layer(*inputs, training=True)) for _ in range(2))
    assert not np.isclose(first, quiet).all()
    assert not np.isclose(first, second).all()
    assert np.array_equal(numpy(layer(*inputs)), quiet)


@pytest.mark.parametrize(
    ("name", "jit"),
    [
        *((name, False) for name in dropping_decoders()),
        ("stack, feeding", True),
        ("attention after the loop", True),
    ],
)
def test_dropout_trains(name, jit):
    inputs = keras.Input((None, D)), keras.Input((None, DV))
    layer = dropping_decoders()[name]
    model = keras.Model(inputs, layer(*inputs))
    model.compile("sgd", "mse", jit_compile=jit)
    before = [numpy(w) for w in model.trainable_weights]
    x = list(tensors("float32"))
    y = np.ones((B, T, model.output.shape[-1]))
    losses = [model.train_on_batch(x, y) for _ in range(2)]
    assert np.isfinite(losses).all()
    for old, new in zip(before, model.trainable_weights, strict=True):
        assert np.isfinite(numpy(new)).all()
        assert not np.array_equal(old, numpy(new))
    model.optimizer.learning_rate.assign(0.0)
    # The same weights and inputs, so that only another draw can change the loss.
    still = [model.train_on_batch(x, y) for _ in range(2)]
    assert still[0] != still[1]


def test_dropout_in_the_loop_drops_the_same_memory_steps_throughout():
    """A memory of unit vectors shows, in the context, which weights were read, and how scaled."""
    attention = BahdanauAttention(17, dropout=0.4, seed=3)
    layer = AttentionRNN(layers.GRUCell(H), attention, output_mode="attention")
    batch = 211
    inputs = normal(1, batch, T, D), np.tile(np.eye(TK), (batch, 1, 1))
    context, weights = layer(*inputs, training=True, return_attention_scores=True)
    ratio = numpy(context) / numpy(weights)
    assert_close(numpy(weights).sum(-1), np.ones((batch, T)), "float32")
    dropped = ratio == 0
    assert np.array_equal(dropped, np.repeat(dropped[:, :1], T, axis=1))
    np.testing.assert_allclose(ratio[~dropped], 1 / 0.6, rtol=1e-4)
    # Three standard deviations of the mean of so many draws.
    assert abs(dropped.mean() - 0.4) < 3 * np.sqrt(0.24 / (batch * TK))


def test_dropout_in_the_loop_draws_once_for_each_memory_step_of_each_sample():
    """A memory of unit vectors, each twice: what is dropped is dropped of both halves."""
    attention = BahdanauAttention(17, dropout=0.4, seed=3)
    layer = AttentionRNN(layers.GRUCell(H), attention, output_mode="attention")
    batch = 211
    inputs = normal(1, batch, T, D), np.tile(np.eye(TK), (batch, 1, 2))
    context, weights = layer(*inputs, training=True, return_attention_scores=True)
    dropped = numpy(context).reshape(batch, T, 2, TK) == 0
    assert (numpy(weights) > 0).all()
    assert np.array_equal(dropped[:, :, 0], dropped[:, :, 1])
    dropped = dropped[:, 0, 0]
    # Four standard deviations of the mean of so many draws, and of their correlation.
    assert np.abs(dropped.mean(axis=0) - 0.4).max() < 4 * np.sqrt(0.24 / batch)
    together = np.corrcoef(dropped, rowvar=False)[~np.eye(TK, dtype=bool)]
    assert np.abs(together).max() < 4 / np.sqrt(batch)


@pytest.mark.parametrize("rate", ["dropout", "recurrent_dropout"])
@pytest.mark.parametrize("number", [0, 1])
def test_dropout_of_a_cell_is_drawn_anew_for_every_call(rate, number):
    rates = [{}, {}]
    rates[number] = {rate: 0.5, "seed": 5}
    stack = [layers.LSTMCell(DQ, **rates[0]), layers.GRUCell(H, **rates[1])]
    layer = AttentionRNN(stack, BahdanauAttention(17))
    sequences, memory = tensors("float32")
    first, second = (numpy(layer(sequences, memory, training=True)) for _ in range(2))
    assert not np.isclose(first, second).all()
    larger = [np.concatenate([x, x]) for x in (sequences, memory)]
    halves = np.split(numpy(layer(*larger, training=True)), 2)
    assert not np.isclose(*halves).all()
    graph = tf.function(lambda *x: layer(*x, training=True))
    assert not np.isclose(numpy(graph(*larger)), numpy(layer(*larger, training=True))).all()


def test_a_loop_that_fails_leaves_no_dropout_behind(monkeypatch):
    layer = AttentionRNN(layers.GRUCell(H, dropout=0.5), BahdanauAttention(17))
    layer.build((None, None, D), (None, None, DV))
    with monkeypatch.context() as patch:
        patch.setattr(layer.attention, "score", lambda query, key: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            layer(np.ones((3, T, D)), np.ones((3, TK, DV)), training=True)
    # Dropout of three samples would not fit.
    assert np.isfinite(numpy(layer(*tensors("float32"), training=True))).all()


class Still(layers.Layer):
    """A cell whose state stays what it was at first."""

    state_size = H

    def call(self, inputs, states):
        return states[0], states


def assert_gradients_add_up(attention, names):
    """Those of a thousand equal steps are a thousand times that of one."""
    cell = Still(dtype=attention.dtype_policy)
    layer = AttentionRNN(cell, attention, query="previous", output_mode="attention")
    layer.build((None, None, D), (None, None, DV))
    state, memory = normal(1, B, H, dtype="bfloat16"), normal(2, B, TK, DV, dtype="bfloat16")

    @tf.function
    def gradients(steps):
        with tf.GradientTape() as tape:
            outputs = layer(tf.zeros((B, steps, D)), memory, initial_state=state)
            mixed = tf.cast(outputs, "float32") * normal(3, B, 1, DV).astype("float32")
            loss = tf.reduce_sum(mixed)
        return tape.gradient(loss, [getattr(attention, name).value for name in names])

    for one, many in zip(gradients(1), gradients(1000), strict=True):
        one, many = numpy(one), numpy(many)
        assert np.abs(one).max() > 0
        np.testing.assert_allclose(many, 1000 * one, rtol=0, atol=20 * np.abs(one).max())


MIXED = {"dtype": "mixed_bfloat16"}


# bfloat16 cannot count beyond 256.
def test_gradients_by_the_keys_of_many_steps_add_up_in_mixed_precision():
    assert_gradients_add_up(BahdanauAttention(17, **MIXED), ["key_kernel"])
    assert_gradients_add_up(LuongAttention("general", **MIXED), ["score_kernel"])


@pytest.mark.parametrize("name", ["query_kernel", "score_vector"])
def test_gradients_by_the_weights_of_many_steps_add_up_in_mixed_precision(name):
    assert_gradients_add_up(BahdanauAttention(17, **MIXED), [name])


class Counting(layers.GRUCell):
    """A cell whose output grows with the steps that it counts."""

    def build(self, input_shape):
        super().build(input_shape)
        self.steps = self.add_weight((), initializer="zeros", trainable=False, name="steps")

    def call(self, inputs, states, training=False):
        self.steps.assign_add(1.0)
        output, states = super().call(inputs, states, training=training)
        return self.steps * output, states

    def query(self, states):
        return states[0]


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("unroll", [False, True])
@pytest.mark.parametrize(
    "options", [PREVIOUS, CURRENT, FEEDING], ids=["previous", "current", "fed"]
)
def test_what_a_cell_assigns_in_the_loop_of_a_graph_lasts(options, unroll, jit):
    inputs = [tf.constant(x, "float32") for x in tensors("float32")]
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


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("options", [PREVIOUS, CURRENT], ids=["previous", "current"])
def test_losses_that_a_cell_adds_count_in_training(options, jit):
    """Unrolled, as in `keras.layers.RNN`: of a loop in a graph no loss can leave it."""

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
    # Of every step the mean of its squares, which is T times the mean over all steps.
    expected = np.square(output).mean() + T * np.square(output[:, :, DV:]).mean()
    weights = [numpy(weight) for weight in model.trainable_weights]
    assert model.train_on_batch(x, np.zeros_like(output)) == pytest.approx(expected, rel=1e-5)
    assert model.test_on_batch(x, np.zeros_like(output)) == pytest.approx(expected, rel=1e-5)
    assert_all_close(model.trainable_weights, weights, "float32")


def test_a_translator_trains_alike_with_and_without_jit():
    """Masks from embeddings, the first state from the encoder."""
    rng = np.random.default_rng(4)
    source, target = rng.integers(1, 9, (4, TK)), rng.integers(1, 9, (4, T))
    source[:3, 4:], target[2:, 3:] = 0, 0

    def train(jit):
        keras.utils.set_random_seed(3)
        inputs = keras.Input((None,), dtype="int32"), keras.Input((None,), dtype="int32")
        words = layers.Embedding(9, D, mask_zero=True)(inputs[0])
        encoder = layers.GRU(H, return_sequences=True, return_state=True, use_cudnn=False)
        encoded, state = encoder(words)
        decoder = AttentionRNN(layers.GRUCell(H), BahdanauAttention(17), output_mode="concat")
        hidden = decoder(
            layers.Embedding(9, D, mask_zero=True)(inputs[1]), encoded, initial_state=state
        )
        model = keras.Model(inputs, layers.Dense(9, "softmax")(hidden))
        model.compile("sgd", "sparse_categorical_crossentropy", jit_compile=jit)
        return model.fit([source, target], target, epochs=3, verbose=0).history["loss"], model

    (plain, model), (fast, _) = train(False), train(True)
    assert plain[2] < plain[1] < plain[0]
    np.testing.assert_allclose(fast, plain, rtol=1e-5)
    # What stands in the padding changes nothing: a longer source gives the same translation.
    longer = np.concatenate([source[:3], np.zeros((3, 2), int)], axis=1)
    expected = model.predict_on_batch([source[:3], target[:3]])
    for padded in (longer, source[:3, :4]):
        result = model.predict_on_batch([padded, target[:3]])
        np.testing.assert_allclose(result, expected, rtol=0, atol=2e-6)


class Residual(keras.layers.Layer):
    """A cell whose output is not its first state: the input is added to it."""

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
    """The same with its output in a second state, where `query` finds it."""

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
def test_cells_whose_output_is_not_their_first_state(cell, options):
    layer = residual_decoder(cell(), output_mode="concat", **options)
    decoder = Decoder(BAHDANAU["plain"], options={**options, "output_mode": "concat"})
    inputs = tensors()
    outputs, weights = layer(*inputs, return_attention_scores=True)
    expected = residual_oracle(decoder, layer, *inputs)
    assert_close(outputs, expected[0])
    assert_close(weights, expected[1])
    prepared, states = layer.prepare(inputs[1]), layer.get_initial_state(B)
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
        "is not its first state",
        'query="current"',
    )
    assert residual_decoder(cell(), query="current")(*inputs) is not None


def test_a_cell_with_a_wrong_output_size():
    cell = Residual(2)
    cell.output_size = 3
    layer = AttentionRNN(cell, BahdanauAttention(17, dtype="float64"), query="current")
    assert_refused(lambda: layer(*tensors()), "`output_size = 2`")


class CountingAttention(BahdanauAttention):
    """Counts its steps in an attribute, against the rules."""

    steps = 0

    def score(self, query, key):
        self.steps = self.steps + 1
        return super().score(query, key)


class Last(BahdanauAttention):
    """Keeps its last weights in a list."""

    def __init__(self, units, **kwargs):
        super().__init__(units, **kwargs)
        self.last = []

    def score(self, query, key):
        scores = super().score(query, key)
        self.last.append(scores)
        return scores


class Cumulating(BahdanauAttention):
    """Adds its scores up in a weight."""

    def build(self, *shapes):
        super().build(*shapes)
        self.total = self.add_weight((), initializer="zeros", trainable=False, name="total")

    def score(self, query, key):
        scores = super().score(query, key)
        self.total.assign(self.total + keras.ops.sum(scores))
        return scores


@pytest.mark.parametrize("options", [PREVIOUS, CURRENT, FEEDING])
@pytest.mark.parametrize(
    ("kind", "name"), [(CountingAttention, "steps"), (Last, "last"), (Cumulating, "total")]
)
def test_an_attention_that_keeps_something_is_refused(kind, name, options):
    refusal = ("must not keep anything between steps", name)
    inputs = tensors("float32")
    for call in (
        lambda layer: layer(*inputs),
        lambda layer: tf.function(layer)(*[tf.constant(x, "float32") for x in inputs]),
        lambda layer: layer(*[keras.Input(x.shape[1:]) for x in inputs]),
    ):
        layer = AttentionRNN(layers.GRUCell(H), kind(17), **options)
        assert_refused(partial(call, layer), *refusal)
    layer = AttentionRNN(layers.GRUCell(H), kind(17), **options)
    layer.build(inputs[0].shape, inputs[1].shape)
    memory, states = layer.prepare(inputs[1]), layer.get_initial_state(B)
    assert_refused(lambda: layer.step(inputs[0][:, 0], states, memory), *refusal)


@pytest.mark.parametrize("options", [PREVIOUS, CURRENT, FEEDING])
def test_an_attention_with_a_constant_weight_and_dropout_is_accepted(options):
    attention = MemoryHop(dropout=0.4, seed=3)
    layer = AttentionRNN(layers.GRUCell(DV), attention, output_mode="concat", **options)
    inputs = tensors("float32")
    first, second = (numpy(layer(*inputs, training=True)) for _ in range(2))
    assert not np.isclose(first, second).all()


@pytest.mark.parametrize("jit", [None, False, True], ids=["eager", "graph", "XLA"])
@pytest.mark.parametrize("empty", ["batch", "steps", "memory"])
@pytest.mark.parametrize("name", CASES)
def test_empty_axes(name, empty, jit):
    """No sample, no step or no memory: results of that shape, and gradients that are numbers."""
    layer = CASES[name].built(return_state=True)
    batch = 0 if empty == "batch" else B
    steps, length = (0 if empty == "steps" else T), (0 if empty == "memory" else TK)
    inputs = normal(1, batch, steps, D), normal(2, batch, length, DV)
    masks = {
        "sequences_mask": np.ones((batch, steps), bool),
        "memory_mask": np.ones((batch, length), bool),
    }
    initial = [
        normal([3, n], batch, size) for n, size in enumerate(s.shape[1] for s in flat_states(layer))
    ]

    def run(sequences, memory):
        with tf.GradientTape() as tape:
            results = layer(
                sequences, memory, initial_state=initial, **masks, return_attention_scores=True
            )
            loss = tf.add_n([tf.reduce_sum(x) for x in keras.tree.flatten(results)])
        return results, tape.gradient(loss, [w.value for w in layer.trainable_weights])

    if jit is not None:
        signature = [tf.TensorSpec((None, None, n), "float64") for n in (D, DV)]
        run = tf.function(run, None if jit else signature, jit_compile=jit)
    (outputs, *states, weights), found = run(*[tf.constant(x) for x in inputs])
    assert outputs.shape[:2] == (batch, steps)
    assert weights.shape == (batch, steps, length)
    if empty == "steps":
        assert_all_close(keras.tree.flatten(states), initial)
    for gradient in found:
        assert gradient is None or np.isfinite(numpy(tf.convert_to_tensor(gradient))).all()


def flat_states(layer):
    return keras.tree.flatten(layer.get_initial_state(B))


UNROLLED_ON_JAX = """
import sys
import keras, numpy as np
from keras_attention import AttentionRNN, BahdanauAttention
inputs = np.load(sys.argv[1])
found = {}
for unroll in (False, True):
    keras.utils.set_random_seed(1)
    for query in ("previous", "current"):
        layer = AttentionRNN(
            keras.layers.GRUCell(11), BahdanauAttention(17), query=query, output_mode="concat",
            return_state=True, unroll=unroll,
        )
        results = layer(**inputs, return_attention_scores=True)
        for n, x in enumerate(keras.tree.flatten(results)):
            found[f"{query} {n} {unroll}"] = x
np.savez(sys.argv[2], **found)
"""


def test_unrolled_with_a_mask_on_jax(tmp_path):
    pytest.importorskip("jax", reason="JAX is not installed")
    sequences, memory = (x.astype("float32") for x in tensors())
    np.savez(tmp_path / "in.npz", sequences=sequences, memory=memory, **MASKS)
    command = [sys.executable, "-c", UNROLLED_ON_JAX, tmp_path / "in.npz", tmp_path / "out.npz"]
    environment = {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)}
    subprocess.run(command, check=True, env={**os.environ, **environment})
    found = np.load(tmp_path / "out.npz")
    for query, n in itertools.product(("previous", "current"), range(3)):
        looped, unrolled = (found[f"{query} {n} {unroll}"] for unroll in (False, True))
        np.testing.assert_allclose(unrolled, looped, rtol=0, atol=2e-6)
        if n != 1:  # the outputs and the weights, not the state
            assert not unrolled[~SEQUENCES_MASK].any()


CELL, ATTENTION = layers.GRUCell(H), BahdanauAttention(17)
BAD_ARGUMENTS = {
    "a number as cell": ((3, ATTENTION), {}, ("`cell`", "a Keras RNN cell", "received 3")),
    "no cell": ((None, ATTENTION), {}, ("`cell`", "a Keras RNN cell", "received None")),
    "no cells": (([], ATTENTION), {}, ("`cell`", "received []")),
    "a layer among cells": (([layers.Dense(3)], ATTENTION), {}, ("cell", "`state_size`", "Dense")),
    "a layer as cell": (
        (layers.GRU(3), ATTENTION),
        {},
        ("`cell`", "a Keras RNN cell", "received <GRU"),
    ),
    "attention of Keras": (
        (CELL, layers.Attention()),
        {},
        ("`attention`", "built on ScoringMixin", "received <Attention"),
    ),
    "no attention": ((CELL, None), {}, ("`attention`", "ScoringMixin", "received None")),
    "query": (
        (CELL, ATTENTION),
        {"query": "next"},
        ("`query`", "'previous', 'current'", "received 'next'"),
    ),
    "output_mode": (
        (CELL, ATTENTION),
        {"output_mode": "context"},
        ("`output_mode`", "'cell', 'attention', 'concat'", "received 'context'"),
    ),
    "input feeding": (
        (CELL, ATTENTION),
        {"query": "previous", "input_feeding": True},
        ("`input_feeding=True`", 'query="current"', '"previous"'),
    ),
    "attention of another dtype": (
        (CELL, BahdanauAttention(17, dtype="float64")),
        {},
        ("in one dtype", "the decoder computes in float32", "`attention` in float64"),
    ),
    "cells of several dtypes": (
        ([CELL, layers.GRUCell(3, dtype="mixed_float16")], ATTENTION),
        {},
        ("in one dtype", "the decoder computes in float32", "`cell` in float16"),
    ),
}


@pytest.mark.parametrize(
    ("parts", "options", "fragments"), BAD_ARGUMENTS.values(), ids=BAD_ARGUMENTS
)
def test_bad_arguments(parts, options, fragments):
    assert_refused(lambda: AttentionRNN(*parts, **options), *fragments)


GOOD = {"sequences": (B, T, D), "memory": (B, TK, DV)}
BAD_CALLS = {
    "no memory": ({"sequences": (B, T, D)}, ("`memory` is missing", "layer(sequences, memory)")),
    "sequences of rank 2": (
        {**GOOD, "sequences": (B, D)},
        ("`sequences`", "(batch, steps, features)", "received (2, 3)"),
    ),
    "memory of rank 2": (
        {**GOOD, "memory": (B, DV)},
        ("`memory`", "(batch, steps, features)", "received (2, 13)"),
    ),
    "batch sizes": (
        {**GOOD, "memory": (3, TK, DV)},
        ("batch size", "the same in `sequences` and `memory`", "`sequences` 2, `memory` 3"),
    ),
    "memory_mask of numbers": (
        {**GOOD, "memory_mask": (B, TK, "float32")},
        ("`memory_mask` must be boolean", "received dtype float32"),
    ),
    "sequences_mask of integers": (
        {**GOOD, "sequences_mask": (B, T, "int32")},
        ("`sequences_mask` must be boolean", "received dtype int32"),
    ),
    "memory_mask of the length of the sequences": (
        {**GOOD, "memory_mask": (B, T)},
        ("`memory_mask` must have shape (2, 7)", "received (2, 5)"),
    ),
    "sequences_mask of the length of the memory": (
        {**GOOD, "sequences_mask": (B, TK)},
        ("`sequences_mask` must have shape (2, 5)", "received (2, 7)"),
    ),
    "initial_state of another size": (
        {**GOOD, "initial_state": (B, H + 1)},
        ("`initial_state`", "of shapes [(batch, 11)]", "received 1, [(2, 12)]"),
    ),
    "initial_state of another batch": (
        {**GOOD, "initial_state": (3, H)},
        ("batch size", "`sequences` and `initial_state`", "`sequences` 2, `initial_state` 3"),
    ),
    "initial_state of rank 3": (
        {**GOOD, "initial_state": (B, 1, H)},
        ("`initial_state`", "of shapes [(batch, 11)]", "received 1, [(2, 1, 11)]"),
    ),
}


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("built", [False, True])
@pytest.mark.parametrize(("shapes", "fragments"), BAD_CALLS.values(), ids=BAD_CALLS)
def test_bad_calls(shapes, fragments, built, symbolic):
    layer = AttentionRNN(layers.GRUCell(H), BahdanauAttention(17))
    if built:
        layer.build((None, None, D), (None, None, DV))
    inputs = arguments(shapes, symbolic)
    sequences = inputs.pop("sequences")
    assert_refused(lambda: layer(sequences, **inputs), layer.name, *fragments)


@pytest.mark.parametrize("symbolic", [False, True])
def test_too_many_initial_states(symbolic):
    layer = AttentionRNN(layers.GRUCell(H), BahdanauAttention(17))
    inputs = arguments({**GOOD, "a": (B, H), "b": (B, H)}, symbolic)
    states = [inputs.pop("a"), inputs.pop("b")]
    assert_refused(
        lambda: layer(**inputs, initial_state=states),
        "`initial_state` must hold the 1 states of the cell, of shapes [(batch, 11)]",
        "received 2, [(2, 11), (2, 11)]",
    )


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("built", [False, True])
def test_a_list_of_tensors(built, symbolic):
    sequences, memory = inputs = list(arguments(GOOD, symbolic).values())
    layer = AttentionRNN(layers.GRUCell(H), BahdanauAttention(17))
    if built:
        layer.build((None, None, D), (None, None, DV))
    assert_refused(lambda: layer(inputs), "one tensor", "layer(sequences, memory)")
    assert_refused(lambda: layer(sequences, [memory]), "`memory` must be one tensor")


@pytest.mark.parametrize("symbolic", [False, True])
def test_dot_needs_a_cell_as_wide_as_the_memory(symbolic):
    layer = AttentionRNN(layers.GRUCell(H), LuongAttention("dot"), query="current")
    assert_refused(lambda: layer(**arguments(GOOD, symbolic)), "same width", "query 11 and key 13")


def test_a_monotonic_step_without_position():
    layer = Decoder(LUONG["general-local-m"]).built()
    sequences, memory = tensors()
    prepared, states = layer.prepare(memory), layer.get_initial_state(B)
    assert_refused(
        lambda: layer.step(sequences[:, 0], states, prepared), "`position`", "is missing"
    )


def test_the_dtype_is_that_of_the_cell():
    cells = [layers.GRUCell(n, dtype="mixed_float16") for n in (3, 2)]
    attention = BahdanauAttention(17, dtype="mixed_float16")
    for cell in (cells[0], cells):
        layer = AttentionRNN(cell, attention)
        assert layer.dtype_policy == keras.DTypePolicy("mixed_float16")
        assert layer.cell.dtype_policy == layer.dtype_policy


@pytest.mark.parametrize(
    ("change", "fragments"),
    [
        ({"memory": None}, ("`memory` must be what prepare(memory, memory_mask) returns", "None")),
        ({"inputs": (B, 1, D)}, ("`inputs` of a step", "(batch, 3)", "received (2, 1, 3)")),
        ({"inputs": (B, D + 1)}, ("`inputs` of a step", "(batch, 3)", "received (2, 4)")),
        ({"states": []}, ("`states` must be the list of 1", "received 0")),
        ({"states": None}, ("`states` must be the list of 1", "received NoneType")),
    ],
)
def test_bad_arguments_of_a_step(change, fragments):
    layer = CASES["bahdanau"].built()
    memory = layer.prepare(normal(0, B, TK, DV))
    given = {"memory": memory, "states": layer.get_initial_state(B), "inputs": (B, D), **change}
    inputs = normal(1, *given["inputs"])
    assert_refused(lambda: layer.step(inputs, given["states"], given["memory"]), *fragments)


def test_decoding_before_the_weights_exist():
    layer = CASES["bahdanau"].make()
    assert_refused(lambda: layer.get_initial_state(B), "no weights yet. Call it once, or")
    assert_refused(lambda: layer.prepare(normal(0, B, TK, DV)), "no weights yet")
