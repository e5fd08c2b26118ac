"""A memory network against loops of the paper."""

import keras
import numpy as np
import pytest

from keras_attention import MemoryNetwork
from keras_attention.layers.memory_network import word_weights
from tests import fast
from tests.backends import XLA, compiled, dtypes, on_tensorflow, tensor
from tests.helpers import (
    DTYPES,
    arguments,
    assert_all_close,
    assert_close,
    assert_gradients,
    assert_refused,
    gradients,
    numpy,
    randomize,
    weight_arrays,
)
from tests.oracles import memory_network, sentence_vector

every_update = pytest.mark.parametrize("update", ["add", "linear"])
every_tying = pytest.mark.parametrize("tying", ["adjacent", "layerwise"])
linear_or_not = pytest.mark.parametrize("linear", [False, True], ids=["softmax", "linear"])
eager_or_jit = pytest.mark.parametrize("jit", [False, True], ids=["eager", "jit"])


B, W, D, N, V, Q, M = 2, 5, 3, 7, 11, 13, 17


def made(dtype="float64", **options):
    options = {"vocabulary_size": V, "units": D, "memory_size": M, **options}
    return MemoryNetwork(**options, dtype=dtype)


def built(scale=0.25, linear=False, dtype="float64", **options):
    """A layer with random numbers in every row, also in the row of padding, which is never read."""
    layer = made(dtype, **options)
    layer.build((None, None, None), (None, None))
    layer.linear = linear
    return randomize(layer, scale=scale)


def told():
    """Stories and questions with padding before, between and behind words and sentences."""
    rng = np.random.default_rng(3)
    story, question = rng.integers(1, V, (B, N, W)), rng.integers(1, V, (B, Q))
    story[0, [0, 3, 6]] = 0
    story[0, 1, :2] = story[0, 2, 3:] = story[0, 4, 1:4] = story[1, 5, 1:] = 0
    story[1, 0, [0, 2]] = question[0, 7:] = question[1, [0, 4]] = 0
    return story, question


def run(layer, story, question):
    return list(layer(story, question, return_attention_scores=True))


def paper(layer, story, question, linear=False, weights=None):
    known = zip(layer.trainable_weights, weights or weight_arrays(layer), strict=True)
    named = {id(weight): array for weight, array in known}
    kernel = getattr(layer.hop_layers[0], "update_kernel", None)
    return memory_network(
        [named[id(weight)] for weight in layer.embeddings],
        [named[id(weight)] for weight in layer.times],
        story,
        question,
        named.get(id(kernel)),
        layer.hops,
        layer.tying,
        layer.position_encoding,
        layer.memory_size,
        layer.null_memories,
        linear,
    )


every_encoding = pytest.mark.parametrize("position_encoding", [False, True], ids=["bag", "order"])
every_depth = pytest.mark.parametrize("hops", [1, 3])
# Compiling takes a second, so only the deeper network is compiled.
depth_and_mode = pytest.mark.parametrize(
    ("hops", "jit"), [(1, False), (3, False), (3, True)], ids=["1-eager", "3-eager", "3-jit"]
)


@every_tying
@every_encoding
@linear_or_not
@depth_and_mode
@pytest.mark.parametrize("memory_size", [3, M])
@pytest.mark.each_value
def test_equals_the_paper(tying, position_encoding, linear, hops, memory_size, jit):
    layer = built(
        linear=linear,
        tying=tying,
        position_encoding=position_encoding,
        hops=hops,
        memory_size=memory_size,
    )
    result = compiled(lambda *ids: run(layer, *ids), jit)(*map(tensor, told()))
    assert [x.shape for x in result] == [(B, V), (B, hops, N)]
    assert_all_close(result, paper(layer, *told(), linear=linear))
    assert_close(layer(*told()), numpy(result[0]))


@every_tying
@every_encoding
@linear_or_not
@depth_and_mode
@pytest.mark.each_value
def test_gradients_are_those_of_the_paper(tying, position_encoding, linear, hops, jit):
    # Sentences further back than five are not read.
    layer = built(
        linear=linear, tying=tying, position_encoding=position_encoding, hops=hops, memory_size=5
    )

    def oracle(inputs, weights):
        return paper(layer, *told(), linear=linear, weights=weights)

    assert_gradients(layer, lambda: run(layer, *told()), [], oracle, jit=jit)


@every_tying
@linear_or_not
@pytest.mark.parametrize(
    "option", [{"position_encoding": 7}, {"position_encoding": 2}, {"null_memories": True}]
)
@pytest.mark.parametrize(("memory_size", "jit"), [(3, False), (3, True), (M, False)])
@pytest.mark.each_value
def test_departures_of_the_authors_code(tying, linear, option, memory_size, jit):
    layer = built(linear=linear, tying=tying, memory_size=memory_size, **option)
    # One story is empty.
    story, question = (np.concatenate([x, x[:1]]) for x in told())
    story[2] = 0

    def oracle(inputs, weights):
        return paper(layer, story, question, linear=linear, weights=weights)

    assert_all_close(run(layer, story, question), oracle([], None))
    if memory_size == 3:
        assert_gradients(layer, lambda: run(layer, story, question), [], oracle, jit=jit)


@every_tying
@linear_or_not
@pytest.mark.parametrize(
    ("dtype", "jit"), [*((dtype, False) for dtype in DTYPES), ("float16", True)]
)
@pytest.mark.each_value
def test_other_dtypes(tying, linear, dtype, jit):
    layer = built(0.125, linear, dtype, tying=tying)
    result = compiled(lambda *ids: run(layer, *ids), jit)(*map(tensor, told()))
    assert dtypes(*result) == [dtype, dtype]
    logits, weights = paper(layer, *told(), linear=linear)
    # Without a softmax the terms of the logits cancel.
    assert_close(result[0], logits, dtype, before=4 if linear else 1)
    assert_close(result[1], weights, dtype)


def test_half_precision_counts_the_words_of_long_sentences():
    """599 words are counted, although bfloat16 counts only to 256."""
    story = np.random.default_rng(3).integers(1, V, (B, 2, 599))
    for dtype in ("bfloat16", "float16"):
        factors = word_weights(tensor(story), True, D, dtype)
        index = np.arange(1, 600) / 599
        expected = np.broadcast_to([1 - index, 2 * index - 1], (B, 2, 2, 599))
        assert_close(factors, expected, dtype)


@pytest.mark.parametrize("kind", ["int8", "uint8", "int32", "int64", "uint32"])
def test_ids_of_any_integers(kind):
    layer = built()
    assert_all_close(run(layer, *(x.astype(kind) for x in told())), run(layer, *told()))


@every_depth
def test_adjacent_tying(hops):
    """A is the C of the hop before, B the first A, W the last C: K + 1 tables are enough."""
    layer = built(hops=hops)
    assert len(layer.embeddings) == len(layer.times) == hops + 1
    assert [weight.shape for weight in layer.embeddings] == [(V, D)] * (hops + 1)
    assert [weight.shape for weight in layer.times] == [(M, D)] * (hops + 1)
    assert [hop.update for hop in layer.hop_layers] == ["add"] * hops
    expected = {id(weight) for weight in (*layer.embeddings, *layer.times)}
    assert {id(weight) for weight in layer.trainable_weights} == expected
    assert len(layer.trainable_weights) == len(expected) == 2 * (hops + 1)


@every_depth
def test_layerwise_tying(hops):
    """All hops share A, C, T_A, T_C and H; B and W are separate."""
    layer = built(tying="layerwise", hops=hops)
    (hop,) = layer.hop_layers
    assert hop.update == "linear"
    assert [weight.shape for weight in layer.embeddings] == [(V, D)] * 4
    assert [weight.shape for weight in layer.times] == [(M, D)] * 2
    expected = {id(weight) for weight in (*layer.embeddings, *layer.times, hop.update_kernel)}
    assert {id(weight) for weight in layer.trainable_weights} == expected
    assert len(layer.trainable_weights) == len(expected) == 7


@every_tying
def test_initial_weights(tying):
    """N(0, 0.1), as in the paper, and zero for padding."""
    layer = MemoryNetwork(211, 101, tying=tying, memory_size=103)
    layer.build((None, None, None), (None, None))
    for table in layer.embeddings:
        assert not numpy(table)[0].any()
    for drawn in [*(numpy(x)[1:] for x in layer.embeddings), *map(numpy, layer.times)]:
        assert abs(drawn.mean()) < 0.005
        assert abs(drawn.std() - 0.1) < 0.005
    first = [numpy(weight)[1] for weight in (*layer.embeddings, *layer.times)]
    assert len(np.unique(first, axis=0)) == len(first)


@every_tying
@linear_or_not
@eager_or_jit
@pytest.mark.each_value
def test_padding_has_no_gradient(tying, linear, jit):
    layer = built(linear=linear, tying=tying)
    (logits, _), found = gradients(layer, lambda: run(layer, *told()), [], jit)
    assert not numpy(logits)[:, 0].any()
    places = [id(weight) for weight in layer.trainable_weights]
    for table in layer.embeddings:
        gradient = numpy(found[places.index(id(table))])
        assert not gradient[0].any()
        assert gradient[1:].any()


def model_of(layer):
    ids = keras.Input((None, None), dtype="int32"), keras.Input((None,), dtype="int32")
    return keras.Model(ids, layer(*ids))


@every_tying
@pytest.mark.parametrize("jit", fast([False, True], [False]), ids=["graph", "jit"])
def test_padding_does_not_learn(tying, jit):
    layer = made("float32", tying=tying)
    model = model_of(layer)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.5, momentum=0.9), loss, jit_compile=jit and XLA)
    before = [numpy(table) for table in layer.embeddings]
    # The answer 0 has a gradient for its row too.
    for answers in ([0, 4], [3, 0], [5, 1]):
        model.train_on_batch([*told()], np.array(answers))
    for old, table in zip(before, layer.embeddings, strict=True):
        assert not numpy(table)[0].any()
        assert (numpy(table)[1:] != old[1:]).any()


@every_tying
@every_encoding
@linear_or_not
class TestPadding:
    def assert_same(self, layer, ids, padded):
        """Logits and all gradients; returns the weights."""
        found = [gradients(layer, lambda x=x: [layer(*x)], []) for x in (ids, padded)]
        (logits, wanted), (padded_logits, padded_found) = found
        assert_all_close([*padded_logits, *padded_found], [*logits, *wanted])
        return [numpy(run(layer, *x)[1]) for x in (ids, padded)]

    @pytest.mark.parametrize("before", [True, False], ids=["front", "behind"])
    @pytest.mark.each_value
    def test_sentences(self, before, tying, position_encoding, linear):
        layer = built(linear=linear, tying=tying, position_encoding=position_encoding)
        story, question = told()
        more = (4, 0) if before else (0, 4)
        padded = np.pad(story, ((0, 0), more, (0, 0)))
        expected, weights = self.assert_same(layer, (story, question), (padded, question))
        assert_close(weights, np.pad(expected, ((0, 0), (0, 0), more)))

    @pytest.mark.parametrize("place", [0, 2, W], ids=["front", "between", "behind"])
    @pytest.mark.each_value
    def test_words(self, place, tying, position_encoding, linear):
        layer = built(linear=linear, tying=tying, position_encoding=position_encoding)
        story, question = told()
        padded = np.insert(story, [place] * 4, 0, axis=2), np.insert(question, [place] * 4, 0, 1)
        expected, weights = self.assert_same(layer, (story, question), padded)
        assert_close(weights, expected)

    @pytest.mark.each_value
    def test_an_empty_sentence_between_takes_its_time_and_is_not_read(
        self, tying, position_encoding, linear
    ):
        """Earlier sentences move one step back, as if that time were not in the tables."""
        options = {"linear": linear, "tying": tying, "position_encoding": position_encoding}
        layer = built(**options)
        story, question = np.random.default_rng(3).integers(1, V, (B, N, W)), told()[1]
        padded = np.insert(story, 4, 0, axis=1)
        logits, weights = run(layer, padded, question)
        assert not np.allclose(numpy(layer(story, question)), numpy(logits))
        # Three sentences come after it.
        for table in layer.times:
            table.assign(np.concatenate([np.delete(numpy(table), 3, 0), np.ones((1, D))]))
        expected, read = run(layer, story, question)
        assert_all_close([logits, weights], [expected, np.insert(numpy(read), 4, 0, axis=2)])


@every_tying
@linear_or_not
def test_sentences_further_back_than_the_memory_fall_out(tying, linear):
    layer = built(linear=linear, tying=tying, memory_size=4)
    story, question = told()
    # The last sentence is the sixth in one story and the seventh in the other.
    for ids, kept in ((story[:1], slice(2, 6)), (story[1:], slice(3, 7))):
        logits, weights = run(layer, ids, question[:1])
        expected, read = run(layer, ids[:, kept], question[:1])
        assert_all_close([logits, weights[:, :, kept]], [expected, read])
        assert numpy(read)[:, :, 0].all()
        hidden = np.delete(numpy(weights), kept, axis=2)
        assert hidden.shape[2] == 3
        assert not hidden.any()


@every_tying
@linear_or_not
@pytest.mark.parametrize(
    ("shape", "jit"), [((0, W), False), ((N, W), False), ((N, 0), False), ((N, W), True)]
)
@pytest.mark.each_value
def test_without_a_story_the_question_alone_answers(tying, linear, shape, jit):
    layer, question = built(linear=linear, tying=tying), told()[1]
    story = np.zeros((B, *shape), int)
    (logits, weights), found = gradients(layer, lambda: run(layer, story, question), [], jit)
    assert_close(weights, np.zeros((B, 3, shape[0])))
    assert_close(logits, paper(layer, story, question, linear)[0])
    if tying == "adjacent":
        # No hop changes u = B q, and the last C holds the answers.
        asked = [sentence_vector(words, numpy(layer.embeddings[0]), True) for words in question]
        answers = np.array(asked) @ numpy(layer.embeddings[3]).T
        assert_close(logits[:, 1:], answers[:, 1:])
    found = dict(zip([weight.path for weight in layer.trainable_weights], found, strict=True))
    assert all(np.isfinite(numpy(x)).all() for x in found.values())
    assert not any(numpy(found[weight.path]).any() for weight in layer.times)


@every_tying
@linear_or_not
@pytest.mark.parametrize("length", [0, Q])
def test_an_empty_question(tying, linear, length):
    """All scores of u = 0 are zero: the first hop reads every sentence alike, or nothing."""
    layer, story = built(linear=linear, tying=tying), told()[0]
    question = np.zeros((B, length), int)
    outputs, found = gradients(layer, lambda: run(layer, story, question), [])
    assert_all_close(outputs, paper(layer, story, question, linear))
    spoken = story.any(axis=2)
    alike = spoken / spoken.sum(axis=1, keepdims=True)
    assert_close(outputs[1][:, 0], 0 * alike if linear else alike)
    assert all(np.isfinite(numpy(x)).all() for x in found)


@on_tensorflow
@every_tying
def test_linear_may_be_set_at_any_time(tying):
    import tensorflow as tf

    layer, traces = built(tying=tying), []

    @tf.function(jit_compile=True)
    def function(*ids):
        traces.append(1)
        return run(layer, *ids)

    assert layer.linear is False
    for linear in (True, False, True):
        layer.linear = linear
        assert layer.linear is linear
        assert [hop.linear for hop in layer.hop_layers] == ([linear] * len(layer.hop_layers))
        expected = paper(layer, *told(), linear=linear)
        assert_all_close(function(*map(tensor, told())), expected)
    assert len(traces) == 1


class Answerer(keras.Model):
    """A model whose layer is built by `fit`."""

    def __init__(self, network):
        super().__init__()
        self.network = network

    def call(self, inputs):
        return self.network(inputs["story"], inputs["question"])


@pytest.mark.parametrize(
    ("tying", "start", "jit"),
    [
        ("adjacent", True, True),
        pytest.param("adjacent", False, False, marks=pytest.mark.slow),
        pytest.param("layerwise", True, False, marks=pytest.mark.exhaustive),
    ],
)
def test_linear_start_of_a_layer_that_fit_builds(tying, start, jit):
    layer = made("float32", tying=tying)
    layer.linear = start
    model, (story, question), answers = Answerer(layer), told(), np.array([3, 7])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    # The weights stay the same, so the losses tell which equation was used.
    model.compile(keras.optimizers.SGD(0.0), loss, jit_compile=jit and XLA)

    def fit():
        inputs = {"story": story, "question": question}
        (found,) = model.fit(inputs, answers, batch_size=B, verbose=0).history["loss"]
        return found

    def wanted(linear):
        logits, _ = paper(layer, story, question, linear)
        return np.mean(
            [np.log(np.sum(np.exp(x))) - x[n] for x, n in zip(logits, answers, strict=True)]
        )

    for linear in (start, not start):
        found = fit()
        assert layer.linear is linear
        assert found == pytest.approx(wanted(linear), abs=2e-6)
        assert abs(wanted(True) - wanted(False)) > 1e-4
        layer.linear = not linear


@every_tying
@linear_or_not
@pytest.mark.each_value
def test_a_loaded_model_is_as_linear_as_the_saved_one(tying, linear, tmp_path):
    layer = built(0.125, linear, "float32", tying=tying)
    model = model_of(layer)
    before = model.predict_on_batch([*told()])
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    twin = loaded.layers[-1]
    assert type(twin) is MemoryNetwork
    assert twin.linear is linear
    for x, y in zip(loaded.weights, model.weights, strict=True):
        assert np.array_equal(numpy(x), numpy(y))
    assert np.array_equal(loaded.predict_on_batch([*told()]), before)


def chains(samples, kinds=4):
    """Facts about who holds a thing and where people are: two of them give its place."""
    rng = np.random.default_rng(1)
    story, question, answers = [], [], []
    for _ in range(samples):
        things, people, places = (rng.permutation(kinds)[:2] + n * kinds + 1 for n in range(3))
        facts = [*zip(things, people, strict=True), *zip(people, places, strict=True)]
        story.append(rng.permutation(facts))
        question.append(things[:1])
        answers.append(places[0])
    return np.array(story), np.array(question), np.array(answers)


@pytest.mark.exhaustive
def test_learns_to_join_two_facts():
    """One hop cannot join them: it finds two places in the story and must guess."""
    story, question, answers = chains(512)
    losses = {}
    for hops in (1, 2):
        keras.utils.set_random_seed(3)
        layer = MemoryNetwork(13, 20, hops=hops)
        layer.linear = True
        model = model_of(layer)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.Adam(0.02), loss, jit_compile=XLA)
        options = {"batch_size": 32, "epochs": 15, "verbose": 0}
        losses[hops] = model.fit([story, question], answers, **options).history["loss"]
        layer.linear = False
        losses[hops] += model.fit([story, question], answers, **options).history["loss"]
    assert losses[2][0] > 1.5
    assert losses[2][-1] < 0.1
    assert losses[1][-1] > 0.5


@every_tying
def test_compute_output_shape(tying):
    layer = made(tying=tying)
    assert layer.compute_output_shape((B, N, W), (B, Q)) == (B, V)
    assert layer.compute_output_shape((None, None, None), (None, None)) == (None, V)
    ids = keras.Input((N, W), dtype="int32"), keras.Input((Q,), dtype="int32")
    logits, weights = layer(*ids, return_attention_scores=True)
    assert (logits.shape, weights.shape) == ((None, V), (None, 3, N))


STORY, QUESTION = (B, N, W, "int32"), (B, Q, "int32")
BAD_CALLS = {
    "no question": (
        {"story": STORY},
        (
            "`question` must be integer ids, of shape (2, words)",
            "received None. Call layer(story, ",
        ),
    ),
    "rank 2 of a story": (
        {"story": (B, W, "int32"), "question": QUESTION},
        ("`story` must be integer ids, of shape (batch, sentences, words)", "of shape (2, 5)"),
    ),
    "rank 4 of a story": (
        {"story": (B, N, W, D, "int32"), "question": QUESTION},
        (
            "`story` must be integer ids, of shape (batch, sentences, words)",
            "of shape (2, 7, 5, 3)",
        ),
    ),
    "rank 1 of a question": (
        {"story": STORY, "question": (B, "int32")},
        ("`question` must be integer ids, of shape (2, words)", "of shape (2,)"),
    ),
    "rank 3 of a question": (
        {"story": STORY, "question": (B, Q, D, "int32")},
        ("`question` must be integer ids, of shape (2, words)", "of shape (2, 13, 3)"),
    ),
    "batch sizes": (
        {"story": STORY, "question": (3, Q, "int32")},
        ("`question` must be", "because `story` has batch size 2; received int32 of shape (3, 13)"),
    ),
    "numbers for a story": (
        {"story": (B, N, W, "float32"), "question": QUESTION},
        ("`story` must be integer ids", "received float32"),
    ),
    "numbers for a question": (
        {"story": STORY, "question": (B, Q, "float32")},
        ("`question` must be integer ids", "received float32"),
    ),
    "booleans": (
        {"story": (B, N, W, "bool"), "question": QUESTION},
        ("`story` must be integer ids", "received bool"),
    ),
}


@pytest.mark.parametrize("symbolic", [False, True], ids=["eager", "symbolic"])
@pytest.mark.parametrize("prepared", [False, True], ids=["new", "built"])
@pytest.mark.parametrize(("shapes", "fragments"), BAD_CALLS.values(), ids=BAD_CALLS)
def test_bad_calls(shapes, fragments, prepared, symbolic):
    layer = (built if prepared else made)(dtype="float32", name="network")
    inputs = arguments(shapes, symbolic)
    assert_refused(lambda: layer(**inputs), "network", *fragments)


@pytest.mark.parametrize("prepared", [False, True], ids=["new", "built"])
@pytest.mark.parametrize("symbolic", [False, True], ids=["eager", "symbolic"])
def test_a_list_is_not_a_story(prepared, symbolic):
    layer = (built if prepared else made)(dtype="float32")
    ids = [*arguments({"story": STORY, "question": QUESTION}, symbolic).values()]
    assert_refused(
        lambda: layer(ids),
        "`story` must be integer ids",
        "received [",
        "Call layer(story, question)",
    )


@pytest.mark.parametrize("name", ["vocabulary_size", "units", "hops", "memory_size"])
@pytest.mark.parametrize("value", [0, -1, 2.0, True, None, "7", (3,)])
def test_sizes_are_positive_integers(name, value):
    assert_refused(
        lambda: made(name="network", **{name: value}),
        f"network: `{name}` must be a positive integer",
        f"received {value!r}",
    )


@pytest.mark.parametrize(
    ("value", "remedy"),
    [
        *((x, "Or it is True or False.") for x in (None, "words", 0)),
        (2.0, "Write position_encoding=2."),
    ],
)
def test_position_encodings_are_switched_or_of_a_length(value, remedy):
    assert_refused(
        lambda: made(name="network", position_encoding=value),
        "network: `position_encoding` must be a positive integer",
        f"received {value!r}",
        remedy,
    )


def test_a_length_of_one_is_not_a_switch():
    layer = made(position_encoding=1)
    assert layer.get_config()["position_encoding"] is not True
    layer.build((None, None, None), (None, None))
    story, question = told()
    story[:, :, 1:] = question[:, 1:] = 0
    bags = MemoryNetwork.from_config({**layer.get_config(), "position_encoding": False})
    bags.build((None, None, None), (None, None))
    bags.set_weights(layer.get_weights())
    assert_close(layer(story, question), numpy(bags(story, question)))


def test_a_linear_start_is_set_before_the_layer_is_built():
    layer = made(name="network")
    assert not layer.linear
    layer.linear = True
    layer(*told())
    assert layer.linear
    assert not made().linear


def test_tyings_are_two():
    assert_refused(
        lambda: made(name="network", tying="none"),
        "network: `tying` must be one of 'adjacent', 'layerwise'",
        "received 'none'",
    )


@pytest.mark.parametrize("name", ["null_memories"])
@pytest.mark.parametrize("value", ["no", None, 2, 0.5])
def test_switches_are_true_or_false(name, value):
    assert_refused(
        lambda: made(name="network", **{name: value}),
        f"network: `{name}` must be True or False",
        f"received {value!r}",
    )


def test_linear_is_true_or_false():
    layer = built()
    with pytest.raises(
        ValueError, match="`linear` must be True or False, a boolean; received 'no'"
    ):
        layer.linear = "no"


@on_tensorflow
def test_ids_are_not_folded():
    """An id outside the vocabulary is refused and never wraps around: 2**40 is not 0."""
    import tensorflow as tf

    layer, (story, question) = built(), told()
    with pytest.raises(tf.errors.InvalidArgumentError):
        layer(tensor(story, "int64") * 2**40, question)


def test_switches_of_numpy_are_saved_as_those_of_python():
    layer = made(null_memories=np.True_)
    config = layer.get_config()
    assert config["null_memories"] is True
