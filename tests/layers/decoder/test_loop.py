"""The gradient of our own that the loop of a decoder has in training."""

import keras
import numpy as np
import pytest
from keras import layers, ops

from keras_attention import (
    AttentionRNN,
    BahdanauAttention,
    ForwardAttention,
    LocationSensitiveAttention,
    LuongAttention,
    MonotonicAttention,
    RecurrentScoringMixin,
    ResidualRNNCells,
)
from keras_attention.layers.decoder import _loop
from keras_attention.layers.decoder._attention_sites import attention_site
from keras_attention.ops import additive_score
from keras_attention.ops.loops import leaves, scan
from keras_attention.recurrence import _recur
from tests.backends import compiled, on_tensorflow, tensor
from tests.helpers import TK, B, assert_all_close, normal, numpy
from tests.layers.decoder.cases import CURRENT, DV, FEEDING, MASKS, PREVIOUS, D, H, T, tensors


class OwnScore(BahdanauAttention):
    """Scores one query by the inherited method, and several by code of its own."""

    def score(self, query, key):
        if query.shape[1] == 1:
            return super().score(query, key)
        return additive_score(query, key, self.score_vector)


CELLS = {
    "gru": lambda dtype: layers.GRUCell(H, dtype=dtype),
    "gru, reset before": lambda dtype: layers.GRUCell(H, dtype=dtype, reset_after=False),
    "gru without bias": lambda dtype: layers.GRUCell(H, dtype=dtype, use_bias=False),
    "lstm": lambda dtype: layers.LSTMCell(H, dtype=dtype, activation="relu"),
    "stack": lambda dtype: [layers.LSTMCell(5, dtype=dtype), layers.GRUCell(H, dtype=dtype)],
    "residual": lambda dtype: ResidualRNNCells(
        [layers.LSTMCell(H, dtype=dtype), layers.GRUCell(H, dtype=dtype)], dtype=dtype
    ),
    "a stack of one": lambda dtype: [layers.LSTMCell(H, dtype=dtype)],
    "gates by softmax": lambda dtype: layers.LSTMCell(
        H, dtype=dtype, recurrent_activation="softmax"
    ),
}
ATTENTIONS = {
    "additive": lambda dtype: BahdanauAttention(17, use_bias=True, weight_norm=True, dtype=dtype),
    "local-m": lambda dtype: LuongAttention(
        "general", "local-m", half_width=2, units=7, dtype=dtype
    ),
    "local-p": lambda dtype: LuongAttention(
        "concat", "local-p", half_width=2, units=7, dtype=dtype
    ),
    "concat": lambda dtype: LuongAttention("concat", units=7, dtype=dtype),
    "a subclass": lambda dtype: OwnScore(TK, dtype=dtype),
    "location": lambda dtype: LocationSensitiveAttention(7, 3, 5, dtype=dtype),
    "forward": lambda dtype: ForwardAttention(7, transition_agent=True, dtype=dtype),
    "chunks": lambda dtype: MonotonicAttention(
        7, noise=0.0, chunk_size=2, initial_offset=0.0, dtype=dtype
    ),
}
OPTIONS = {"previous": PREVIOUS, "fed": FEEDING, "after": CURRENT}


def make(cell, attention, options, **more):
    layer = AttentionRNN(
        CELLS[cell]("float64"),
        ATTENTIONS[attention]("float64"),
        output_mode="concat",
        return_state=True,
        **OPTIONS[options],
        **more,
    )
    layer.build((None, T if layer.unroll else None, D), (None, None, DV))
    return layer


def results_and_gradients(layer, training, sequences, memory, masks=MASKS):
    import tensorflow as tf

    with tf.GradientTape() as tape:
        tape.watch((sequences, memory))
        options = {"training": training, "return_attention_scores": True}
        found = keras.tree.flatten(layer(sequences, memory, **masks, **options))
        loss = sum(ops.sum(ops.sin(ops.cast(x, "float64"))) for x in found)
    weights = [weight.value for weight in layer.trainable_weights]
    return [*found, *tape.gradient(loss, [sequences, memory, *weights])]


PLACES = ["eager", "graph", "XLA", "unknown sizes", "unrolled"]
# Every cell in every place; over them, every pair of an attention and an option.
COMBINATIONS = [
    pytest.param(
        cell,
        [*ATTENTIONS][(i + j) % len(ATTENTIONS)],
        [*OPTIONS][(i - j) % 3],
        place,
        # Unrolled loops take long to compile.
        marks=[pytest.mark.slow] * (place == "unrolled"),
    )
    for i, cell in enumerate(CELLS)
    for j, place in enumerate(PLACES)
]


@on_tensorflow
@pytest.mark.parametrize(("cell", "attention", "options", "place"), COMBINATIONS)
@pytest.mark.each_value
def test_the_gradient_of_training_is_that_of_tensorflow(cell, attention, options, place):
    """Without training, TensorFlow differentiates the loop."""
    import tensorflow as tf

    layer = make(cell, attention, options, unroll=place == "unrolled")
    inputs = [tensor(x) for x in tensors()]
    expected = [numpy(x) for x in results_and_gradients(layer, False, *inputs)]

    def run(*inputs):
        return results_and_gradients(layer, True, *inputs)

    if place != "eager":
        unknown = [tf.TensorSpec((None, None, n), "float64") for n in (D, DV)]
        signature = unknown if place == "unknown sizes" else None
        run = tf.function(run, signature, jit_compile=place == "XLA", autograph=False)
    assert_all_close(run(*inputs), expected)


@on_tensorflow
@pytest.mark.slow
def test_unknown_sizes_without_masks():
    import tensorflow as tf

    layer, inputs = make("gru", "additive", "previous"), [tensor(x) for x in tensors()]
    expected = [numpy(x) for x in results_and_gradients(layer, False, *inputs, masks={})]
    unknown = [tf.TensorSpec((None, None, n), "float64") for n in (D, DV)]
    run = tf.function(
        lambda *x: results_and_gradients(layer, True, *x, masks={}), unknown, autograph=False
    )
    assert_all_close(run(*inputs), expected)


class LastTwoAttention(RecurrentScoringMixin):
    """Its state, `(B, 2, Tk)`, holds the weights of two steps."""

    def initial_state(self, memory):
        batch, length = ops.shape(memory.value)[:2]
        return ops.zeros((batch, 2, length), self.score_dtype)

    def score(self, query, key, state):
        both = ops.sum(query, 2, keepdims=True) * ops.expand_dims(ops.sum(key, 2), 1)
        return both - ops.sum(state, 1, keepdims=True)

    def next_state(self, state, weights):
        return ops.stack([weights, state[:, 0]], axis=1)


@on_tensorflow
def test_unknown_sizes_with_a_state_of_three_axes():
    import tensorflow as tf

    cell = layers.GRUCell(H, dtype="float64")
    layer = AttentionRNN(cell, LastTwoAttention(dtype="float64"))
    layer.build((None, T, D), (None, None, DV))
    inputs = [tensor(x) for x in tensors()]
    expected = [numpy(x) for x in results_and_gradients(layer, False, *inputs, masks={})]
    unknown = [tf.TensorSpec((None, None, n), "float64") for n in (D, DV)]
    run = tf.function(
        lambda *x: results_and_gradients(layer, True, *x, masks={}), unknown, autograph=False
    )
    assert_all_close(run(*inputs), expected)


@on_tensorflow
@pytest.mark.parametrize("jit", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_noise_is_the_same_in_both_passes(jit, monkeypatch):
    attention = MonotonicAttention(7, chunk_size=2, initial_offset=0.0, seed=3, dtype="float64")
    layer = AttentionRNN(layers.GRUCell(H, dtype="float64"), attention)
    layer.build((None, T, D), (None, None, DV))
    inputs = [tensor(x) for x in tensors()]
    state = attention.seed_generator.state
    start = numpy(state)

    def run(training=True):
        state.assign(start)
        return compiled(results_and_gradients, jit)(layer, training, *inputs)

    found, advanced = run(), numpy(state)
    monkeypatch.setattr(_loop, "has_sites", lambda *_: False)  # TensorFlow differentiates the loop
    assert_all_close(found, [numpy(x) for x in run()])
    assert advanced.tolist() == numpy(state).tolist() != start.tolist()
    assert np.abs(numpy(found[0]) - numpy(run(training=False)[0])).max() > 1e-3


@pytest.mark.parametrize(
    ("attention", "expected"),
    [
        ("additive", [(B, 1, 17), (B, 1, TK)]),
        ("concat", [(B, 1, H), (B, 1, TK)]),
        ("local-p", [(B, 1, H)]),
        ("a subclass", [(B, 1, TK), (B, 1, TK)]),
    ],
)
def test_a_step_stores(attention, expected):
    """Projections and scores."""
    layer = make("gru", attention, "previous")
    site = attention_site(layer, layer.prepare(tensors()[1]), False)
    _, stored = site.apply(site.weights, tensor(normal(3, B, H)))
    assert [tuple(x.shape) for x in leaves(stored)] == expected


def test_the_backward_pass_stores_nothing_twice(monkeypatch):
    """It stores the gradients of the results of all parts, but no argument of a part."""
    counts = []

    def counting(*arguments, **options):
        last, outputs = scan(*arguments, **options)
        counts.append(len(leaves(outputs)))
        return last, outputs

    monkeypatch.setattr(_recur, "scan", counting)
    inputs = [tensor(x) for x in tensors()]
    results_and_gradients(make("gru", "additive", "previous"), True, *inputs)
    # Forward: output and weights, state, projection and scores, and the results: context and
    # weights of the attention, three of the GRU.
    assert counts == [2 + 1 + 2 + 5, 5]


def test_dropout_of_the_inputs_of_cells():
    """Dropout multiplies the same features of the inputs, fed ones too, at every step."""
    stack = [layers.LSTMCell(5, dropout=0.5, seed=1), layers.GRUCell(H, dropout=0.5, seed=2)]
    layer = AttentionRNN(stack, LuongAttention(units=7), input_feeding=True)
    sequences, memory = tensors("float32")
    found = numpy(layer(sequences, memory, training=True))
    keeps = []
    for cell, width in zip(layer.cell.cells, (D + 7, 5), strict=True):
        cell.seed_generator.state.assign(keras.random.SeedGenerator(cell.seed).state.value)
        keeps.append(numpy(cell.get_dropout_mask(keras.ops.ones((B, width)))))
        cell.reset_dropout_mask()
    prepared = layer.prepare(memory)
    state = layer.get_initial_state(prepared)
    cells, fed = state.cells, state.fed
    lower, upper = layer.cell.cells
    for i in range(T):
        x = np.concatenate([sequences[:, i], numpy(fed)], -1) * keeps[0]
        below, first = lower(x, cells[0])
        hidden, second = upper(below * keeps[1], [cells[1]])
        cells = [first, second[0]]
        fed = layer.attention.attend(hidden, prepared).output
        np.testing.assert_allclose(found[:, i], numpy(fed), rtol=0, atol=1e-6)


@on_tensorflow
def test_unknown_cells_and_frozen_weights():
    """A frozen attention and a subclass of a known cell train as well."""
    import tensorflow as tf

    class Doubled(layers.GRUCell):
        def call(self, inputs, states, training=False):
            return super().call(2 * inputs, states, training=training)

    inputs = [tensor(x, "float32") for x in tensors("float32")]
    for cell, frozen in ((Doubled(H), False), (layers.GRUCell(H), True)):
        layer = AttentionRNN(cell, BahdanauAttention(17))
        layer.build(inputs[0].shape, inputs[1].shape)
        layer.attention.trainable = not frozen
        found = []
        for training in (False, True):
            with tf.GradientTape() as tape:
                loss = ops.sum(ops.sin(layer(*inputs, training=training)))
            weights = [weight.value for weight in layer.trainable_weights]
            found.append([numpy(x) for x in tape.gradient(loss, weights)])
        assert len(found[0]) == (3 if frozen else 6)
        assert_all_close(found[1], found[0], "float32")


def test_sizes_of_the_cases():
    assert len({B, T, D, DV, H, TK}) == 6
