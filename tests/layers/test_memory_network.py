"""A memory network against loops of the paper."""

import keras
import numpy as np
import pytest

from keras_attention import MemoryNetwork
from keras_attention.layers.memory_network import word_weights
from tests import fast, helpers
from tests.backends import XLA, compiled, dtypes, on_tensorflow, tensor
from tests.helpers import DTYPES, assert_all_close, assert_close, assert_gradients, gradients, numpy
from tests.layers.papers import run
from tests.oracles import memory_network

every_tying = pytest.mark.parametrize("tying", ["adjacent", "layerwise"])
linear_or_not = pytest.mark.parametrize("linear", [False, True], ids=["softmax", "linear"])


B, W, D, N, V, Q, M = 2, 5, 3, 7, 11, 13, 9


def made(dtype="float64", **options):
    return MemoryNetwork(V, D, **{"memory_size": M} | options, dtype=dtype)


def built(scale=0.25, linear=False, dtype="float64", **options):
    """A layer with random numbers in every row, also in the row of padding, which is never read."""
    layer = made(dtype, **options)
    layer.build((None, None, None), (None, None))
    layer.linear = linear
    return helpers.randomize(layer, scale=scale)


def told():
    rng = np.random.default_rng(3)
    story, question = rng.integers(1, V, (B, N, W)), rng.integers(1, V, (B, Q))
    story[0, [0, 3, 6]] = 0
    story[0, 1, :2] = story[0, 2, 3:] = story[0, 4, 1:4] = story[1, 5, 1:] = 0
    story[1, 0, [0, 2]] = question[0, 7:] = question[1, [0, 4]] = 0
    return story, question


def paper(layer, story, question, linear=False, weights=None):
    arrays = weights or helpers.weight_arrays(layer)
    named = dict(zip(map(id, layer.trainable_weights), arrays, strict=True))
    tables, times = ([named[id(x)] for x in xs] for xs in (layer.embeddings, layer.times))
    kernel = named.get(id(getattr(layer.hop_layers[0], "update_kernel", None)))
    names = "hops", "tying", "position_encoding", "memory_size", "null_memories"
    options = {name: getattr(layer, name) for name in names}
    return memory_network(tables, times, story, question, kernel, linear=linear, **options)


@every_tying
@pytest.mark.parametrize("options", [
    {}, {"position_encoding": False}, {"memory_size": 3}, {"position_encoding": 7},
    {"position_encoding": 2, "memory_size": 3},
    {"position_encoding": 1, "null_memories": True, "memory_size": 3},
])  # fmt: skip
@linear_or_not
# Compiling takes a second, so only the deeper network is compiled.
@pytest.mark.parametrize(("hops", "jit"), [(1, False), (3, False), (3, True)])
@pytest.mark.each_value
def test_equals_the_paper(tying, options, linear, hops, jit):
    """Outputs and gradients; one story is empty, and one question. Padding has no gradient."""
    layer = built(linear=linear, tying=tying, hops=hops, **options)
    story, question = (np.concatenate([x, x]) for x in told())
    story[2] = question[3] = 0

    def oracle(inputs, weights):
        return paper(layer, story, question, linear=linear, weights=weights)

    def call(*ids):
        return run(layer, *ids)

    result = compiled(call, jit)(tensor(story), tensor(question))
    assert [x.shape for x in result] == [(2 * B, V), (2 * B, hops, N)]
    assert_all_close(result, oracle([], None))
    assert_close(layer(story, question), numpy(result[0]))
    assert_gradients(layer, lambda: call(story, question), [], oracle, jit=jit)


@every_tying
@linear_or_not
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.each_value
def test_other_dtypes(tying, linear, dtype):
    layer = built(0.125, linear, dtype, tying=tying)
    result = run(layer, *map(tensor, told()))
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


@pytest.mark.parametrize("hops", [1, 3])
@every_tying
def test_tying(tying, hops):
    """Adjacent: A is the C of the hop before, B the first A, W the last C: K + 1 tables are enough.

    Layerwise: all hops share A, C, T_A, T_C and H; B and W are separate.
    """
    layer, adjacent = built(tying=tying, hops=hops), tying == "adjacent"
    assert [x.shape for x in layer.embeddings] == [(V, D)] * (hops + 1 if adjacent else 4)
    assert [x.shape for x in layer.times] == [(M, D)] * (hops + 1 if adjacent else 2)
    assert [x.update for x in layer.hop_layers] == (["add"] * hops if adjacent else ["linear"])
    kernels = [] if adjacent else [layer.hop_layers[0].update_kernel]
    expected = [id(weight) for weight in (*layer.embeddings, *layer.times, *kernels)]
    assert sorted(map(id, layer.trainable_weights)) == sorted(set(expected))


@every_tying
def test_initial_weights(tying):
    """N(0, 0.1), as in the paper, and zero for padding."""
    layer = MemoryNetwork(211, 101, tying=tying, memory_size=103)
    layer.build((None, None, None), (None, None))
    tables, times = ([numpy(x) for x in xs] for xs in (layer.embeddings, layer.times))
    assert not any(x[0].any() for x in tables)
    drawn = [*(x[1:] for x in tables), *times]
    assert all(abs(x.mean()) < 0.005 and abs(x.std() - 0.1) < 0.005 for x in drawn)
    assert len(np.unique([x[0] for x in drawn], axis=0)) == len(drawn)


@every_tying
@pytest.mark.parametrize("position_encoding", [False, True], ids=["bag", "order"])
# Padding in axis 1 of the story, or in the last axis of story and question.
@pytest.mark.parametrize(("axis", "place"), [(1, 0), (1, N), (2, 0), (2, 2), (2, W)])
@pytest.mark.each_value
def test_padding_has_no_effect(axis, place, tying, position_encoding):
    """Logits and all gradients stay, and the weights of padding are zero."""
    layer = built(tying=tying, position_encoding=position_encoding)
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
@linear_or_not
@pytest.mark.parametrize(("shape", "words"), [((0, W), Q), ((N, 0), Q), ((N, W), 0)])
@pytest.mark.each_value
def test_nothing_to_read_or_to_ask(tying, linear, shape, words):
    layer = built(linear=linear, tying=tying)
    story, question = np.ones((B, *shape), int), told()[1][:, :words]
    outputs, found = gradients(layer, lambda: run(layer, story, question), [])
    assert_all_close(outputs, paper(layer, story, question, linear))
    assert all(np.isfinite(numpy(x)).all() for x in found)


class Answerer(keras.Model):  # a model whose layer is built by `fit`
    def __init__(self, network):
        super().__init__()
        self.network = network

    def call(self, inputs):
        return self.network(inputs["story"], inputs["question"])


@pytest.mark.parametrize("start", fast([True, False], [True]))
def test_linear_start_of_a_layer_that_fit_builds(start):
    layer, (story, question), answers = made("float32"), told(), np.array([3, 7])
    model, loss = Answerer(layer), keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    # The weights stay the same, so the losses tell which equation was used.
    model.compile(keras.optimizers.SGD(0.0), loss, jit_compile=not start and XLA)
    for linear in (start, not start):
        layer.linear = linear
        inputs = {"story": story, "question": question}
        found = model.fit(inputs, answers, batch_size=B, verbose=0).history["loss"]
        assert layer.linear is linear
        logits = [paper(layer, story, question, x)[0] for x in (linear, not linear)]
        expected, other = (float(numpy(loss(answers, x))) for x in logits)
        assert found == pytest.approx([expected], abs=2e-6)
        assert abs(expected - other) > 1e-4


def test_a_loaded_model_is_as_linear_as_the_saved_one(tmp_path):
    ids = keras.Input((None, None), dtype="int32"), keras.Input((None,), dtype="int32")
    model = keras.Model(ids, built(0.125, True, "float32", position_encoding=1)(*ids))
    before = model.predict_on_batch([*told()])
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.layers[-1].linear is True
    assert loaded.layers[-1].position_encoding is not True  # but a length of one
    assert np.array_equal(loaded.predict_on_batch([*told()]), before)


@on_tensorflow
def test_ids_are_not_folded():
    """An id outside the vocabulary is refused and never wraps around: 2**40 is not 0."""
    import tensorflow as tf

    layer, (story, question) = built(), told()
    with pytest.raises(tf.errors.InvalidArgumentError):
        layer(tensor(story, "int64") * 2**40, question)
