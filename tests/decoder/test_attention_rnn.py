"""The decoder against loops of the papers, as a whole run and step by step."""

from dataclasses import replace

import keras
import numpy as np
import pytest
from keras import layers, ops

from keras_attention import AttentionRNN, BahdanauAttention, LuongAttention
from keras_attention.backend import leaves
from tests import fast
from tests.backends import dtypes, on_tensorflow, tensor
from tests.decoder.cases import (
    ATTENTIONS,
    CASES,
    CURRENT,
    DV,
    FEEDING,
    HOLES,
    INITIALIZER,
    MASKS,
    MEMORY_MASK,
    PREVIOUS,
    SEQUENCES_MASK,
    STACK,
    VECTOR,
    D,
    Decoder,
    H,
    T,
    every_case,
    few_cases,
    spoiled_tensors,
    tensors,
)
from tests.helpers import (
    DQ,
    DTYPES,
    TK,
    B,
    assert_all_close,
    assert_close,
    assert_gradients,
    gradients,
    normal,
    numpy,
)


@every_case
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


@pytest.mark.parametrize("name", ATTENTIONS)
@pytest.mark.parametrize("options", [PREVIOUS, FEEDING], ids=["previous", "feeding"])
@pytest.mark.each_value
def test_every_attention_in_the_loop_and_step_by_step(name, options):
    decoder = Decoder(ATTENTIONS[name], (("gru", DV),), options)
    check_steps(decoder)


def without_position(layer, states):
    """The flat list of states, without the number of the next step."""
    flat = keras.tree.flatten(states)
    return flat[:-1] if layer.attention.uses_position else flat


@few_cases
def test_step_by_step_is_the_whole_run(name):
    check_steps(CASES[name])


def check_steps(decoder):
    layer = decoder.built(return_state=True)
    sequences, memory = tensors()
    outputs, *states, weights = layer(
        sequences, memory, memory_mask=HOLES, return_attention_scores=True
    )
    expected = decoder.run_oracle(layer, sequences, memory, memory_mask=HOLES)
    states = without_position(layer, states)
    assert_all_close([outputs, weights, *states], [*expected[:2], *expected[2]])
    prepared = layer.prepare(memory, HOLES)
    now = layer.get_initial_state(prepared)
    for i in range(T):
        output, now, align = layer.step(sequences[:, i], now, prepared)
        assert_close(output, expected[0][:, i])
        assert_close(align, expected[1][:, i])
    assert_all_close(leaves(now[:3]), expected[2])
    assert numpy(now.position).tolist() == [T] * B


@few_cases
def test_masked_steps_keep_the_state_and_give_zeros(name):
    layer = CASES[name].built(return_state=True)
    inputs = tensors()
    outputs, *states, weights = layer(*inputs, **MASKS, return_attention_scores=True)
    expected = CASES[name].run_oracle(layer, *inputs, **MASKS)
    states = without_position(layer, states)
    assert_all_close([outputs, weights, *states], [*expected[:2], *expected[2]])


@few_cases
@pytest.mark.parametrize("jit", fast([False, True], [False]))
@pytest.mark.each_value
def test_masked_steps_may_hold_anything(name, jit):
    """The values at masked steps change neither outputs nor gradients."""
    layer = CASES[name].built()
    sequences, memory = tensors()

    def call(*inputs):
        return layer(*inputs, **MASKS, return_attention_scores=True)

    found = [gradients(layer, call, x, jit) for x in ((sequences, memory), spoiled_tensors())]
    assert_all_close(*([*outputs, *grads] for outputs, grads in found))


@pytest.mark.parametrize("name", ["bahdanau-lstm-concat", "current-stack-concat", "feeding-stack"])
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.each_value
def test_gradients_are_those_of_the_loop(name, training):
    small = {"bahdanau-lstm-concat": (("lstm", 3),)}.get(name, (("lstm", 2), ("gru", 3)))
    decoder = replace(CASES[name], cells=small)
    layer = decoder.built(d=2, dv=5, return_state=True)
    inputs = normal(1, B, 3, 2), normal(2, B, 5, 5)
    masks = {"sequences_mask": SEQUENCES_MASK[:, :3], "memory_mask": MEMORY_MASK[:, :5]}

    def call(*inputs):
        options = {"return_attention_scores": True, "training": training}
        outputs, *states, weights = layer(*inputs, **masks, **options)
        return [outputs, *without_position(layer, states), weights]

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


def with_initial_state(form):
    decoder, given, initial, fed = forms_of_initial_state()[form]
    layer, (sequences, memory) = decoder.built(), tensors()
    expected = decoder.run_oracle(layer, sequences, memory, initial=initial, input_feed=fed)[0]
    return layer, given, sequences, memory, expected


@pytest.mark.parametrize("form", forms_of_initial_state())
def test_initial_state(form):
    layer, given, sequences, memory, expected = with_initial_state(form)
    assert_close(layer(sequences, memory, initial_state=given), expected)
    assert_close(layer(sequences, memory, given), expected)
    prepared = layer.prepare(memory)
    state = layer.get_initial_state(prepared, given)
    output, *_ = layer.step(sequences[:, 0], state, prepared)
    assert_close(output, expected[:, 0])


@pytest.mark.parametrize("form", fast(forms_of_initial_state(), ["feeding: flat"]))
def test_initial_state_of_a_functional_model(form):
    layer, given, sequences, memory, expected = with_initial_state(form)
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


@pytest.mark.parametrize(
    "name",
    fast(["bahdanau-stack", "feeding", "previous-local-m"], ["feeding", "previous-local-m"]),
)
def test_last_states_continue_the_sequence(name):
    layer = CASES[name].built(return_state=True)
    sequences, memory = tensors()
    whole = layer(sequences, memory)
    _, *states = layer(sequences[:, :2], memory)
    rest, *states = layer(sequences[:, 2:], memory, initial_state=states)
    assert_all_close([rest, *states], [whole[0][:, 2:], *whole[1:]])


@pytest.mark.parametrize("return_state", [False, True])
@pytest.mark.parametrize("scores", [False, True])
@pytest.mark.parametrize("name", ["bahdanau", "feeding"])
@pytest.mark.each_value
def test_returned_values(name, return_state, scores):
    layer = CASES[name].built(return_state=return_state)
    inputs = tensors()
    outputs, weights, states = CASES[name].run_oracle(layer, *inputs)
    result = layer(*inputs, return_attention_scores=scores)
    expected = [outputs, *(states if return_state else []), *([weights] if scores else [])]
    assert isinstance(result, list) == (len(expected) > 1)
    assert_all_close(result if len(expected) > 1 else [result], expected)


@few_cases
def test_unrolled_is_the_loop(name):
    layer = CASES[name].built(return_state=True)
    unrolled = CASES[name].built(return_state=True, unroll=True)
    results = (x(*tensors(), **MASKS, return_attention_scores=True) for x in (unrolled, layer))
    assert_all_close(*map(keras.tree.flatten, results))


@pytest.mark.parametrize("name", ["bahdanau", "current", "feeding"])
def test_keys_are_projected_once(name):
    decoder = CASES[name]
    calls = []

    class Counting(decoder.mechanism.layer):
        def project_key(self, key):
            calls.append(key.shape)
            return super().project_key(key)

    # In eager mode code inside the loop runs at every step.
    layer = replace(decoder, mechanism=replace(decoder.mechanism, layer=Counting)).make()
    inputs = tensors()
    layer(*inputs)
    calls.clear()
    layer(*inputs)
    assert calls == [(B, TK, DV)]


@on_tensorflow
@pytest.mark.parametrize(
    "options", fast([PREVIOUS, FEEDING, CURRENT], [CURRENT]), ids=["previous", "feeding", "current"]
)
def test_positions_beyond_256_are_exact_in_bfloat16(options):
    import tensorflow as tf

    steps = 300
    attention = LuongAttention("general", "local-m", half_width=1, dtype="bfloat16")
    cell = layers.GRUCell(2, dtype="bfloat16", **INITIALIZER)
    layer = AttentionRNN(cell, attention, dtype="bfloat16", **options)
    inputs = [tensor(normal(n, 1, steps, 2), "bfloat16") for n in range(2)]
    layer(inputs[0][:, :2], inputs[1][:, :2])
    run = tf.function(lambda *x: layer(*x, return_attention_scores=True)[1])
    inside = numpy(run(*inputs))[0] > 0
    rows, columns = np.indices(inside.shape)
    assert np.array_equal(inside, np.abs(rows - columns) <= 1)


class Still(layers.Layer):
    """A cell whose state never changes."""

    state_size = H

    def call(self, inputs, states):
        return states[0], states


def assert_gradients_add_up(attention, names):
    """The gradients of a thousand equal steps are a thousand times the gradient of one step."""
    import tensorflow as tf

    cell = Still(dtype=attention.dtype_policy)
    layer = AttentionRNN(cell, attention, query="previous", output_mode="attention")
    layer.build((None, None, D), (None, None, DV))
    state, memory = normal(1, B, H, dtype="bfloat16"), normal(2, B, TK, DV, dtype="bfloat16")

    @tf.function
    def gradients(steps):
        with tf.GradientTape() as tape:
            outputs = layer(ops.zeros((B, steps, D)), memory, initial_state=state)
            mixed = ops.cast(outputs, "float32") * normal(3, B, 1, DV).astype("float32")
            loss = ops.sum(mixed)
        return tape.gradient(loss, [getattr(attention, name).value for name in names])

    for one, many in zip(gradients(1), gradients(1000), strict=True):
        one, many = numpy(one), numpy(many)
        assert np.abs(one).max() > 0
        np.testing.assert_allclose(many, 1000 * one, rtol=0, atol=20 * np.abs(one).max())


MIXED = {"dtype": "mixed_bfloat16"}


# bfloat16 cannot count beyond 256.
@pytest.mark.slow
@on_tensorflow
def test_gradients_by_the_keys_of_many_steps_add_up_in_mixed_precision():
    assert_gradients_add_up(BahdanauAttention(17, **MIXED), ["key_kernel"])
    assert_gradients_add_up(LuongAttention("general", **MIXED), ["score_kernel"])


@on_tensorflow
@pytest.mark.parametrize("name", fast(["query_kernel", "score_vector"], ["score_vector"]))
def test_gradients_by_the_weights_of_many_steps_add_up_in_mixed_precision(name):
    assert_gradients_add_up(BahdanauAttention(17, **MIXED), [name])


@on_tensorflow
@pytest.mark.parametrize("jit", fast([None, False, True], [None, False]))
@pytest.mark.parametrize("empty", ["batch", "steps", "memory"])
@few_cases
@pytest.mark.each_value
def test_empty_axes(name, empty, jit):
    """Without samples, steps or memory the shapes are right and the gradients finite."""
    import tensorflow as tf

    layer = CASES[name].built(return_state=True)
    batch = 0 if empty == "batch" else B
    steps, length = (0 if empty == "steps" else T), (0 if empty == "memory" else TK)
    inputs = normal(1, batch, steps, D), normal(2, batch, length, DV)
    masks = {
        "sequences_mask": np.ones((batch, steps), bool),
        "memory_mask": np.ones((batch, length), bool),
    }
    sizes = [state.shape[1] for state in flat_states(layer, length)]
    initial = [normal([3, n], batch, size) for n, size in enumerate(sizes)]

    def run(sequences, memory):
        with tf.GradientTape() as tape:
            results = layer(
                sequences, memory, initial_state=initial, **masks, return_attention_scores=True
            )
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
    for gradient in found:
        assert gradient is None or np.isfinite(numpy(tensor(gradient))).all()


@few_cases
def test_no_step_keeps_the_state_without_a_mask_too(name):
    layer = CASES[name].built(return_state=True)
    sizes = [state.shape[1] for state in flat_states(layer)]
    initial = [normal([3, n], B, size) for n, size in enumerate(sizes)]
    inputs = tensor(normal(1, B, 0, D)), tensor(normal(2, B, TK, DV))
    outputs, *states = layer(*inputs, initial_state=[tensor(x) for x in initial])
    assert outputs.shape[:2] == (B, 0)
    assert_all_close(without_position(layer, states), initial)


def flat_states(layer, length=TK):
    state = layer.get_initial_state(layer.prepare(normal(2, B, length, DV)))
    return leaves(state[:3])
