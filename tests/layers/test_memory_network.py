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
    assert_all_close,
    assert_close,
    assert_gradients,
    gradients,
    numpy,
    randomize,
    weight_arrays,
)
from tests.oracles import memory_network, sentence_vector

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


@pytest.mark.parametrize("hops", [1, 3])
@every_tying
def test_tying(tying, hops):
    """Adjacent: A is the C of the hop before, B the first A, W the last C: K + 1 tables are enough.

    Layerwise: all hops share A, C, T_A, T_C and H; B and W are separate.
    """
    layer, adjacent = built(tying=tying, hops=hops), tying == "adjacent"
    tables, times = (hops + 1, hops + 1) if adjacent else (4, 2)
    assert [weight.shape for weight in layer.embeddings] == [(V, D)] * tables
    assert [weight.shape for weight in layer.times] == [(M, D)] * times
    updates = ["add"] * hops if adjacent else ["linear"]
    assert [hop.update for hop in layer.hop_layers] == updates
    kernels = [] if adjacent else [layer.hop_layers[0].update_kernel]
    expected = {id(weight) for weight in (*layer.embeddings, *layer.times, *kernels)}
    assert {id(weight) for weight in layer.trainable_weights} == expected
    assert len(layer.trainable_weights) == len(expected) == tables + times + len(kernels)


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


# Where padding is inserted: axis 1 of the story, or the last axis of story and question.
PLACES = {"sentences": (1, [0, N]), "words": (2, [0, 2, W])}


@every_tying
@every_encoding
@linear_or_not
@pytest.mark.parametrize(
    ("axis", "place"), [(axis, place) for axis, places in PLACES.values() for place in places]
)
@pytest.mark.each_value
def test_padding_has_no_effect(axis, place, tying, position_encoding, linear):
    """Logits and all gradients stay, and the weights of padding are zero."""
    layer = built(linear=linear, tying=tying, position_encoding=position_encoding)
    story, question = told()
    padded = [np.insert(story, [place] * 4, 0, axis=axis), question]
    if axis == 2:
        padded[1] = np.insert(question, [place] * 4, 0, axis=1)
    found = [gradients(layer, lambda x=x: [layer(*x)], []) for x in ((story, question), padded)]
    (logits, wanted), (padded_logits, padded_found) = found
    assert_all_close([*padded_logits, *padded_found], [*logits, *wanted])
    weights = numpy(run(layer, story, question)[1])
    expected = np.insert(weights, [place] * 4, 0, axis=2) if axis == 1 else weights
    assert_close(run(layer, *padded)[1], expected)


@every_tying
@every_encoding
@linear_or_not
@pytest.mark.each_value
def test_an_empty_sentence_between_takes_its_time_and_is_not_read(tying, position_encoding, linear):
    """Earlier sentences move one step back, as if that time were not in the tables."""
    layer = built(linear=linear, tying=tying, position_encoding=position_encoding)
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
    model = model_of(built(0.125, linear, "float32", tying=tying))
    before = model.predict_on_batch([*told()])
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.layers[-1].linear is linear
    assert np.array_equal(loaded.predict_on_batch([*told()]), before)


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


@on_tensorflow
def test_ids_are_not_folded():
    """An id outside the vocabulary is refused and never wraps around: 2**40 is not 0."""
    import tensorflow as tf

    layer, (story, question) = built(), told()
    with pytest.raises(tf.errors.InvalidArgumentError):
        layer(tensor(story, "int64") * 2**40, question)
