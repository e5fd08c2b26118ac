import itertools
from dataclasses import dataclass, field, replace

import keras
import numpy as np
import oracles
import pytest
import tensorflow as tf
from helpers import (
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
    lengths_mask,
    normal,
    numpy,
    randomize,
    weight_arrays,
)
from keras import layers

from keras_attention import AttentionRNN, BahdanauAttention, LuongAttention

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
        options.setdefault("output", "cell" if options["query"] == "previous" else "attention")
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
    "bahdanau-lstm-concat": Decoder(BAHDANAU["sparse"], (("lstm", H),), {"output": "concat"}),
    "bahdanau-stack": Decoder(BAHDANAU["normalized"], STACK, {"output": "attention"}),
    "previous-local-m": Decoder(LUONG["general-local-m"], (("lstm", H),), PREVIOUS),
    "current": Decoder(LUONG["general-global"], (("gru", H),), CURRENT),
    "current-stack-concat": Decoder(VECTOR, STACK, {**CURRENT, "output": "concat"}),
    "current-dot-local-m": Decoder(LUONG["dot-local-m"], (("lstm", DV),), CURRENT),
    "current-bahdanau": Decoder(BAHDANAU["bias"], (("gru", H),), {**CURRENT, "output": "cell"}),
    "feeding": Decoder(VECTOR, (("lstm", H),), FEEDING),
    "feeding-stack": Decoder(LUONG["concat-local-m"], STACK, {**FEEDING, "output": "concat"}),
}
ATTENTIONS = {
    **{f"bahdanau-{name}": mechanism for name, mechanism in BAHDANAU.items()},
    **LUONG,
    "vector": VECTOR,
}
every_case = pytest.mark.parametrize("name", CASES)
SEQUENCES_MASK = np.array([[False, True, False, True, True], [True, True, True, False, False]])
MEMORY_MASK = np.stack([lengths_mask([5], TK)[0], np.arange(TK) >= 1])
MASKS = {"sequences_mask": SEQUENCES_MASK, "memory_mask": MEMORY_MASK}


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
        sequences, memory, memory_mask=MEMORY_MASK, return_attention_scores=True
    )
    expected = decoder.run_oracle(layer, sequences, memory, memory_mask=MEMORY_MASK)
    states = keras.tree.flatten(states)
    assert_all_close([outputs, weights, *states], [*expected[:2], *expected[2]])
    prepared, now = layer.prepare(memory, MEMORY_MASK), layer.get_initial_state(B)
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
        (LuongAttention(), {"output": "concat"}, "current", "concat"),
    ],
)
def test_defaults_are_those_of_the_paper_of_the_attention(attention, options, query, output):
    config = AttentionRNN(layers.GRUCell(H), attention, **options).get_config()
    assert (config["query"], config["output"]) == (query, output)


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
    attention = LuongAttention("general", "local-m", window=1, dtype="bfloat16")
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
    layer = AttentionRNN(layers.GRUCell(H), attention, output="attention")
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
        decoder = AttentionRNN(layers.GRUCell(H), BahdanauAttention(17), output="concat")
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
    "output": (
        (CELL, ATTENTION),
        {"output": "context"},
        ("`output`", "'cell', 'attention', 'concat'", "received 'context'"),
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
        ("`initial_state`", "must have shape (batch, 11)", "received (2, 12)"),
    ),
    "initial_state of another batch": (
        {**GOOD, "initial_state": (3, H)},
        ("batch size", "`sequences` and `initial_state`", "`sequences` 2, `initial_state` 3"),
    ),
    "initial_state of rank 3": (
        {**GOOD, "initial_state": (B, 1, H)},
        ("`initial_state`", "must have shape (batch, 11)", "received (2, 1, 11)"),
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
        "`initial_state` must hold the 1 states of the cell, of sizes [11]",
        "received 2 of shapes [(2, 11), (2, 11)]",
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
    assert_refused(lambda: layer.step(sequences[:, 0], states, prepared), "`position`", "None")


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
    assert_refused(lambda: layer.get_initial_state(B), "call the layer once, or its build()")
    assert_refused(lambda: layer.prepare(normal(0, B, TK, DV)), "no weights yet")
