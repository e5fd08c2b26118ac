"""Several memories against loops: alone, in decoders, in beams, in models and in files."""

import keras
import numpy as np
import pytest
from keras import ops, tree

import keras_attention as ka
from keras_attention.search import average_steps, free_run, greedy_search, replace_unknown
from keras_attention.seq2seq import PointerGenerator
from tests import fast, helpers, oracles
from tests.backends import compiled, dtypes, on_tensorflow, tensor
from tests.helpers import RECURRENT, assert_all_close, assert_close, normal, numpy, randomize
from tests.layers.papers import run
from tests.seq2seq.cases import TARGETS
from tests.seq2seq.test_one_path import BOTH, TwoMemories

B, T, D, H, DK, STEPS, DV = 2, 5, 3, 19, (29, 31), (7, 11), (13, 2)


class Sources:  # an attention for each memory, and the oracle of the same equations
    def __init__(self, *mechanisms):
        self.mechanisms = mechanisms

    def make(self, dtype="float64"):
        return ka.MultiSource([x.make(dtype=dtype) for x in self.mechanisms])

    def row(self, layer, weights=None, keys=DV, values=DV, steps=STEPS):
        arrays, rows = list(weights or helpers.weight_arrays(layer)), []
        for mechanism, one in zip(self.mechanisms, layer.attentions, strict=True):
            count = len(one.trainable_weights)
            rows.append(mechanism.row(one, arrays[:count]))
            del arrays[:count]
        return oracles.multi_source(rows, list(zip(steps, keys, values, strict=True)))


SOURCES = {
    "contents": Sources(helpers.BAHDANAU["sparse"], helpers.LUONG["general-global"]),
    "windows": Sources(helpers.LUONG["general-local-m"], helpers.MECHANISMS["vector"]),
    "a state": Sources(helpers.BAHDANAU["plain"], RECURRENT["location"]),
    "states": Sources(RECURRENT["coverage"], RECURRENT["monotonic, chunks"]),
    "heads": Sources(
        helpers.HEADS["heads, location"], helpers.Heads(ka.LuongAttention, {"units": 2}, 2)
    ),
}
OPTIONS = {
    "previous": {"query": "previous"},
    "current": {"query": "current"},
    "fed": {"query": "current", "input_feeding": True},
}
every_sources = pytest.mark.parametrize("name", SOURCES)
QUERY_MASK = np.array([[1, 1, 1, 0, 1], [0, 1, 1, 1, 0]], bool)
# One sample has a hole in the middle; the other has holes in front, in the middle, at the end.
HOLES = [
    np.array([[1, 0, 1, 1, 1, 1, 1], [0, 1, 1, 0, 1, 1, 0]], bool),
    np.array([[1, 1, 1, 0, 1, 1, 1, 1, 1, 1, 0], [0, 1, 1, 1, 0, 0, 1, 1, 1, 1, 1]], bool),
]
JOINED = np.concatenate(HOLES, axis=1)


def memories(dtype="float64", sizes=DV, seed=2):
    shapes = enumerate(zip(STEPS, sizes, strict=True))
    return [normal([seed, n], B, *x, dtype=dtype) for n, x in shapes]


def side_by_side(weights):
    return np.concatenate([numpy(x) for x in weights], axis=-1)


@every_sources
@pytest.mark.parametrize("dtype", helpers.DTYPES)
@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.each_value
def test_equals_the_loop(name, dtype, jit):
    query, *both = normal(1, B, T, D, dtype=dtype), memories(dtype), memories(dtype, DK, 3)
    layer, masks = SOURCES[name].make(dtype), {"query_mask": QUERY_MASK}
    layer.build(query.shape, *([x.shape for x in xs] for xs in both))
    randomize(layer)
    call = compiled(lambda *x: run(layer, *x, value_mask=HOLES, **masks), jit)
    output, *weights = call(tensor(query), *(list(map(tensor, x)) for x in both))
    row, joined = SOURCES[name].row(layer, keys=DK), map(oracles.blocks, both)
    expected = oracles.attend(row, query, *joined, value_mask=JOINED, **masks)
    assert dtypes(output, *weights) == [dtype] * 3
    assert_close(output, expected[0], dtype, before=1)
    assert_close(side_by_side(weights), expected[1], dtype)


PAIRS = np.random.default_rng(1).random((B, T, STEPS[0])) < 0.5


@pytest.mark.parametrize("masks", [
    {"value_mask": [HOLES[0], None]},
    {"value_mask": [None, HOLES[1]], "attention_mask": [PAIRS, None], "use_causal_mask": True},
])  # fmt: skip
def test_each_attention_gets_its_own_masks(masks):
    layer, query, values = SOURCES["contents"].make(), normal(1, B, T, D), memories()
    output, *weights = run(layer, query, values, **masks)
    for n, one in enumerate(layer.attentions):
        own = {name: x if x is True else x[n] for name, x in masks.items()}
        found = [output[..., 13 * n : 13 + 2 * n], weights[n]]
        assert_all_close(found, run(one, query, values[n], **own))
    step = layer(query[:, 2], values, attention_mask=[PAIRS[:, 2], None])
    own = layer.attentions[0](query[:, 2], values[0], attention_mask=PAIRS[:, 2])
    assert_close(step[:, :13], numpy(own))


def built(name, options, cell=keras.layers.GRUCell, dtype="float64", **more):
    attention = SOURCES[name].make(dtype)
    decoder = ka.AttentionRNN(cell(H, dtype=dtype), attention, **OPTIONS[options], **more)
    decoder.build((None, None, D), [(None, None, size) for size in DV])
    return randomize(decoder)


def looped(name, decoder, sequences, values, **masks):
    arrays = {id(x): numpy(x) for x in decoder.trainable_weights}
    attention, cell = decoder.attention, decoder.cell
    row = SOURCES[name].row(attention, [arrays[id(x)] for x in attention.trainable_weights])
    gru = oracles.gru(**{x.name: arrays[id(x)] for x in cell.trainable_weights})
    fed = np.zeros((B, attention.output_size(H, list(DV))))
    states = [[[np.zeros(H)]] for _ in range(B)]
    names = "query", "input_feeding", "output_mode"
    options = {name: getattr(decoder, name) for name in names} | masks
    inputs = sequences, oracles.blocks(values), states, fed
    return oracles.attention_rnn(row, [gru], *inputs, **options)[:2]


@every_sources
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.each_value
def test_a_decoder_equals_the_loop_as_a_whole_and_step_by_step(name, options):
    decoder, sequences, values = built(name, options), normal(1, B, T, D), memories()
    inputs, masks = (sequences, values), {"sequences_mask": QUERY_MASK}
    found, *weights = run(decoder, *inputs, **masks, memory_mask=HOLES)
    expected = looped(name, decoder, *inputs, **masks, memory_mask=JOINED)
    assert_all_close([found, side_by_side(weights)], expected)
    expected = looped(name, decoder, *inputs, memory_mask=JOINED)
    prepared = decoder.prepare(values, HOLES)
    state = decoder.get_initial_state(prepared)
    for i in range(T):
        output, state, weights = decoder.step(sequences[:, i], state, prepared)
        assert_close(output, expected[0][:, i])
        assert_close(side_by_side(weights), expected[1][:, i])


@pytest.mark.parametrize("name", fast(SOURCES, ["contents", "a state"]))
@pytest.mark.parametrize("options", fast(OPTIONS, ["previous", "fed"]))
@pytest.mark.each_value
def test_the_gradient_of_training_is_that_of_the_backend(name, options):
    """The backend differentiates the loop around a cell that the decoder does not know.

    NaN under the masks changes neither outputs nor gradients.
    """
    found, clean = [], memories()
    spoiled = [np.where(m[..., None], x, np.nan) for x, m in zip(clean, HOLES, strict=True)]
    for cell, values in ((keras.layers.GRUCell, spoiled), (helpers.AnyCell, clean)):
        decoder = built(name, options, cell)
        for one in decoder.attention.attentions:
            one.noise = 0.0

        def call(sequences, *values, decoder=decoder):
            return run(decoder, sequences, list(values), memory_mask=HOLES, training=True)

        outputs, of = helpers.gradients(decoder, call, (normal(1, B, T, D), *values))
        found.append([*outputs, *of])
    assert_all_close(*found)


@on_tensorflow
@pytest.mark.slow
@pytest.mark.parametrize(("name", "options"), [("contents", "previous"), ("a state", "fed")])
@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.each_value
def test_two_unknown_lengths_in_a_graph(name, options, masked):
    """XLA compiles the loop for lengths that are rounded up, each on its own."""
    import tensorflow as tf

    decoder, masks = built(name, options, return_state=True), HOLES if masked else None

    def run(training, sequences, *values):
        given = [sequences, *values]
        with tf.GradientTape() as tape:
            tape.watch(given)
            # Without masks, the weights are not wanted either.
            options = {"return_attention_scores": masked, "training": training}
            found = tree.flatten(decoder(given[0], given[1:], memory_mask=masks, **options))
            loss = sum(ops.sum(ops.sin(x)) for x in found)
        weights = [weight.value for weight in decoder.trainable_weights]
        return [*found, *tape.gradient(loss, [*given, *weights])]

    inputs = [tensor(x) for x in (normal(1, B, T, D), *memories())]
    expected = [numpy(x) for x in run(False, *inputs)]
    unknown = [tf.TensorSpec((None, None, x.shape[-1]), "float64") for x in inputs]
    graph = tf.function(lambda *x: run(True, *x), unknown, autograph=False)
    assert_all_close(graph(*inputs), expected)


def test_a_decoder_resumes_with_the_states_of_all_attentions():
    decoder = built("states", "previous", return_state=True)
    sequences, values = normal(1, B, T, D), memories()
    whole, *last = decoder(sequences, values)
    _, *state = decoder(sequences[:, :2], values)
    rest, *again = decoder(sequences[:, 2:], values, initial_state=state)
    assert_all_close([rest, *again], [whole[:, 2:], *last])
    # Only the second attention has a state.
    decoder = built("a state", "previous", return_state=True)
    assert decoder(sequences, values)[-1].shape == (B, STEPS[1])
    assert decoder.get_initial_state(decoder.prepare(values)).attention[0] is None


@pytest.mark.parametrize("inside", [False, True])
def test_each_attention_drops_its_own_memory_steps(inside):
    layer = ka.MultiSource([ka.BahdanauAttention(7, dropout=0.5, seed=n) for n in (1, 2)])
    called = layer
    if inside:
        called = ka.AttentionRNN(keras.layers.GRUCell(5), layer, output_mode="attention")
    batch, size = 101, 8
    query, value = normal(1, batch, 3, 5), np.tile(np.eye(size), (batch, 1, 1))
    read = numpy(called(query, [value, value], training=True)) == 0
    first, second = read[..., :size], read[..., size:]
    for part in (first, second):
        assert 0.4 < part.mean() < 0.6
    assert 0.4 < (first == second).mean() < 0.6
    assert np.array_equal(read, np.repeat(read[:, :1], 3, axis=1)) == inside
    assert numpy(called(query, [value, value])).min() > 0


def test_the_losses_of_all_attentions_are_added():
    one, other = ka.CoverageAttention(7, loss_weight=0.5), ka.CoverageAttention(7, loss_weight=2.0)
    layer = ka.MultiSource([one, ka.BahdanauAttention(7), other])
    query, values = normal(1, B, T, D), [*memories(), memories()[0]]
    masks = [*HOLES, None]
    _, *weights = run(layer, query, values, value_mask=masks)
    expected = [layer.attentions[n].sequence_loss(weights[n], None, masks[n]) for n in (0, 2)]
    assert len(layer.losses) == 1
    assert_close(layer.losses[0], numpy(expected[0] + expected[1]), "float32")
    assert not ka.MultiSource([ka.BahdanauAttention(7), ka.LuongAttention()])._has_loss


def test_it_follows_its_attentions():
    local, plain = ka.LuongAttention("general", "local-m"), ka.BahdanauAttention(3)
    for attentions, expected in (
        ([local, ka.LocationSensitiveAttention(3)], (True, True, "current")),
        ([plain, ka.LuongAttention()], (False, False, "previous")),
    ):
        layer = ka.MultiSource(attentions)
        assert (layer.has_state, layer.uses_position, layer.decoder_query) == expected
    double = [kind(dtype="float64") for kind in (ka.LuongAttention, ka.MemoryHop)]
    assert ka.MultiSource(double).compute_dtype == "float64"


class Windowed(ka.BahdanauAttention):
    """Notes the position that its window gets. It does not count steps."""

    def window(self, query, memory, position):
        assert position is None


def test_only_an_attention_that_counts_steps_gets_their_numbers():
    attentions = [ka.LuongAttention("dot", alignment="local-m", half_width=2), Windowed(13)]
    layer = ka.AttentionRNN(keras.layers.GRUCell(7), ka.MultiSource(attentions))
    words, first, second = normal(1, B, T, D), normal(2, B, 5, 7), normal(3, B, 4, 7)
    assert layer(words, [first, second]).shape[:2] == (B, T)
    rnns = [keras.layers.GRU(7, return_sequences=True) for _ in range(2)]
    layer = ka.DecoderStack(rnns, Windowed(13))
    assert layer(words, first).shape == (B, T, 7)


VOCABULARY, START, END = 7, 1, 2


def search_parts():
    decoder = built("states", "previous")
    embed, head = normal(7, VOCABULARY, D), tensor(normal(8, H, VOCABULARY))

    def step(tokens, state, memory):
        inputs = ops.take(tensor(embed), tokens, axis=0)
        output, state, weights = decoder.step(inputs, state, memory)
        return ops.matmul(output, head), state, weights

    prepared = decoder.prepare(list(map(tensor, memories())), [tensor(HOLES[0]), None])
    return decoder, step, prepared, decoder.get_initial_state(prepared)


TOKENS = {"start_token": START, "end_token": END, "max_length": 4}


def test_searches_that_take_several_memories():
    decoder, step, prepared, state = search_parts()
    alone = greedy_search(step, state, prepared, **TOKENS)
    twice = average_steps([step, step])
    both = greedy_search(twice, (state, state), (prepared, prepared), **TOKENS)
    assert_all_close(both.weights, alone.weights)

    def frame(last, state, memory):
        output, state, weights = decoder.step(last, state, memory)
        return output[:, :D], output[:, 0] - 9, state, weights

    run = free_run(frame, state, prepared, first=ops.zeros((B, D), "float64"), max_steps=3)
    assert [x.shape for x in run.weights] == [(B, 3, n) for n in STEPS]
    _, _, weights = decoder.step(run.outputs[:, 0] * 0, state, prepared)
    assert_all_close([x[:, 0] for x in run.weights], weights)


def make_model(attention=None, head=None):
    decoder = ka.AttentionRNN(keras.layers.GRUCell(8), attention or two())
    head, table = head or keras.layers.Dense(11), keras.layers.Embedding(11, 5)
    model = ka.Seq2Seq(TwoMemories(), decoder, table, head, START, END)
    model((BOTH, TARGETS))
    return randomize(model, scale=1)


def test_what_is_behind_the_masks_of_a_model_does_not_count():
    wide = tuple(np.pad(x, [(0, 0), (0, n)]) for n, x in zip((2, 3), BOTH, strict=True))
    model = make_model()
    found, expected = (model.log_probability(x, TARGETS) for x in (wide, BOTH))
    for x, y, source in zip(found.weights, expected.weights, BOTH, strict=True):
        assert_close(x[..., : source.shape[1]], y, "float32")
    np.testing.assert_allclose(found.scores, expected.scores, 1e-5)


def two():
    return ka.MultiSource([ka.BahdanauAttention(3), ka.LuongAttention("general")])


def decoder_of_two():
    return ka.AttentionRNN(keras.layers.GRUCell(5), two())


def refused(call, *words, make=two):
    def built_and_called():
        layer = make()
        layer(QUERY, FLOATS)
        call(layer)

    return built_and_called, *words


def replaced():
    _, step, prepared, state = search_parts()
    found = greedy_search(step, state, prepared, **TOKENS)
    replace_unknown(found.tokens, found.weights, np.ones((B, STEPS[0]), "int32"), 3)


def searched_with_coverage():
    _, step, prepared, state = search_parts()
    ka.beam_search(step, state, prepared, coverage_penalty=0.1, **TOKENS)


QUERY, FLOATS, ONE = normal(1, B, T, D), memories(), ka.BahdanauAttention(3)
A_LIST = "must be a list of 2"
test_refusals = helpers.refusals(
    (lambda: ka.MultiSource(ONE),
     "`attentions` must be a list of at least two", "needs no MultiSource"),
    (lambda: ka.MultiSource([ONE, None]),
     "`attentions[1]` must be one layer built on ScoringMixin"),
    (lambda: ka.MultiSource([ONE] * 2), "same attention twice"),
    (lambda: ka.MultiSource([ONE, ka.BahdanauAttention(3, dtype="float64")]),
     "in the dtype of the layer, float32", "'float64'", "the same `dtype`"),
    (lambda: ka.MultiSource([ONE, ka.LuongAttention()], dropout=0.1),
     "`dropout` is an argument of each attention", "BahdanauAttention(..., dropout=...)"),
    (lambda: ka.MultiSource([two(), ONE]), "`attentions[0]` must read one memory"),
    refused(lambda layer: layer(QUERY, FLOATS[0]),
            f"`value` {A_LIST}, one for each attention", "float64 of shape (2, 7, 13)"),
    refused(lambda layer: layer(QUERY, [*FLOATS, FLOATS[0]]),
            f"`value` {A_LIST}", "a list of 3", "Pass value=[first, second]"),
    refused(lambda layer: layer(QUERY, FLOATS, key=[FLOATS[0], None]),
            "`key[1]` must be floating-point, of shape (2, 11, ", "received None"),
    refused(lambda layer: layer(QUERY, FLOATS, value_mask=HOLES[::-1]), "`value_mask[0]` must be",
            "because `value[0]` has 7 memory steps", "of shape (2, 11)"),
    refused(lambda layer: layer.attend(QUERY, FLOATS), "`memory` must come from prepare"),
    refused(lambda layer: layer.attend(QUERY, layer.prepare(FLOATS), [None, None]),
            "this attention has no state"),
    refused(lambda layer: layer.attend(
        QUERY[:, 0], layer.prepare(FLOATS), [np.zeros((B, 7), "float32")] * 2),
            "`state`", "shapes", make=lambda: SOURCES["states"].make("float32")),
    refused(lambda layer: layer(QUERY, FLOATS[0]), f"`memory` {A_LIST}", make=decoder_of_two),
    refused(lambda layer: layer(QUERY, FLOATS[::-1]),
            "was built for `memory[0]` of 13 features", "(2, 11, 2)", make=decoder_of_two),
    refused(lambda layer: layer.prepare(FLOATS, HOLES[0]),
            f"`memory_mask` {A_LIST}", make=decoder_of_two),
    (searched_with_coverage,
     "beam_search: `coverage_penalty` needs the weights of one memory", "received ["),
    (replaced, "`weights` must be floating-point", "received [", "such as weights[0]"),
    (lambda: make_model(head=PointerGenerator(6, 3)),
     "`weights` must be floating-point", "received [", "It reads one memory"),
    (lambda: make_model(ka.BahdanauAttention(3)), "`memory` must be floating-point", "received ["),
)  # fmt: skip
