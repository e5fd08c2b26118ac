"""The decoder against loops of the papers, as a whole run and step by step."""

from dataclasses import replace

import keras
import numpy as np
import pytest
from keras import layers, ops

from keras_attention import AttentionRNN, BahdanauAttention, LuongAttention
from keras_attention.backend import leaves
from tests import fast, helpers
from tests.backends import dtypes, on_tensorflow, tensor
from tests.decoder import cases
from tests.decoder.cases import CASES, DV, HOLES, MASKS, MEMORY_MASK, D, H, T, few_cases, tensors
from tests.helpers import DQ, DTYPES, TK, B, assert_all_close, assert_close, normal, numpy

OPTIONS = {"previous": cases.PREVIOUS, "feeding": cases.FEEDING, "current": cases.CURRENT}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.each_value
def test_equals_the_loop_of_the_paper(name, dtype):
    layer = CASES[name].built(dtype=dtype)
    sequences, memory = tensors(dtype)
    # Every step rounds the state again, which adds up: in bfloat16 three steps are enough.
    inputs = sequences[:, : 3 if dtype == "bfloat16" else T], memory
    result = layer(*inputs, memory_mask=MEMORY_MASK, return_attention_scores=True)
    expected = CASES[name].run_oracle(layer, *inputs, memory_mask=MEMORY_MASK)
    assert set(dtypes(*result)) == {dtype}
    assert_all_close(result, expected[:2], dtype, before=1.5)
    assert_close(layer(*inputs, memory_mask=MEMORY_MASK), expected[0], dtype, before=1.5)


def without_position(layer, states):
    flat = keras.tree.flatten(states)
    return flat[:-1] if layer.attention.uses_position else flat


SOME = "bahdanau-sparse", "general-global", "dot-local-m", "concat-local-p", "location-local-m"
EVERY = CASES | {
    f"{attention}, {options}": cases.Decoder(mechanism, (("gru", DV),), OPTIONS[options])
    for attention, mechanism in cases.ATTENTIONS.items()
    for options in ("previous", "feeding")
}
DEFAULT = [f"{x}, {('previous', 'feeding')[n % 2]}" for n, x in enumerate([*SOME, "vector"])]


@pytest.mark.parametrize("name", fast(EVERY, [*DEFAULT, *cases.FEW], slow=4))
def test_masks_and_steps(name):
    """Masked steps keep the state and give zeros; step by step is the whole run."""
    layer, (sequences, memory) = EVERY[name].built(return_state=True), tensors()
    outputs, *states, weights = layer(sequences, memory, **MASKS, return_attention_scores=True)
    expected = EVERY[name].run_oracle(layer, sequences, memory, **MASKS)
    states = without_position(layer, states)
    assert_all_close([outputs, weights, *states], [*expected[:2], *expected[2]])
    expected = EVERY[name].run_oracle(layer, sequences, memory, memory_mask=HOLES)
    prepared = layer.prepare(memory, HOLES)
    now = layer.get_initial_state(prepared)
    for i in range(T):
        output, now, align = layer.step(sequences[:, i], now, prepared)
        assert_all_close([output, align], [expected[0][:, i], expected[1][:, i]])
    assert_all_close(leaves(now[:3]), expected[2])
    assert numpy(now.position).tolist() == [T] * B


@few_cases
@pytest.mark.parametrize("jit", fast([False, True], [False]))
@pytest.mark.each_value
def test_masked_steps_may_hold_anything(name, jit):
    cases.assert_masked_steps_may_hold_anything(CASES[name].built(), jit)


@pytest.mark.parametrize("name", ["bahdanau-lstm-concat", "current-stack-concat", "feeding-stack"])
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.each_value
def test_gradients_are_those_of_the_loop(name, training):
    small = {"bahdanau-lstm-concat": (("lstm", 3),)}.get(name, (("lstm", 2), ("gru", 3)))
    decoder = replace(CASES[name], cells=small)
    layer = decoder.built(d=2, dv=5, return_state=True)
    inputs = normal(1, B, 3, 2), normal(2, B, 5, 5)
    masks = {"sequences_mask": cases.SEQUENCES_MASK[:, :3], "memory_mask": MEMORY_MASK[:, :5]}

    def call(*inputs):
        options = {"return_attention_scores": True, "training": training}
        outputs, *states, weights = layer(*inputs, **masks, **options)
        return [outputs, *without_position(layer, states), weights]

    def oracle(inputs, weights):
        outputs, align, states = decoder.run_oracle(layer, *inputs, weights=weights, **masks)
        return [outputs, *states, align]

    helpers.assert_gradients(layer, call, inputs, oracle)


def forms_of_initial_state():
    h, c, g, fed = (normal([7, n], B, size) for n, size in enumerate((DQ, DQ, H, 23)))
    gru, stack = CASES["bahdanau"], CASES["bahdanau-stack"]
    feeding = cases.Decoder(cases.VECTOR, cases.STACK, cases.FEEDING)
    lstm = replace(gru, cells=(("lstm", DQ),))
    return {
        "gru: a tensor": (gru, g, [g]),
        "gru: a tuple": (gru, (g,), [g]),
        "lstm: a list": (lstm, [h, c], [h, c]),
        "stack: nested": (stack, [[h, c], g], [h, c, g]),
        "stack: nested lists": (stack, [[h, c], [g]], [h, c, g]),
        "feeding: states": (feeding, [[h, c], g], [h, c, g]),
        "feeding: states and vector": (feeding, [[h, c], g, fed], [h, c, g, fed]),
        "feeding: flat": (feeding, [h, c, g, fed], [h, c, g, fed]),
    }


@pytest.mark.parametrize("form", forms_of_initial_state())
def test_initial_state(form):
    decoder, given, flat = forms_of_initial_state()[form]
    layer, (sequences, memory) = decoder.built(), tensors()
    options = {"initial": flat[:3], "fed": flat[3] if len(flat) > 3 else None}
    expected = decoder.run_oracle(layer, sequences, memory, **options)[0]
    assert_close(layer(sequences, memory, initial_state=given), expected)
    assert_close(layer(sequences, memory, given), expected)
    prepared = layer.prepare(memory)
    state = layer.get_initial_state(prepared, given)
    assert_close(layer.step(sequences[:, 0], state, prepared)[0], expected[:, 0])
    if form == "feeding: flat":
        symbols = [keras.Input(x.shape[1:], dtype=x.dtype) for x in given]
        inputs = [keras.Input((None, n), dtype="float64") for n in (D, DV)]
        model = keras.Model([*inputs, *symbols], layer(*inputs, initial_state=symbols))
        assert_close(model([sequences, memory, *flat]), expected)


@pytest.mark.parametrize(("attention", "options", "query", "output"), [
    (BahdanauAttention(17), {}, "previous", "cell"),
    (BahdanauAttention(17), cases.CURRENT, "current", "attention"),
    (BahdanauAttention(17), {"input_feeding": True}, "current", "attention"),
    (LuongAttention(), {}, "current", "attention"),
    (LuongAttention(), cases.PREVIOUS, "previous", "cell"),
    (LuongAttention(), {"output_mode": "concat"}, "current", "concat"),
])  # fmt: skip
def test_defaults_are_those_of_the_paper_of_the_attention(attention, options, query, output):
    config = AttentionRNN(layers.GRUCell(H), attention, **options).get_config()
    assert (config["query"], config["output_mode"]) == (query, output)


@pytest.mark.parametrize("name", ["feeding", "previous-local-m"])
def test_last_states_continue_the_sequence(name):
    layer = CASES[name].built(return_state=True)
    sequences, memory = tensors()
    whole = layer(sequences, memory)
    _, *states = layer(sequences[:, :2], memory)
    rest, *states = layer(sequences[:, 2:], memory, initial_state=states)
    assert_all_close([rest, *states], [whole[0][:, 2:], *whole[1:]])


@few_cases
def test_unrolled_is_the_loop(name):
    layer = CASES[name].built(return_state=True)
    unrolled = CASES[name].built(return_state=True, unroll=True)
    results = (x(*tensors(), **MASKS, return_attention_scores=True) for x in (unrolled, layer))
    assert_all_close(*map(keras.tree.flatten, results))


@pytest.mark.parametrize("name", ["bahdanau", "current", "feeding"])
def test_keys_are_projected_once(name, monkeypatch):
    """In eager code, what is inside the loop runs at every step."""
    layer, calls = CASES[name].built(), []
    project = layer.attention.project_key
    monkeypatch.setattr(
        layer.attention, "project_key", lambda x: calls.append(x.shape) or project(x)
    )
    layer(*tensors())
    assert calls == [(B, TK, DV)]


@on_tensorflow
@pytest.mark.parametrize("options", fast(OPTIONS, ["current"]))
def test_positions_beyond_256_are_exact_in_bfloat16(options):
    import tensorflow as tf

    attention = LuongAttention("general", "local-m", half_width=1, dtype="bfloat16")
    cell = layers.GRUCell(2, dtype="bfloat16", **cases.INITIALIZER)
    layer = AttentionRNN(cell, attention, dtype="bfloat16", **OPTIONS[options])
    inputs = [tensor(normal(n, 1, 300, 2), "bfloat16") for n in range(2)]
    layer(inputs[0][:, :2], inputs[1][:, :2])
    run = tf.function(lambda *x: layer(*x, return_attention_scores=True)[1])
    inside = numpy(run(*inputs))[0] > 0
    rows, columns = np.indices(inside.shape)
    assert np.array_equal(inside, np.abs(rows - columns) <= 1)


class Still(layers.Layer):  # A cell whose state never changes
    state_size = H

    def call(self, inputs, states):
        return states[0], states


@on_tensorflow
@pytest.mark.parametrize("kind", fast([BahdanauAttention, LuongAttention], [BahdanauAttention]))
def test_gradients_of_many_steps_add_up_in_mixed_precision(kind):
    """Those of a thousand equal steps are a thousand times that of one: bfloat16 counts to 256."""
    import tensorflow as tf

    options = {"units": 17} if kind is BahdanauAttention else {}
    attention = kind(**options, dtype="mixed_bfloat16")
    cell = Still(dtype=attention.dtype_policy)
    layer = AttentionRNN(cell, attention, query="previous", output_mode="attention")
    layer.build((None, None, D), (None, None, DV))
    state, memory = normal(1, B, H, dtype="bfloat16"), normal(2, B, TK, DV, dtype="bfloat16")

    @tf.function
    def gradient(steps):
        with tf.GradientTape() as tape:
            outputs = layer(ops.zeros((B, steps, D)), memory, initial_state=state)
            loss = ops.sum(ops.cast(outputs, "float32") * normal(3, B, 1, DV).astype("float32"))
        return tape.gradient(loss, [x.value for x in attention.trainable_weights])

    for one, many in zip(map(numpy, gradient(1)), map(numpy, gradient(1000)), strict=True):
        assert np.abs(one).max() > 0
        np.testing.assert_allclose(many, 1000 * one, rtol=0, atol=20 * np.abs(one).max())


def initial_of(layer, batch, length=TK):
    state = layer.get_initial_state(layer.prepare(normal(2, B, length, DV)))
    sizes = [x.shape[1] for x in leaves(state[:3])]
    return [normal([3, n], batch, size) for n, size in enumerate(sizes)]


@on_tensorflow
@pytest.mark.parametrize("jit", fast([None, False, True], [None, False]))
@pytest.mark.parametrize("empty", ["batch", "steps", "memory"])
@few_cases
@pytest.mark.each_value
def test_empty_axes(name, empty, jit):
    import tensorflow as tf

    layer = CASES[name].built(return_state=True)
    batch = 0 if empty == "batch" else B
    steps, length = (0 if empty == "steps" else T), (0 if empty == "memory" else TK)
    inputs = normal(1, batch, steps, D), normal(2, batch, length, DV)
    masks = {"sequences_mask": (batch, steps), "memory_mask": (batch, length)}
    # A graph of unknown sizes has no masks.
    options = {name: np.ones(x, bool) for name, x in masks.items() if jit is not False}
    options["initial_state"] = initial = initial_of(layer, batch, length)

    def run(sequences, memory):
        with tf.GradientTape() as tape:
            results = layer(sequences, memory, **options, return_attention_scores=True)
            loss = sum(ops.sum(ops.cast(x, "float64")) for x in keras.tree.flatten(results))
        return results, tape.gradient(loss, [w.value for w in layer.trainable_weights])

    if jit is not None:
        signature = [tf.TensorSpec((None, None, n), "float64") for n in (D, DV)]
        run = tf.function(run, None if jit else signature, jit_compile=jit)
    (outputs, *states, weights), found = run(*[tensor(x) for x in inputs])
    assert outputs.shape[:2] == (batch, steps)
    assert weights.shape == (batch, steps, length)
    if empty == "steps":
        assert_all_close(without_position(layer, states), initial)
    assert all(x is None or np.isfinite(numpy(tensor(x))).all() for x in found)
