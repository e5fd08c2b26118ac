"""The gradient of our own that the loop of a decoder has in training."""

from functools import partial

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers, ops

import keras_attention as ka
from keras_attention.backend import leaves
from keras_attention.decoder import attention_rnn
from keras_attention.decoder._step_ops import AttentionOp
from keras_attention.ops.additive import additive_score
from tests import fast, helpers
from tests.backends import compiled, gradients_by, tensor
from tests.decoder.cases import CURRENT, DV, FEEDING, MASKS, PREVIOUS, D, H, T, tensors
from tests.helpers import BAHDANAU, HEADS, TK, AnyCell, B, assert_all_close, normal, numpy
from tests.recurrence.counts import counted_outputs

both = pytest.mark.parametrize("training", [False, True])


class OwnScore(ka.BahdanauAttention):
    """Scores one query by the inherited method, and several by code of its own."""

    def score(self, query, key):
        if query.shape[1] == 1:
            return super().score(query, key)
        return additive_score(query, key, self.score_vector)


DOUBLE = {"dtype": "float64"}
GRU, LSTM = (partial(kind, H, **DOUBLE) for kind in (layers.GRUCell, layers.LSTMCell))
CELLS = {
    "gru": GRU,
    "gru, reset before": partial(GRU, reset_after=False),
    "gru without bias": partial(GRU, use_bias=False),
    "lstm": partial(LSTM, activation="relu"),
    "stack": lambda: [layers.LSTMCell(5, **DOUBLE), GRU()],
    "residual": lambda: ka.ResidualRNNCells([LSTM(), GRU()], **DOUBLE),
    "a stack of one": lambda: [LSTM()],
    "gates by softmax": partial(LSTM, recurrent_activation="softmax"),
}
ATTENTIONS = {
    "additive": partial(ka.BahdanauAttention, 17, use_bias=True, weight_norm=True),
    "local-m": partial(ka.LuongAttention, "general", "local-m", half_width=2, units=7),
    "local-p": partial(ka.LuongAttention, "concat", "local-p", half_width=2, units=7),
    "concat": partial(ka.LuongAttention, "concat", units=7),
    "a subclass": partial(OwnScore, TK),
    "location": partial(ka.LocationSensitiveAttention, 7, 3, 5),
    "forward": partial(ka.ForwardAttention, 7, transition_agent=True),
    "chunks": partial(ka.MonotonicAttention, 7, noise=0.0, chunk_size=2, initial_offset=0.0),
}
OPTIONS = {"previous": PREVIOUS, "fed": FEEDING, "after": CURRENT}


def built(layer):
    layer.build((None, T if layer.unroll else None, D), (None, None, DV))
    return layer


def make(cell, attention, options, **more):
    parts = CELLS[cell](), ATTENTIONS[attention](**DOUBLE)
    options = {"output_mode": "concat", "return_state": True, **OPTIONS[options], **more}
    return built(ka.AttentionRNN(*parts, **options))


def doubles():
    return [tensor(x) for x in tensors()]


def results_and_gradients(layer, training, sequences, memory, masks=MASKS):
    with tf.GradientTape() as tape:
        tape.watch((sequences, memory))
        options = {"training": training, "return_attention_scores": True}
        found = keras.tree.flatten(layer(sequences, memory, **masks, **options))
        loss = sum(ops.sum(ops.sin(ops.cast(x, "float64"))) for x in found)
    weights = [weight.value for weight in layer.trainable_weights]
    return [*found, *tape.gradient(loss, [sequences, memory, *weights])]


UNKNOWN = [tf.TensorSpec((None, None, n), "float64") for n in (D, DV)]
MODES = ["eager", "graph", "XLA", "unknown sizes", "unrolled"]
# Every cell in every mode; over them, every pair of an attention and an option.
COMBINATIONS = [
    pytest.param(
        cell,
        [*ATTENTIONS][(i + j) % len(ATTENTIONS)],
        [*OPTIONS][(i - j) % 3],
        place,
        # The others take long to compile.
        marks=[pytest.mark.slow] * (place != "eager" and (place, cell) != ("graph", "lstm")),
    )
    for i, cell in enumerate(CELLS)
    for j, place in enumerate(MODES)
]


@pytest.mark.parametrize(("cell", "attention", "options", "place"), COMBINATIONS)
@pytest.mark.each_value(slow=3)
def test_the_gradient_of_training_is_that_of_tensorflow(cell, attention, options, place):
    """Without training, TensorFlow differentiates the loop."""
    layer, inputs = make(cell, attention, options, unroll=place == "unrolled"), doubles()
    expected = [numpy(x) for x in results_and_gradients(layer, False, *inputs)]
    run = partial(results_and_gradients, layer, True)
    if place != "eager":
        signature = UNKNOWN if place == "unknown sizes" else None
        run = tf.function(run, signature, jit_compile=place == "XLA", autograph=False)
    assert_all_close(run(*inputs), expected)


SIDE_BY_SIDE = {
    **helpers.RECURRENT,
    "heads": HEADS["heads, location"],
    "no state": BAHDANAU["bias"],
}
# Every kind of state first: the others take long to compile, and resemble one of these.
SIDES = "location", "forward, agent", "monotonic, chunks", "gmm V2b", "heads", "no state"
SIDES = [*SIDES, *(name for name in SIDE_BY_SIDE if name not in SIDES)]


@pytest.mark.parametrize("attention", fast(SIDES, SIDES[:1], slow=5))
@pytest.mark.parametrize("place", ["XLA", "unknown sizes"])
@pytest.mark.parametrize("most", [1, 2**27])
@pytest.mark.each_value(slow=5)
def test_the_gradient_for_a_gpu_is_the_same(attention, place, most, monkeypatch):
    """A step writes its outputs as one tensor; steps are differentiated side by side."""
    attention = SIDE_BY_SIDE[attention].make(dtype="float64")
    attention.noise = 0.0
    cell = layers.GRUCell(H, dtype="float64")
    layer = ka.AttentionRNN(cell, attention, query="previous", return_state=True)
    layer.build((None, None, D), (None, None, DV))
    inputs = [tensor(x) for x in tensors()]
    expected = [numpy(x) for x in results_and_gradients(layer, True, *inputs)]
    monkeypatch.setattr(ka.backend.tensorflow, "_device", lambda: "gpu")
    monkeypatch.setattr(ka.recurrence, "MAX_VECTORIZED", most)

    def run(*inputs):
        return results_and_gradients(layer, True, *inputs)

    signature = UNKNOWN if place == "unknown sizes" else None
    run = tf.function(run, signature, jit_compile=place == "XLA", autograph=False)
    assert_all_close(run(*inputs), expected)


@both
def test_training_rounds_unknown_lengths_up(training, monkeypatch):
    """XLA then compiles the loop on its own, and must not compile a program for every length."""
    rounded, round_up = [], ka.recurrence.round_up_length
    monkeypatch.setattr(
        ka.recurrence, "round_up_length", lambda size: rounded.append(jit) or round_up(size)
    )
    layer = make("gru", "additive", "previous")
    for jit in (False, True):
        run = tf.function(lambda *x: layer(*x, training=training), UNKNOWN, jit_compile=jit)
        run.get_concrete_function()
    assert rounded == [False] * training  # once, and never inside XLA


@pytest.mark.parametrize("jit", [False, pytest.param(True, marks=pytest.mark.exhaustive)])
def test_noise_is_the_same_in_both_passes(jit, monkeypatch):
    attention = ka.MonotonicAttention(7, chunk_size=2, initial_offset=0.0, seed=3, **DOUBLE)
    layer, inputs = built(ka.AttentionRNN(GRU(), attention)), doubles()
    state = attention._seed_generator.state
    start = numpy(state)

    def run(training=True):
        state.assign(start)
        return compiled(results_and_gradients, jit)(layer, training, *inputs)

    found, advanced = run(), numpy(state)
    # TensorFlow differentiates the loop.
    monkeypatch.setattr(attention_rnn, "runs_as_ops", lambda *_: False)
    assert_all_close(found, [numpy(x) for x in run()])
    assert advanced.tolist() == numpy(state).tolist() != start.tolist()
    assert np.abs(numpy(found[0]) - numpy(run(training=False)[0])).max() > 1e-3


@pytest.mark.parametrize(("attention", "expected"), [
    ("additive", [(B, 1, 17), (B, 1, TK)]),
    ("concat", [(B, 1, H), (B, 1, TK)]),
    ("local-p", [(B, 1, H)]),
    ("a subclass", [(B, 1, TK), (B, 1, TK)]),
])  # fmt: skip
def test_a_step_stores(attention, expected):
    layer = make("gru", attention, "previous")
    op = AttentionOp(layer.attention, layer.prepare(tensors()[1]), differentiated=True)
    _, stored = op.forward(op.params, tensor(normal(3, B, H)), None, None, None)
    assert [tuple(x.shape) for x in leaves(stored)] == expected


def test_the_backward_pass_stores_nothing_twice(monkeypatch):
    """It stores the gradients of the results of all ops, but no argument of an op."""
    counts = counted_outputs(monkeypatch)
    results_and_gradients(make("gru", "additive", "previous"), True, *doubles())
    # Forward: output and weights, state, projection and scores, and the other results: the context
    # of the attention, three of the GRU.
    assert counts == [2 + 1 + 2 + 4, 5]


def test_dropout_of_the_inputs_of_cells():
    """Dropout multiplies the same features of the inputs, fed ones too, at every step."""
    stack = [layers.LSTMCell(5, dropout=0.5, seed=1), layers.GRUCell(H, dropout=0.5, seed=2)]
    layer = ka.AttentionRNN(stack, ka.LuongAttention(units=7), input_feeding=True)
    sequences, memory = tensors("float32")
    found = numpy(layer(sequences, memory, training=True))
    keeps = []
    for cell, width in zip(layer.cell.cells, (D + 7, 5), strict=True):
        cell.seed_generator.state.assign(keras.random.SeedGenerator(cell.seed).state.value)
        keeps.append(numpy(cell.get_dropout_mask(keras.ops.ones((B, width)))))
        cell.reset_dropout_mask()
    prepared = layer.prepare(memory)
    state = layer.get_initial_state(prepared)
    cells, fed = state.cells, state.input_feed
    lower, upper = layer.cell.cells
    for i in range(T):
        x = np.concatenate([sequences[:, i], numpy(fed)], -1) * keeps[0]
        below, first = lower(x, cells[0])
        hidden, second = upper(below * keeps[1], [cells[1]])
        cells = [first, second[0]]
        fed = layer.attention.attend(hidden, prepared).output
        np.testing.assert_allclose(found[:, i], numpy(fed), rtol=0, atol=1e-6)


def test_a_frozen_attention():
    layer = built(ka.AttentionRNN(GRU(), additive()))
    layer.attention.trainable = False
    found = [results_and_gradients(layer, training, *doubles()) for training in (False, True)]
    assert len(layer.trainable_weights) == 3
    assert_all_close(*found)


class Query(layers.GRUCell):  # A cell whose query has weights of its own
    def __init__(self, units, **kwargs):
        super().__init__(units, **kwargs)
        self.projection = layers.Dense(units, dtype=self.dtype_policy)

    def query(self, states):
        return self.projection(states[0])


class Twice(ka.RecurrentScoringMixin):
    """Its state holds one tensor in two places, which change from step to step."""

    def initial_state(self, memory):
        first = memory.value[:, :, 0]
        return [first, first, first + 1]

    def score(self, query, key, state):
        first, second, third = state
        seen = ops.sin(first) + ops.cos(2 * second) - third
        return ops.sum(query, -1, keepdims=True) * ops.expand_dims(seen, 1)

    def next_state(self, state, weights):
        first, second, third = state
        new = weights * second - third
        return [weights + first * 0.5, new, new]


additive = partial(ka.BahdanauAttention, 5, **DOUBLE)
SHARED = {
    "a state": lambda cell: ka.AttentionRNN(cell(H, **DOUBLE), Twice(**DOUBLE), **FEEDING),
    "a query with weights": lambda cell: ka.AttentionRNN(Query(H, **DOUBLE), additive()),
    "an activation with weights": lambda cell: ka.AttentionRNN(
        cell(H, activation=layers.PReLU(**DOUBLE), **DOUBLE), additive()
    ),
}


@pytest.mark.parametrize("name", SHARED)
@pytest.mark.parametrize("training", fast([False, True], [True]))
def test_tensors_in_two_places_and_weights_of_a_cell(name, training):
    found = []
    for cell in (layers.GRUCell, AnyCell):
        keras.utils.set_random_seed(3)
        layer = built(SHARED[name](cell))
        found.append(results_and_gradients(layer, training, *doubles(), masks={}))
    assert_all_close(*found)


@pytest.mark.parametrize("cell", [GRU, LSTM])
@pytest.mark.parametrize("unroll", [False, True])
def test_one_tensor_may_start_all_cells(cell, unroll):
    layer = ka.AttentionRNN([cell(), cell()], additive(), unroll=unroll)
    state = tensor(normal(3, B, H))  # of the right dtype: a cast would make copies
    count = len(keras.tree.flatten(layer.cell.state_size))
    found = layer(*doubles(), initial_state=[state] * count)
    copies = [ops.copy(state) for _ in range(count)]
    assert_all_close([found], [layer(*doubles(), initial_state=copies)])


class AnyResidual(ka.ResidualRNNCells):
    """The same stack with a call of its own, so that the decoder calls it."""

    def call(self, *args, **kwargs):
        return super().call(*args, **kwargs)


def test_residual_cells_add_the_whole_input():
    """Dropout is for the products of a cell, as in the call of the stack itself."""
    found = []
    for stack in (ka.ResidualRNNCells, AnyResidual):
        keras.utils.set_random_seed(3)
        cells = [layers.GRUCell(H, dropout=0.5, seed=n) for n in range(3)]
        layer = ka.AttentionRNN(stack(cells), ka.BahdanauAttention(5))
        found.append(layer(*tensors("float32"), training=True))
    assert_all_close(found[:1], found[1:], "float32")


class Cast(ka.ScoringMixin):
    """Its hooks expect the compute dtype, which Keras gives to variables in a call."""

    def build(self, query_shape, value_shape=None, key_shape=None):
        super().build(query_shape, value_shape, key_shape)
        self.kernel = self.add_weight((query_shape[-1], value_shape[-1]), name="kernel")
        self.square = self.add_weight((value_shape[-1], value_shape[-1]), name="square")

    def score(self, query, key):
        query, key = (ops.cast(x, self.compute_dtype) for x in (query, key))
        return ops.einsum("bqd,bkd->bqk", ops.matmul(query, self.kernel), key)

    def combine(self, query, context):
        return ops.tanh(ops.matmul(context, self.square))


@both
def test_hooks_in_mixed_precision(training):
    """A gradient runs them again, outside of the call of the layer."""
    mixed = {"dtype": "mixed_bfloat16"}
    layer = built(ka.AttentionRNN(layers.GRUCell(H, **mixed), Cast(**mixed)))

    def loss(*inputs):
        outputs = layer(*inputs, training=training)
        return ops.sum(ops.cast(outputs, "float32") ** 2), ()

    _, found = gradients_by(loss, tensors("float32"), layer.trainable_variables)
    assert all(np.isfinite(numpy(x)).all() and np.any(numpy(x)) for x in found)
