"""Local attention gives the same numbers whether it reads all scores or only its windows."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from keras_attention import AttentionRNN, LuongAttention
from keras_attention.attention import scoring
from keras_attention.ops.windows import dispatch as ways
from tests import fast
from tests.backends import graphs
from tests.helpers import assert_all_close, lengths_mask, normal, numpy, randomize

SIZES = B, TQ, TK, D = 2, 5, 43, 3
# Values of MIN_LENGTH_RATIO that make every memory long, or short.
LONG, SHORT = ({compiled: limit for compiled in (True, False)} for limit in (0, 10**6))


def make_layer(score, alignment, dtype="float64", kind=LuongAttention, **options):
    length = {"max_length": 47} if score == "location" else {}
    layer = kind(score, alignment, half_width=2, dtype=dtype, **length, **options)
    layer.build((None, None, D), (None, None, D))
    return randomize(layer, 7, scale=2)


def run(layer, jit, masks, unknown=False, weights_too=True):
    inputs = [tf.constant(normal(n, B, steps, D)) for n, steps in ((1, TQ), (2, TK))]
    signature = [tf.TensorSpec((None, None, D), "float64")] * 2 if unknown else None

    def step(query, value):
        with tf.GradientTape() as tape:
            tape.watch((query, value))
            outputs = layer(query, value, return_attention_scores=weights_too, **masks)
            outputs = outputs if weights_too else (outputs,)
            loss = tf.add_n([tf.reduce_sum(tf.sin(x)) for x in outputs])
        sources = [query, value, *(weight.value for weight in layer.trainable_weights)]
        return outputs, tape.gradient(loss, sources, unconnected_gradients="zero")

    if jit is not None:
        step = tf.function(step, signature, jit_compile=jit)
    return tf.nest.flatten(step(*inputs))


MASKS = {
    "none": {},
    "padding": {"value_mask": np.stack([lengths_mask([31], TK)[0], np.arange(TK) >= 6])},
    # One sample has a word, holes and words again; the other every second step.
    "holes": {"value_mask": np.stack([np.arange(TK) % 17 > 4, np.arange(TK) % 2 == 1])},
    "all": {
        "query_mask": lengths_mask([4, 5], TQ),
        "value_mask": lengths_mask([31, 0], TK),
        "attention_mask": np.random.default_rng(3).random((TQ, TK)) < 0.7,
        "use_causal_mask": True,
    },
}


@pytest.fixture
def assert_same(monkeypatch):
    def compare(wide, narrow=None, ratio=LONG):
        monkeypatch.setattr(ways, "MIN_LENGTH_RATIO", SHORT)
        expected = [numpy(x) for x in wide()]
        monkeypatch.setattr(ways, "MIN_LENGTH_RATIO", ratio)
        assert_all_close((narrow or wide)(), expected)

    return compare


@pytest.mark.parametrize("jit", [None, False, True], ids=["eager", "graph", "XLA"])
@pytest.mark.parametrize("masks", MASKS)
@pytest.mark.parametrize("score", ["dot", "general", "concat", "location"])
@pytest.mark.parametrize("alignment", ["local-m", "local-p"])
@pytest.mark.each_value
def test_both_ways_are_the_same(score, alignment, masks, jit, assert_same):
    layer, masks = make_layer(score, alignment), MASKS[masks]
    assert_same(lambda: run(layer, None, masks), lambda: run(layer, jit, masks))


@pytest.mark.parametrize("score", ["general", "concat"])
@pytest.mark.parametrize("jit", fast([False, True], [False]))
@pytest.mark.parametrize("weights_too", [False, True])
@pytest.mark.parametrize("worthwhile", [LONG, SHORT], ids=["long", "short"])
@pytest.mark.each_value
def test_unknown_lengths(score, jit, weights_too, worthwhile, assert_same):
    layer, options = make_layer(score, "local-p"), {"weights_too": weights_too}
    assert_same(
        lambda: run(layer, None, MASKS["padding"], **options),
        lambda: run(layer, jit, MASKS["padding"], unknown=True, **options),
        worthwhile,
    )


class Squaring(LuongAttention):
    def weigh(self, scores, mask):
        return super().weigh(scores, mask) ** 2


class Distance(LuongAttention):
    def score(self, query, key):
        return -ops.sum(ops.square(ops.expand_dims(query, 2) - ops.expand_dims(key, 1)), -1)


@pytest.mark.parametrize(("kind", "options", "jit", "unknown"), [
    (Squaring, {}, False, True),
    (Distance, {}, None, False),
    pytest.param(LuongAttention, {"units": 7, "normalizer": "sparsemax"}, True, False,
                 marks=pytest.mark.slow),
])  # fmt: skip
def test_subclasses_and_other_options(kind, options, jit, unknown, assert_same):
    layer = make_layer("dot", "local-p", kind=kind, **options)
    assert_same(lambda: run(layer, None, {}), lambda: run(layer, jit, {}, unknown))


@pytest.mark.parametrize("jit", [False, True])
def test_the_way_is_chosen_when_the_graph_runs(jit, monkeypatch):
    def nothing(weights, value, position):
        return tf.zeros_like(value[:, : tf.shape(weights)[1]])

    monkeypatch.setattr(scoring, "window_sum", nothing)
    monkeypatch.setattr(ways, "MIN_LENGTH_RATIO", {jit: 4})
    layer = make_layer("general", "local-p")
    signature = [tf.TensorSpec((None, None, D), "float64")] * 2
    graph = tf.function(lambda *x: layer(*x), signature, jit_compile=jit)
    for length, is_long in ((20, False), (21, True)):
        context = numpy(graph(normal(1, B, TQ, D), normal(2, B, length, D)))
        assert context.any() != is_long


@pytest.mark.parametrize("worthwhile", [LONG, SHORT], ids=["long", "short"])
def test_dropout_and_unknown_lengths(worthwhile, monkeypatch):
    monkeypatch.setattr(ways, "MIN_LENGTH_RATIO", worthwhile)
    layer = LuongAttention("dot", "local-p", half_width=1, dropout=0.5, seed=1)

    @tf.function(input_signature=[tf.TensorSpec((None, None, 5))] * 2)
    def step(query, value):
        with tf.GradientTape() as tape:
            tape.watch(value)
            total = tf.reduce_sum(layer(query, value, ops.ones_like(value), training=True))
        return total, tape.gradient(total, value)

    query, value = (normal(n, B, steps, 5).astype("float32") for n, steps in ((1, 7), (2, 41)))
    total, gradient = step(query, value)
    # The output is linear in the values: the gradient must know which weights were dropped.
    np.testing.assert_allclose(numpy(tf.reduce_sum(gradient * value)), numpy(total), rtol=1e-5)
    assert abs(numpy(step(query, value)[0]) - numpy(total)) > 0.1  # other weights were dropped


def decoder_of(score, alignment):
    attention = LuongAttention(score, alignment, half_width=2, dtype="float64")
    return AttentionRNN(keras.layers.GRUCell(7, dtype="float64"), attention, query="previous")


@pytest.mark.slow
@pytest.mark.parametrize(("make", "score", "alignment"), [
    *((make_layer, score, "local-p") for score in ("dot", "general", "concat")),
    *((decoder_of, *x) for x in (("general", "global"), ("concat", "local-p"))),
])  # fmt: skip
@pytest.mark.parametrize("worthwhile", [LONG, SHORT], ids=["long", "short"])
@pytest.mark.parametrize("jit", [None, True])
@pytest.mark.each_value
def test_a_tape_around_a_graph_of_unknown_lengths(
    make, score, alignment, worthwhile, jit, monkeypatch
):
    monkeypatch.setattr(ways, "MIN_LENGTH_RATIO", worthwhile)
    inputs = [tf.constant(normal(n, B, steps, D)) for n, steps in ((1, TQ), (2, TK))]
    layer, found = make(score, alignment), []
    layer(*inputs)
    signature = [tf.TensorSpec((None, None, D), "float64")] * 2
    for call in (tf.function(lambda *x: layer(*x), signature, jit_compile=jit), layer):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            loss = tf.reduce_sum(tf.sin(call(*inputs)))
        found.append(tape.gradient(loss, inputs))
    assert_all_close(*found)


@pytest.mark.parametrize("score", ["dot", "general", "concat"])
@pytest.mark.parametrize("alignment", ["local-m", "local-p"])
@pytest.mark.each_value
def test_long_memories_are_read_window_by_window(score, alignment):
    """Without the weights no tensor has an element for every query and memory step."""
    layer = make_layer(score, alignment, "float32")
    queries, steps = 97, 5 * ways.MIN_LENGTH_RATIO[True] + 1

    @tf.function
    def step(query, value):
        with tf.GradientTape() as tape:
            tape.watch((query, value))
            output = layer(query, value)
        return tape.gradient(output, (query, value))

    graph = step.get_concrete_function(tf.zeros((1, queries, D)), tf.zeros((1, steps, D))).graph
    functions = graphs(graph)
    shapes = [x.shape for one in functions for op in one.get_operations() for x in op.outputs]
    pairs = [shape for shape in shapes if shape.rank and queries in shape and steps in shape]
    assert len(functions) > 1
    assert not pairs
