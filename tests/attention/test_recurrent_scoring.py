"""Attentions with a state: their hooks, and what those of the papers have in common."""

import itertools

import keras
import numpy as np
import pytest
from keras import ops

import keras_attention as ka
from keras_attention.attention import Window
from tests import fast, helpers
from tests.backends import on_tensorflow, tensor
from tests.decoder.test_cells import Counting
from tests.helpers import DV, RECURRENT, TK, TQ, AnyCell, B, assert_close, normal, numpy
from tests.layers.papers import run
from tests.past_weights import PastWeightsAttention

T, D, H = 5, 3, 11


class Steps(ka.RecurrentScoringMixin):
    """Reads memory step i at step i, in training at step i + 1; counts steps in a nested state."""

    def initial_state(self, memory):
        count = ops.zeros((ops.shape(memory.value)[0],), "int32")
        return {"count": count, "last": (ops.zeros_like(memory.key[:, :, 0]), None)}

    def advance(self, step, state):
        place = ops.expand_dims(state["count"], 1) + int(bool(step.training))
        length = ops.shape(step.memory.value)[1]
        weights = ops.cast(ops.arange(length, dtype="int32") == place, self.score_dtype)
        return ops.expand_dims(weights, 1), {"count": state["count"] + 1, "last": (weights, None)}

    def sequence_loss(self, weights, query_mask, memory_mask):
        return ops.sum(weights)


def inputs():
    return normal(1, B, TQ, helpers.DQ, dtype="float32"), normal(2, B, TK, DV, dtype="float32")


def decoded():
    return normal(1, B, T, D, dtype="float32"), inputs()[1]


def called(layer):
    query, value = inputs()
    layer(query, value)
    return tensor(query), layer.prepare(tensor(value))


@pytest.mark.parametrize("training", [False, True])
def test_advance_may_do_everything(training):
    query, value = inputs()
    mask = np.array([[True, True, True], [True, False, True]])
    context = numpy(Steps()(query, value, query_mask=mask, training=training))
    for b, i, read in ((0, 0, 0), (0, 1, 1), (0, 2, 2), (1, 0, 0), (1, 2, 1)):
        assert_close(context[b, i], value[b, read + training], "float32")
    assert not context[1, 1].any()


@on_tensorflow
@pytest.mark.parametrize("options", [{}, {"query": "current"}, {"input_feeding": True}])
@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.each_value
def test_a_nested_state_in_a_decoder(options, graph):
    """The state of any nesting and dtype, and the flag of training, reach the attention."""
    import tensorflow as tf

    (sequences, memory), options = decoded(), {"output_mode": "attention", **options}
    layer = ka.AttentionRNN(keras.layers.GRUCell(H), Steps(), return_state=True, **options)
    call = tf.function(layer, autograph=False) if graph else layer
    for training in (False, True):
        outputs, *_, count, last = call(sequences, memory, training=training)
        assert_close(outputs, memory[:, training : T + training], "float32")
        assert numpy(count).tolist() == [T] * B
        assert numpy(last).argmax(-1).tolist() == [T - 1 + training] * B


@on_tensorflow
def test_a_cell_may_assign_its_weights():
    import tensorflow as tf

    for attention in (PastWeightsAttention(), Noisy()):
        layer = ka.AttentionRNN(Counting(H), attention)
        layer(*decoded())
        layer.cell.steps.assign(0.0)
        tf.function(layer, autograph=False)(*decoded(), training=True)
        assert int(layer.cell.steps) == T


def test_the_loss_of_a_sequence_is_added_once():
    query, value = inputs()
    layer = Steps()
    layer(query, value)
    assert [float(x) for x in layer.losses] == [B * TQ]
    decoder = ka.AttentionRNN(keras.layers.GRUCell(H), Steps(), output_mode="concat")
    for trainable in (True, False):
        decoder.attention.trainable = trainable
        decoder(query, value)
        assert [float(x) for x in decoder.losses] == [B * TQ]
    decoder(query[:, :0], value)
    assert [float(x) for x in decoder.losses] == [0.0]
    given = keras.Input((None, helpers.DQ)), keras.Input((None, DV))
    model = keras.Model(given, 0 * decoder(*given))
    model.compile("sgd", "mse")
    zeros = np.zeros((B, TQ, H + DV))
    assert model.evaluate([query, value], zeros, verbose=0) == pytest.approx(B * TQ)


NEXT = "the next state must have the structure, shapes and dtypes of float32 of shape (2, 7)"
FLOATS = "must return floating-point values of shape (2, 1, 7)"


def mistaken(**hooks):
    return lambda: type("Mistaken", (PastWeightsAttention,), hooks)()(*inputs())


test_hooks_that_return_something_else = helpers.refusals(
    (mistaken(next_state=lambda self, state, weights: weights[:, 1:]),
     NEXT, "float32 of shape (2, 6)."),
    (mistaken(next_state=lambda self, state, weights: ops.cast(state + weights, "int32")),
     NEXT, "received int32 of shape (2, 7)"),
    (mistaken(score=lambda self, query, key, state: ops.cast(key[:, None, :, 0], "int32")),
     f"`score` {FLOATS}", "received int32 of shape (2, 1, 7)"),
    (mistaken(score=lambda self, query, key, state: state), f"`score` {FLOATS}"),
    (mistaken(advance=lambda self, step, state: (state, state)), f"`advance` {FLOATS}"),
    (mistaken(advance=lambda self, step, state: state),
     "`advance` must return the weights and the next state"),
    (mistaken(initial_state=lambda self, memory: 0.0),
     "`initial_state` must return tensors whose first axis is the batch, here 2; received 0.0"),
    (mistaken(weigh=lambda self, scores, mask, state: state), f"`weigh` {FLOATS}"),
    (mistaken(window=lambda self, query, memory, position: Window(query[..., 0], 1, True)),
     "Gaussian", "Window(center, half_width)"),
    (lambda: type("Scalar", (Noisy,), {"sample_noise": lambda self, memory, steps: 3.0})()(
        *inputs(), training=True),
     "first two axes are the steps and the batch, here 2; received"),
)  # fmt: skip


@pytest.mark.parametrize("hooks", ["initial_state", "score", "next_state"])
def test_hooks_that_are_missing(hooks):
    given = {
        "initial_state": lambda self, memory: memory.value[:, :, 0],
        "score": lambda self, query, key, state: ops.expand_dims(state, 1),
    }
    given = dict(itertools.takewhile(lambda x: x[0] != hooks, given.items()))
    with pytest.raises(NotImplementedError, match=f"Nothing must define {hooks}"):
        type("Nothing", (ka.RecurrentScoringMixin,), given)()(*inputs())
    with pytest.raises(TypeError, match=r"define score\(self, query, key, state\); found"):
        type("Mistaken", (ka.RecurrentScoringMixin,), {"score": lambda self, query, key: query})


class Named(PastWeightsAttention):  # its state has two parts of one shape
    def initial_state(self, memory):
        return dict.fromkeys(("total", "last"), super().initial_state(memory))

    def score(self, query, key, state):
        return super().score(query, key, state["total"])

    def next_state(self, state, weights):
        return {"total": state["total"] + weights, "last": weights}


def test_the_parts_of_a_state_keep_their_places():
    layer, whole, past = Named(), "float32 of shape (2, 7)", zeros(TK)
    for right in ({"last": past, "total": past}, [past, past]):
        attended(layer, right)()
    for wrong in ((past, past), {"total": past, "first": past}):
        helpers.assert_refused(attended(layer, wrong), "`state` must have the structure")
    layer.next_state = lambda state, weights: (state["total"] + weights, weights)
    helpers.assert_refused(lambda: layer(*inputs()), "'total'", f"received ('{whole}', '{whole}')")
    layer.next_state = lambda state, weights: {"total": weights}
    helpers.assert_refused(lambda: layer(*inputs()), "the next state", f"{{'total': '{whole}'}}")


def attended(layer, state=None, **options):
    def call():
        query, memory = called(layer)
        layer.attend(query[:, 0], memory, state, **options)

    return call


def decoded_from(initial_state=None, **change):
    def call():
        layer = ka.AttentionRNN(keras.layers.GRUCell(H), PastWeightsAttention())
        layer(*inputs())
        layer(*inputs(), initial_state=initial_state)
        memory = layer.prepare(tensor(inputs()[1]))
        layer.step(inputs()[0][:, 0], layer.get_initial_state(memory)._replace(**change), memory)

    return call


def zeros(*shape):
    return np.zeros((B, *shape), "float32")


PAST, PLAIN = PastWeightsAttention(), ka.BahdanauAttention(3)
WANTED = "`state` must have the structure, shapes and dtypes of float32 of shape (2, 7)"
test_a_state_of_another_memory = helpers.refusals(
    (attended(PAST, zeros(TK + 1)), WANTED, "float32 of shape (2, 8)"),
    (attended(PAST, np.zeros((B, TK), "int32")), WANTED, "int32"),
    (attended(PAST, [zeros(TK)] * 2), "`state` must have the structure", "received ["),
    (attended(PLAIN, "nonsense"), "has no state"),
    (attended(PLAIN, noise=zeros(TK)), "Leave `noise` out"),
    (decoded_from(initial_state=[zeros(H), zeros(TK + 1)]),
     "`initial_state` must hold 1 cell state [(2, 11)], 1 attention state [(2, 7)]; "
     "received 2, [(2, 11), (2, 8)]"),
    (decoded_from(attention=None), "must hold the state of the attention"),
)  # fmt: skip


class Noisy(PastWeightsAttention):  # reads the memory with random weights in training
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.noise = keras.random.SeedGenerator(3)

    def sample_noise(self, memory, steps):
        return keras.random.normal((steps, *ops.shape(memory.value)[:2]), seed=self.noise)

    def advance(self, step, state):
        drawn = step.noise
        scores = ops.zeros_like(step.memory.value[:, :, 0]) if drawn is None else drawn
        scores = ops.expand_dims(scores, 1)
        weights = self.weigh(scores, step.mask, state)
        return weights, self.next_state(state, ops.squeeze(weights, 1))


def check_noise(weights, quiet):
    """Every step and every call draws other weights, in training only."""
    drawn = np.concatenate(weights, axis=1)
    assert len(np.unique(np.round(drawn[0], 5), axis=0)) == drawn.shape[1]
    assert np.allclose(quiet, 1 / quiet.shape[-1])


@on_tensorflow
@pytest.mark.parametrize("place", fast(["eager", "graph", "XLA"], ["eager", "graph"]))
@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.each_value
def test_random_numbers_of_a_step(place, inside):
    import tensorflow as tf

    layer = ka.AttentionRNN(keras.layers.GRUCell(H), Noisy()) if inside else Noisy()
    query, value = inputs()
    layer(query, value)

    def call(training):
        return layer(query, value, training=training, return_attention_scores=True)[1]

    if place != "eager":
        call = tf.function(call, autograph=False, jit_compile=place == "XLA")
    check_noise([numpy(call(True)) for _ in range(2)], numpy(call(False)))


@pytest.mark.parametrize("cell", [None, keras.layers.GRUCell, AnyCell])
def test_drawn_numbers_reach_their_steps(cell):
    numbers = normal(5, TQ, B, TK, dtype="float32")
    drawn = {"sample_noise": lambda self, memory, steps: ops.cast(tensor(numbers), "float32")}
    attention = type("Given", (Noisy,), drawn)()
    layer = attention if cell is None else ka.AttentionRNN(cell(H), attention)
    _, weights = layer(*inputs(), training=True, return_attention_scores=True)
    wanted = numpy(ops.softmax(tensor(numbers.swapaxes(0, 1))))
    np.testing.assert_allclose(numpy(weights), wanted, rtol=0, atol=1e-6)
    if cell is None:  # numbers may be given
        query, memory = called(layer)
        for n in range(TQ):
            noise = ops.cast(tensor(numbers)[n], "float32")
            found = layer.attend(query[:, n], memory, training=True, noise=noise)
            np.testing.assert_allclose(numpy(found.weights), wanted[:, n], rtol=0, atol=1e-6)


class Diagonal(PastWeightsAttention):  # a window of three steps around the number of the step
    uses_position = True

    def window(self, query, memory, position):
        shape = ops.shape(query)[:2]
        position = ops.arange(shape[1]) if position is None else position
        center = ops.cast(position, "float32")
        center = ops.reshape(center, (-1, 1)) if shape[1] == 1 else center
        return Window(ops.broadcast_to(center, shape), 1)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("cell", [keras.layers.LSTMCell, AnyCell])
@pytest.mark.each_value
def test_an_attention_with_a_state_counts_the_steps_of_a_decoder(cell, training):
    layer = ka.AttentionRNN(cell(H), Diagonal(), return_state=True)
    *found, weights = layer(*inputs(), training=training, return_attention_scores=True)
    near = np.abs(np.arange(TQ)[:, None] - np.arange(TK)) <= 1
    assert ((numpy(weights) > 0) == near).all()
    assert numpy(found[-1]).tolist() == [TQ] * B
    helpers.assert_steps_equal_the_call(layer, *inputs())


class Ages(PastWeightsAttention):
    """Its state counts the steps with integers, `(B,)`; the decoder counts them, too."""

    uses_position = True

    def initial_state(self, memory):
        return ops.full(ops.shape(memory.value)[:1], 40, dtype="int32")

    def score(self, query, key, state):
        return ops.zeros_like(key[:, None, :, 0])

    def next_state(self, state, weights):
        return state + 1


def test_an_integer_state_without_a_position_is_a_state():
    layer = ka.AttentionRNN(AnyCell(H), Ages(), return_state=True)
    query, value = inputs()
    _, hidden, age, position = layer(query, value)
    assert numpy(age).tolist() == [40 + TQ] * B
    for given, wanted in (
        ([hidden], (40, 0)),
        ([hidden, age], (40 + TQ, 0)),
        ([hidden, age, position], (40 + TQ, TQ)),
    ):
        _, _, age_after, after = layer(query, value, initial_state=given)
        assert numpy(age_after).tolist() == [wanted[0] + TQ] * B
        assert numpy(after).tolist() == [wanted[1] + TQ] * B


FEW = "location", "forward, agent", "gmm V2b"  # weights, a pair, and centres as states
few_mechanisms = pytest.mark.parametrize("name", fast(RECURRENT, FEW))


@few_mechanisms
def test_a_memory_without_a_valid_step(name):
    layer, inputs = RECURRENT[name].built(), RECURRENT[name].tensors("float32")
    mask = np.array([[False] * TK, [True] * TK])
    call = lambda *x: run(layer, *x, value_mask=mask)  # noqa: E731
    (output, weights), found = helpers.gradients(layer, call, inputs)
    assert not numpy(output)[0].any()
    assert not numpy(weights)[0].any()
    assert all(np.isfinite(numpy(x)).all() for x in (output, *found))


def test_a_window_that_nothing_is_read_in():
    """It stays where it was: a place of which nothing is known would read everything."""
    layer = ka.LocationSensitiveAttention(3, half_width=1, dtype="float64")
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
    """Whatever its weights, each step reads at most D steps from where the step before read.

    In training there is no window.
    """
    for seed in range(3):
        layer, free = (RECURRENT[name].make(half_width=x, dtype="float64") for x in (2, None))
        inputs = normal([seed, 1], B, 12, 3), normal([seed, 2], B, 17, DV)
        for one in (layer, free):
            one.build(*(x.shape for x in inputs))
            helpers.randomize(one, seed, scale=2)
        weights = numpy(run(layer, *inputs)[1])
        if not layer.get_config().get("noise"):
            assert_close(layer(*inputs, training=True), numpy(free(*inputs)))
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
    layer, (query, *memory) = RECURRENT[name].built(dtype="float64"), RECURRENT[name].tensors()
    mask = np.ones((B, TQ, TK), bool)
    mask[:, 1] = False
    _, weights = run(layer, query, *memory, attention_mask=mask)
    _, expected = run(layer, query[:, ::2], *memory)
    assert not numpy(weights)[:, 1].any()
    assert_close(weights[:, ::2], numpy(expected))


@pytest.mark.parametrize("half_width", [None, 1])
@pytest.mark.parametrize("sizes", [(B, TQ, 0), (B, 0, TK), (0, TQ, TK)])
@pytest.mark.parametrize("name", RECURRENT)
@pytest.mark.each_value
def test_nothing_to_read_or_to_ask(name, sizes, half_width):
    layer, (samples, steps, length) = RECURRENT[name].make(half_width=half_width), sizes
    inputs = np.ones((samples, steps, 3)), np.ones((samples, length, DV))
    output, weights = layer(*inputs, return_attention_scores=True)
    assert not numpy(output).any()
    assert (output.shape, weights.shape) == ((samples, steps, DV), sizes)


@few_mechanisms
@pytest.mark.parametrize("half_width", [None, 2])
@pytest.mark.each_value
def test_in_a_decoder(name, half_width):
    mechanism = RECURRENT[name]
    attention = mechanism.make(half_width=half_width)
    decoder = ka.AttentionRNN(keras.layers.GRUCell(11), attention, return_state=True)
    sequences, memory = normal(1, B, 5, 3, dtype="float32"), normal(2, B, TK, DV, dtype="float32")
    mask = helpers.lengths_mask([5, 7], TK)
    _, *last = decoder(sequences, memory, memory_mask=mask)
    state = helpers.assert_steps_equal_the_call(decoder, sequences, memory, mask)
    helpers.assert_all_close([*state.cells, *keras.tree.flatten(state.attention)], last, "float32")
