"""Several memories against loops: alone, in decoders, in beams, in models and in files."""

from dataclasses import dataclass

import keras
import numpy as np
import pytest
from keras import ops, tree

from keras_attention import (
    AttentionRNN,
    BahdanauAttention,
    CoverageAttention,
    DecoderStack,
    Ensemble,
    LocationSensitiveAttention,
    LuongAttention,
    MemoryHop,
    MultiHead,
    MultiSource,
    RecurrentEncoder,
    Seq2Seq,
    beam_search,
)
from keras_attention.ops import compiling
from keras_attention.search import average_steps, free_run, greedy_search, replace_unknown
from keras_attention.seq2seq import PointerGenerator
from tests import fast, oracles
from tests.backends import compiled, dtypes, on_tensorflow, only_on, tensor
from tests.decoder.cases import assert_beams_carry_states
from tests.helpers import (
    BAHDANAU,
    DTYPES,
    HEADS,
    LUONG,
    MECHANISMS,
    RECURRENT,
    AnyCell,
    Heads,
    Mechanism,
    assert_all_close,
    assert_close,
    assert_gradients,
    assert_refused,
    assert_steps_equal_the_call,
    gradients,
    normal,
    numpy,
    randomize,
    weight_arrays,
)

B, T, D, H, DK, STEPS, DV = 2, 5, 3, 19, (29, 31), (7, 11), (13, 2)


@dataclass(frozen=True)
class Sources:
    """An attention for each memory, and the oracle of the same equations."""

    mechanisms: tuple

    def make(self, dtype="float64"):
        return MultiSource([x.make(dtype=dtype) for x in self.mechanisms])

    def row(self, layer, weights=None, keys=DV, values=DV, steps=STEPS):
        arrays, rows = list(weights or weight_arrays(layer)), []
        for mechanism, one in zip(self.mechanisms, layer.attentions, strict=True):
            count = len(one.trainable_weights)
            rows.append(mechanism.row(one, arrays[:count]))
            del arrays[:count]
        return oracles.multi_source(rows, list(zip(steps, keys, values, strict=True)))


SOURCES = {
    "contents": Sources((BAHDANAU["sparse"], LUONG["general-global"])),
    "windows": Sources((LUONG["general-local-m"], MECHANISMS["vector"])),
    "a state": Sources((BAHDANAU["plain"], RECURRENT["location"])),
    "states": Sources((RECURRENT["coverage"], RECURRENT["monotonic, chunks"])),
    "heads": Sources((HEADS["heads, location"], Heads(LuongAttention, {"units": 2}, 2))),
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
    return [
        normal([seed, n], B, *x, dtype=dtype) for n, x in enumerate(zip(STEPS, sizes, strict=True))
    ]


def side_by_side(weights):
    return np.concatenate([numpy(x) for x in weights], axis=-1)


@every_sources
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.each_value
def test_equals_the_loop(name, dtype, jit):
    layer = SOURCES[name].make(dtype)
    layer.build((B, T, D), [x.shape for x in memories()], [x.shape for x in memories(sizes=DK)])
    randomize(layer)
    query, values, keys = normal(1, B, T, D, dtype=dtype), memories(dtype), memories(dtype, DK, 3)
    masks = {"query_mask": QUERY_MASK}

    def call(query, values, keys):
        return layer(query, values, keys, value_mask=HOLES, **masks, return_attention_scores=True)

    output, weights = compiled(call, jit)(
        tensor(query), *(list(map(tensor, x)) for x in (values, keys))
    )
    joined = oracles.blocks(values), oracles.blocks(keys)
    row = SOURCES[name].row(layer, keys=DK)
    expected = oracles.attend(row, query, *joined, value_mask=JOINED, **masks)
    assert dtypes(output, *weights) == [dtype] * 3
    assert_close(output, expected[0], dtype, before=1)
    assert_close(side_by_side(weights), expected[1], dtype)


@pytest.mark.parametrize("masks", [(HOLES[0], None), (None, HOLES[1]), (None, None)])
def test_a_mask_may_be_missing(masks):
    layer = SOURCES["contents"].make()
    values = memories()
    output = layer(normal(1, B, T, D), values, value_mask=list(masks))
    for n, (one, mask) in enumerate(zip(layer.attentions, masks, strict=True)):
        expected = one(normal(1, B, T, D), values[n], value_mask=mask)
        assert_close(output[..., 13 * n : 13 + 2 * n], numpy(expected))


def test_masks_of_pairs_and_causal_masks():
    layer, query, values = SOURCES["contents"].make(), normal(1, B, T, D), memories()
    pairs = [np.random.default_rng(1).random((B, T, STEPS[0])) < 0.5, None]
    options = {"attention_mask": pairs, "use_causal_mask": True}
    _, weights = layer(query, values, **options, return_attention_scores=True)
    for n, one in enumerate(layer.attentions):
        own = {**options, "attention_mask": pairs[n], "return_attention_scores": True}
        assert_close(weights[n], numpy(one(query, values[n], **own)[1]))
    step = layer(query[:, 2], values, attention_mask=[pairs[0][:, 2], None])
    own = layer.attentions[0](query[:, 2], values[0], attention_mask=pairs[0][:, 2])
    assert_close(step[:, :13], numpy(own))


SMALL = {
    "contents": Sources((Mechanism(BahdanauAttention, {"units": 2}), LUONG["general-global"])),
    "a vector and a state": Sources(
        (
            Mechanism(LuongAttention, {"alignment": "local-p", "half_width": 1, "units": 2}),
            Mechanism(LocationSensitiveAttention, {"units": 2, "filters": 1, "kernel_size": 3}),
        )
    ),
}


@pytest.mark.parametrize("name", SMALL)
def test_gradients_are_those_of_the_loop(name):
    layer = SMALL[name].make()
    inputs = normal(1, B, 3, 2), normal(2, B, 5, 3), normal(3, B, 2, 2)
    layer.build((B, 3, 2), [(B, 5, 3), (B, 2, 2)])
    randomize(layer)
    masks = [np.array([[1, 0, 1, 1, 1], [0, 1, 1, 1, 0]], bool), np.array([[1, 1], [0, 1]], bool)]

    def call(query, *values):
        options = {"value_mask": masks, "return_attention_scores": True}
        return tree.flatten(layer(query, list(values), **options))

    def oracle(inputs, weights):
        query, *values = inputs
        row = SMALL[name].row(layer, weights, (3, 2), (3, 2), (5, 2))
        mask = np.concatenate(masks, axis=1)
        output, align = oracles.attend(row, query, oracles.blocks(values), value_mask=mask)
        return [output, align[..., :5], align[..., 5:]]

    assert_gradients(layer, call, inputs, oracle)


def built(name, options, cell=keras.layers.GRUCell, dtype="float64", **more):
    attention = SOURCES[name].make(dtype)
    decoder = AttentionRNN(cell(H, dtype=dtype), attention, **OPTIONS[options], **more)
    decoder.build((None, None, D), [(None, None, size) for size in DV])
    return randomize(decoder)


def looped(name, decoder, sequences, values, **masks):
    """Outputs and weights, side by side, of a GRU decoder by hand."""
    arrays = dict(zip(map(id, decoder.trainable_weights), weight_arrays(decoder), strict=True))
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
    options = {"memory_mask": HOLES, "return_attention_scores": True}
    found, weights = decoder(*inputs, **masks, **options)
    expected = looped(name, decoder, *inputs, **masks, memory_mask=JOINED)
    assert_all_close([found, side_by_side(weights)], expected)
    expected = looped(name, decoder, *inputs, memory_mask=JOINED)
    prepared = decoder.prepare(values, HOLES)
    state = decoder.get_initial_state(prepared)
    for i in range(T):
        output, state, weights = decoder.step(sequences[:, i], state, prepared)
        assert_close(output, expected[0][:, i])
        assert_close(side_by_side(weights), expected[1][:, i])


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("contents", "previous"),
        *(
            pytest.param(name, options, marks=pytest.mark.slow)
            for name, options in (("windows", "fed"), ("a state", "fed"), ("heads", "previous"))
        ),
    ],
)
@pytest.mark.parametrize("jit", fast([False, True], [False], slow=0))
@pytest.mark.each_value
def test_nan_under_the_masks_changes_neither_outputs_nor_gradients(name, options, jit):
    decoder, sequences = built(name, options), normal(1, B, T, D)

    def call(sequences, *values):
        options = {"return_attention_scores": True, "training": True}
        return tree.flatten(decoder(sequences, list(values), memory_mask=HOLES, **options))

    spoiled = [np.where(m[..., None], x, np.nan) for x, m in zip(memories(), HOLES, strict=True)]
    outputs, found = gradients(decoder, call, (sequences, *memories()), jit)
    others, again = gradients(decoder, call, (sequences, *spoiled), jit)
    assert_all_close([*others, *again], [*outputs, *found])


@pytest.mark.parametrize("name", fast(SOURCES, ["contents", "a state"]))
@pytest.mark.parametrize("options", fast(OPTIONS, ["fed"]))
@pytest.mark.each_value
def test_the_gradient_of_training_is_that_of_the_backend(name, options):
    """The backend differentiates the loop around a cell that the decoder does not know."""
    found = []
    for cell in (keras.layers.GRUCell, AnyCell):
        decoder = built(name, options, cell)

        def call(sequences, *values, decoder=decoder):
            options = {"return_attention_scores": True, "training": False, "memory_mask": HOLES}
            return tree.flatten(decoder(sequences, list(values), **options))

        outputs, of = gradients(decoder, call, (normal(1, B, T, D), *memories()))
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


def test_a_stack_attends_to_several_memories():
    rnns = [keras.layers.GRU(n, return_sequences=True) for n in (7, 11)]
    decoder = DecoderStack(rnns, SOURCES["a state"].make("float32"))
    sequences, values = normal(1, B, T, D, dtype="float32"), memories("float32")
    decoder(sequences, values)
    randomize(decoder)
    masks = {"sequences_mask": QUERY_MASK, "memory_mask": HOLES}
    _, weights = decoder(sequences, values, **masks, return_attention_scores=True)
    assert [x.shape for x in weights] == [(B, T, n) for n in STEPS]
    assert not np.any(side_by_side(weights)[~QUERY_MASK])
    assert_steps_equal_the_call(decoder, sequences, values, HOLES)


@pytest.mark.parametrize("inside", [False, True])
def test_each_attention_drops_its_own_memory_steps(inside):
    layer = MultiSource([BahdanauAttention(7, dropout=0.5, seed=n) for n in (1, 2)])
    called = layer
    if inside:
        called = AttentionRNN(keras.layers.GRUCell(5), layer, output_mode="attention")
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
    one, other = CoverageAttention(7, loss_weight=0.5), CoverageAttention(7, loss_weight=2.0)
    layer = MultiSource([one, BahdanauAttention(7), other])
    query, values = normal(1, B, T, D), [*memories(), memories()[0]]
    masks = [*HOLES, None]
    _, weights = layer(query, values, value_mask=masks, return_attention_scores=True)
    expected = [layer.attentions[n].sequence_loss(weights[n], None, masks[n]) for n in (0, 2)]
    assert len(layer.losses) == 1
    assert_close(layer.losses[0], numpy(expected[0] + expected[1]), "float32")
    assert not MultiSource([BahdanauAttention(7), LuongAttention()])._has_loss


def test_it_follows_its_attentions():
    one, other = LuongAttention("general", "local-m"), LocationSensitiveAttention(3)
    layer = MultiSource([one, other])
    assert (layer.has_state, layer.uses_position, layer.decoder_query) == (True, True, "current")
    layer = MultiSource([BahdanauAttention(3), LuongAttention()])
    assert (layer.has_state, layer.uses_position, layer.decoder_query) == (False, False, "previous")
    double = [kind(dtype="float64") for kind in (LuongAttention, MemoryHop)]
    assert MultiSource(double).compute_dtype == "float64"


class Windowed(BahdanauAttention):
    """Notes the position that its window gets. It does not count steps."""

    def window(self, query, memory, position):
        assert position is None


def test_only_an_attention_that_counts_steps_gets_their_numbers():
    attentions = [LuongAttention("dot", alignment="local-m", half_width=2), Windowed(13)]
    layer = AttentionRNN(keras.layers.GRUCell(7), MultiSource(attentions))
    words, first, second = normal(1, B, T, D), normal(2, B, 5, 7), normal(3, B, 4, 7)
    assert layer(words, [first, second]).shape[:2] == (B, T)
    layer = DecoderStack([keras.layers.GRU(7, return_sequences=True) for _ in "ab"], Windowed(13))
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


def test_each_beam_carries_the_states_of_all_attentions():
    assert_beams_carry_states(SOURCES["states"].make(), memories(), [tensor(HOLES[0]), None])


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


def test_what_reads_one_memory_says_so():
    _, step, prepared, state = search_parts()
    assert_refused(
        lambda: beam_search(step, state, prepared, coverage_penalty=0.1, **TOKENS),
        *("beam_search: `coverage_penalty` needs the weights of one memory", "received ["),
    )
    found = greedy_search(step, state, prepared, **TOKENS)
    source = np.ones((B, STEPS[0]), "int32")
    assert_refused(
        lambda: replace_unknown(found.tokens, found.weights, source, 3),
        *("`weights` must be floating-point", "received [", "such as weights[0]"),
    )
    replaced = replace_unknown(found.tokens, found.weights[0], source, 3)
    assert replaced.shape == (B, 4)


WORDS = np.array([[4, 5, 6, 3, 7], [7, 8, 3, 0, 0], [5, 5, 8, 4, 0]])
TAGS = np.array([[3, 5], [4, 0], [6, 3]])
TARGETS = np.array([[5, 6, 4, 2], [8, 2, 0, 0], [5, 4, 2, 0]])
SOURCE = WORDS, TAGS


def make_model(attention=None, head=None, seed=0):
    """A model that reads a word and its tags: a functional encoder with two memories."""
    word, tags = (keras.Input((None,), dtype="int32", name=name) for name in ("word", "tags"))
    gru = keras.layers.GRU(4, return_sequences=True, return_state=True)
    encoder = RecurrentEncoder(keras.layers.Embedding(9, 5), keras.layers.Bidirectional(gru))
    letters, state, mask = encoder(word)
    memory = [letters, keras.layers.Embedding(9, 6)(tags)]
    if attention is None:
        heads = MultiHead(LocationSensitiveAttention(5, 2, 3, dropout=0.1, seed=3), 3)
        attention = MultiSource([heads, BahdanauAttention(5)])
    model = Seq2Seq(
        keras.Model([word, tags], (memory, state, [mask, ops.not_equal(tags, 0)])),
        AttentionRNN(keras.layers.GRUCell(8), attention),
        target_embedding=keras.layers.Embedding(9, 5),
        head=head or keras.layers.Dense(9),
        start_token=START,
        end_token=END,
    )
    model((SOURCE, TARGETS))
    return randomize(model, seed, scale=1)


def test_a_step_of_a_model_is_its_call():
    model = make_model()
    logits = numpy(model((SOURCE, TARGETS)))
    state, memory = model.start(SOURCE)
    for i in range(3):
        tokens = TARGETS[:, i - 1] if i else np.full(3, START)
        found, state, _ = model.step(tensor(tokens.astype("int32")), state, memory)
        valid = TARGETS[:, i] != 0
        # Logits of up to five: their rounding grows with the number.
        expected = logits[valid, i, 2:]
        np.testing.assert_allclose(numpy(found)[valid, 2:], expected, rtol=2e-6, atol=2e-6)


def test_tags_and_letters_behind_the_masks_do_not_count():
    model = make_model()
    wide = np.pad(WORDS, [(0, 0), (0, 2)]), np.pad(TAGS, [(0, 0), (0, 3)])
    found, expected = (numpy(model((x, TARGETS))) for x in (wide, SOURCE))
    np.testing.assert_allclose(found, expected, atol=2e-6)
    result = model.log_probability(wide, TARGETS)
    assert [x.shape for x in result.weights] == [(3, 4, 7), (3, 4, 5)]
    np.testing.assert_allclose(result.scores, model.log_probability(SOURCE, TARGETS).scores, 1e-5)


@pytest.mark.slow
@compiling(False)  # compiling every program would take most of the time
def test_a_model_of_two_sources_trains_generates_and_is_loaded(tmp_path):
    model = make_model()
    model.compile(keras.optimizers.SGD(0.1))
    before = [numpy(x) for x in model.trainable_weights]
    model.fit(SOURCE, TARGETS, epochs=1, verbose=0)
    for old, new in zip(before, model.trainable_weights, strict=True):
        assert not np.array_equal(old, numpy(new)), new.path
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    results = [x.generate(SOURCE, 6, n_best=2) for x in (model, loaded)]
    assert np.array_equal(results[0].tokens, results[1].tokens)
    assert_all_close(results[0].weights, results[1].weights, "float32")
    assert [x.shape for x in results[0].weights] == [(3, 2, 6, 5), (3, 2, 6, 2)]
    few = model.generate(SOURCE, 6, "greedy", batch_size=2)
    together = Ensemble([model, loaded]).generate(SOURCE, 6, "greedy")
    assert np.array_equal(together.tokens, few.tokens)


@only_on("tensorflow", reason="a SavedModel")
@pytest.mark.exhaustive
def test_a_model_of_two_sources_is_exported(tmp_path):
    import tensorflow as tf

    model = make_model()
    model.export_generate(tmp_path / "saved", 4, "greedy")
    serve = tf.saved_model.load(tmp_path / "saved").signatures["serving_default"]
    found = serve(word=tf.constant(WORDS), tags=tf.constant(TAGS))
    expected = model.generate(SOURCE, 4, "greedy")
    assert np.array_equal(found["tokens"], expected.tokens)
    for n in range(2):
        np.testing.assert_allclose(found[f"weights_{n}"], expected.weights[n], atol=2e-6)


class Reader(keras.layers.Layer):
    """A head that reads the contexts and the weights of all memories."""

    reads = ("context", "weights", "memory", "memory_mask")

    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(9)

    def call(self, output, context=None, weights=None, memory=None, memory_mask=None, **_):
        assert len(weights) == len(memory) == len(memory_mask) == 2
        return self.dense(context)


def test_a_head_may_read_all_memories():
    attentions = LocationSensitiveAttention(5, 2, 3), BahdanauAttention(5)
    model = make_model(MultiSource([*attentions]), head=Reader())
    weights = model.log_probability(SOURCE, TARGETS).weights
    _, (prepared, _) = model.start(SOURCE)
    values = prepared.value
    context = [x @ numpy(y) for x, y in zip(weights, values, strict=True)]
    expected = model.head.dense(np.concatenate(context, axis=-1))
    found = numpy(model((SOURCE, TARGETS)))
    valid = TARGETS != 0
    np.testing.assert_allclose(found[valid], numpy(expected)[valid], atol=1e-5)


def attentions():
    return [BahdanauAttention(3), LuongAttention("general")]


def make_decoder():
    decoder = AttentionRNN(keras.layers.GRUCell(5), MultiSource(attentions()))
    decoder.build((None, None, D), [(None, None, size) for size in DV])
    return decoder


LAYER, QUERY, FLOATS = MultiSource(attentions()), normal(1, B, T, D), memories()
ONE = BahdanauAttention(3)
REFUSALS = [
    (lambda: MultiSource(ONE), "`attentions` must be a list of at least two", "needs no MultiSour"),
    (lambda: MultiSource([ONE, None]), "`attentions[1]` must be one layer built on ScoringMixin"),
    (lambda: MultiSource([BahdanauAttention, ONE]), "`attentions[0]`", "BahdanauAttention(...)."),
    (lambda: MultiSource([ONE] * 2), "same attention twice"),
    (
        lambda: MultiSource([ONE, BahdanauAttention(3, dtype="float64")]),
        *("in the dtype of the layer, float32", "'float64'", "the same `dtype`"),
    ),
    (
        lambda: MultiSource(attentions(), dropout=0.1),
        *("`dropout` is an argument of each attention", "BahdanauAttention(..., dropout=...)"),
    ),
    (
        lambda: MultiSource([BahdanauAttention(3, activity_regularizer="l2"), LuongAttention()]),
        *("`attentions[0]` must have no `activity_regularizer`", "Give it to MultiSource."),
    ),
    (
        lambda: MultiSource([MultiSource(attentions()), ONE]),
        *("`attentions[0]` must read one memory", "Make MultiSource the outermost"),
    ),
    (
        lambda: MultiHead(MultiSource(attentions()), 2),
        *("`attention` must read one memory", "MultiSource([MultiHead(...), ...])"),
    ),
    (
        lambda: LAYER(QUERY, FLOATS[0]),
        *("`value` must be a list of 2, one for each attention", "float64 of shape (2, 7, 13)"),
    ),
    (
        lambda: LAYER(QUERY, [*FLOATS, FLOATS[0]]),
        *("`value` must be a list of 2", "a list of 3", "Pass value=[first, second]"),
    ),
    (lambda: LAYER(QUERY), "`value` must be a list of 2", "received None"),
    (
        lambda: LAYER(QUERY, [FLOATS[0], FLOATS[1][:1]]),
        *("`value[1]` must be", "because `query` has batch size 2; received float64 of shape (1, "),
    ),
    (
        lambda: LAYER(QUERY, FLOATS, key=[FLOATS[0], None]),
        *("`key[1]` must be floating-point, of shape (2, 11, ", "received None"),
    ),
    (
        lambda: LAYER(QUERY, FLOATS, value_mask=HOLES[0]),
        *("`value_mask` must be a list of 2", "received bool of shape (2, 7)"),
    ),
    (
        lambda: LAYER(QUERY, FLOATS, value_mask=HOLES[::-1]),
        *("`value_mask[0]` must be", "because `value[0]` has 7 memory steps", "of shape (2, 11)"),
    ),
    (
        lambda: LAYER(QUERY, FLOATS, attention_mask=[None, np.ones((T, 7), bool)]),
        "`attention_mask[1]` must be boolean, of shape (5, 11) or (2, 5, 11)",
        "pass `value_mask`",
    ),
    (
        lambda: MultiSource([MemoryHop(), ONE])(QUERY, FLOATS),
        *("memory_hop", "`value` must be", "because `query` has 3 features", ", 13)"),
    ),
    (lambda: make_decoder()(QUERY, FLOATS[0]), "`memory` must be a list of 2"),
    (
        lambda: make_decoder()(QUERY, FLOATS[::-1]),
        *("was built for `memory[0]` of 13 features", "(2, 11, 2)"),
    ),
    (
        lambda: make_decoder().prepare(FLOATS, HOLES[0]),
        "`memory_mask` must be a list of 2",
    ),
    (
        lambda: make_model(head=PointerGenerator(6, 3)),
        *("`weights` must be floating-point", "received [", "It reads one memory"),
    ),
    (
        lambda: make_model(BahdanauAttention(3)),
        *("`memory` must be floating-point", "received ["),
    ),
]


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda x: x[1])
def test_refusals(refusal):
    assert_refused(*refusal)


def test_a_memory_or_a_state_that_does_not_fit():
    decoder, other = make_decoder(), BahdanauAttention(3)
    prepared = decoder.prepare(FLOATS)
    state = decoder.get_initial_state(prepared)
    other(QUERY, FLOATS[0])
    memory, attention, query = other.prepare(FLOATS[0]), decoder.attention, np.ones((B, 5))
    assert_refused(lambda: decoder.step(QUERY[:, 0], state, memory), "`memory` must be a list of 2")
    assert_refused(lambda: attention.attend(query, memory), "`value` must be a list of 2")
    assert_refused(lambda: attention.attend(query, FLOATS), "`memory` must come from prepare")
    nothing = [None, None]
    message = "this attention has no state"
    assert_refused(lambda: attention.attend(query, prepared, nothing), message)
    layer = SOURCES["states"].make("float32")
    layer(QUERY, FLOATS)
    memory, wrong = layer.prepare(FLOATS), [ops.zeros((B, 7)), ops.zeros((B, 7))]
    assert_refused(lambda: layer.attend(QUERY[:, 0], memory, wrong), "`state`", "shapes")
