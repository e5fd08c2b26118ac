"""Greedy and beam search against searches written as loops over single hypotheses."""

import math

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention.search import SearchResult, beam_search, greedy_search
from keras_attention.search._top_k import GROUP, SHORTEST, top_k
from tests import fast
from tests.backends import BACKEND, compiled, on_tensorflow
from tests.helpers import assert_refused, numpy
from tests.search import oracles
from tests.search.oracles import END, TOKENS, D, Decoder, V, assert_same, penalty, to_numpy


def count_up(tokens, state, memory):
    """The next token is the last plus one, and the memory says how surely."""
    return memory * ops.one_hot((tokens + 1) % V, V, dtype="float32"), state, None


@pytest.mark.parametrize("length", [TOKENS["max_length"], 1])
def test_greedy_search_is_the_loop(length):
    decoder, options = Decoder(), TOKENS | {"max_length": length}
    state, memory = decoder.inputs(13)
    expected = oracles.oracle_greedy(decoder, state, memory, max_length=length)
    assert length == 1 or len({len(tokens) for tokens, *_ in expected}) > 3
    greedy = greedy_search(decoder.step, state, memory, **options)
    oracles.assert_found(greedy, expected, length)
    greedy = to_numpy(greedy)
    for length_penalty in (0.0, 1.3):
        more = {"beam_width": 1, "length_penalty": length_penalty}
        beam = to_numpy(beam_search(decoder.step, state, memory, **options, **more))
        scores = greedy.scores / penalty(greedy.lengths, length_penalty)
        assert_same(SearchResult(*(x[:, 0] for x in beam)), greedy._replace(scores=scores))


@pytest.mark.parametrize(("width", "length_penalty", "length"), [
    (2, 1.0, 11), (3, 0.0, 11), (5, 0.6, 11), (11, 1.7, 11), (V, 1.0, 1)])  # fmt: skip
def test_beam_search_is_the_loop(width, length_penalty, length):
    decoder = Decoder(width)
    state, memory = decoder.inputs(5)
    expected = oracles.oracle_beam(decoder, state, memory, width, length_penalty, length)
    assert length == 1 or len({len(tokens) for beams in expected for tokens, *_ in beams}) > 1
    options = TOKENS | {"max_length": length, "length_penalty": length_penalty}
    found = beam_search(decoder.step, state, memory, beam_width=width, **options)
    oracles.assert_found(found, expected, length)


@pytest.mark.parametrize("find", [greedy_search, beam_search])
def test_a_step_of_an_ended_hypothesis_does_not_matter(find):
    decoder = Decoder(vocabulary=60 * GROUP + 1)  # the last group of words is padded
    decoder.count[END] += 12
    state, memory = decoder.inputs(5)

    def step(tokens, state, memory):
        logits, state, weights = decoder.step(tokens, state, memory)
        ended = ops.expand_dims(tokens == END, -1)
        state["hidden"] = ops.where(ended, math.nan, state["hidden"])
        return ops.where(ended, math.nan, logits), state, ops.where(ended, math.nan, weights)

    expected = find(decoder.step, state, memory, **TOKENS)
    assert len(np.unique(ops.convert_to_numpy(expected.lengths))) > 1
    assert_same(find(step, state, memory, **TOKENS), expected)


def test_a_state_or_a_memory_alone_is_enough():
    decoder = Decoder()
    state, memory = decoder.inputs(5)
    expected = beam_search(decoder.step, state, memory, **TOKENS)

    def all_in_state(tokens, both, memory):
        assert memory is None
        logits, state, weights = decoder.step(tokens, *both)
        return logits, (state, both[1]), weights

    assert_same(beam_search(all_in_state, (state, memory), **TOKENS), expected)
    memory = np.full((3, 1), 9.0, "float32"), np.zeros((3, 0, D), "float32")
    step = lambda tokens, state, memory: count_up(tokens, state, memory[0])  # noqa: E731
    for nothing in (None, (), {"nothing": None}, np.zeros((3, 0), "float32")):
        for find in (greedy_search, beam_search):
            found = find(step, nothing, memory, **TOKENS)
            assert ops.convert_to_numpy(found.lengths).reshape(3, -1)[:, 0].tolist() == [6] * 3
            assert found.weights is None


def test_large_logits_keep_their_precision():
    certainty = np.full((1, 1), 3.0, "float32")

    def step(tokens, state, memory):
        logits, state, weights = count_up(tokens, state, memory)
        return logits + 2.0**17, state, weights  # exact: three is 192 units in the last place

    for find in (greedy_search, beam_search):
        expected = to_numpy(find(count_up, None, certainty, **TOKENS)).scores
        found = to_numpy(find(step, None, certainty, **TOKENS)).scores
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_a_step_that_allows_nothing():
    # After token 4 nothing is allowed: the most probable token leads nowhere.
    table = np.full((1, V, V), -np.inf, "float32")
    table[0, oracles.START, [3, 4]] = 1.0, 2.0
    table[0, 3, END] = 0.0

    def next_tokens(tokens, state, memory):
        row = ops.take_along_axis(memory, ops.reshape(tokens, (-1, 1, 1)), axis=1)
        return ops.squeeze(row, 1), state, None

    found = to_numpy(beam_search(next_tokens, None, table, beam_width=2, **TOKENS))
    assert found.tokens[..., :2].tolist() == [[[3, END], [END, END]]]
    assert found.lengths.tolist() == [[2, 0]]
    expected = (1 - math.log(math.exp(1) + math.exp(2))) / penalty(2, 1.0)
    np.testing.assert_allclose(found.scores, [[expected, -np.inf]], rtol=1e-5)
    for found in (
        to_numpy(greedy_search(next_tokens, None, table, **TOKENS)),
        to_numpy(beam_search(next_tokens, None, table, beam_width=1, **TOKENS)),
    ):
        assert np.all(found.tokens == END)
        assert found.lengths.item() == 0
        assert found.scores.item() == -np.inf


def test_weights_keep_their_dtype_and_the_softmax_is_float32():
    certainty = np.full((2, 1), 0.5, "float16")

    def step(tokens, state, memory):
        return memory * ops.one_hot((tokens + 1) % V, V, dtype="float16"), state, memory

    found = to_numpy(greedy_search(step, None, certainty, **TOKENS))
    assert found.weights.dtype == np.float16
    assert found.weights[..., 0].tolist() == [[0.5] * 6 + [0.0] * 5] * 2
    log_prob = 0.5 - math.log(math.exp(0.5) + V - 1)
    np.testing.assert_allclose(found.scores, 6 * log_prob, rtol=1e-6)


@pytest.mark.skipif(keras.backend.backend() == "jax", reason="a traced step is called only once")
def test_search_stops_when_all_have_ended():
    calls, certainty = [], np.full((2, 1), 90.0, "float32")

    def end_at_once(tokens, state, memory):
        return memory * ops.one_hot(tokens * 0 + END, V, dtype="float32"), state, None

    def end_or_nothing(tokens, state, memory):
        logits, state, weights = end_at_once(tokens, state, memory)
        return ops.where(logits > 0, logits, -math.inf), state, weights

    def count(step, find, memory=certainty, **options):
        calls.clear()
        find(lambda *given: calls.append(1) or step(*given), None, memory, **TOKENS, **options)
        return len(calls)

    assert count(count_up, greedy_search) == 6
    assert count(count_up, beam_search, beam_width=1) == 6
    # All but the best of the first step's beams end in the second.
    assert count(end_at_once, beam_search, beam_width=V, length_penalty=0.0) == 2
    assert count(end_or_nothing, beam_search, beam_width=3) == 1
    assert count(end_or_nothing, greedy_search, -certainty) == 1


@on_tensorflow
@pytest.mark.slow
@pytest.mark.parametrize("jit_compile", fast([False, True], [True], slow=0))
@pytest.mark.parametrize("find", [greedy_search, beam_search, oracles.both_directions])
def test_sizes_may_be_unknown(find, jit_compile):
    import tensorflow as tf

    def run(memory, mask, prefix):
        options = {"no_repeat_ngram_size": 2, **TOKENS}
        if find is beam_search:
            options |= {"coverage_penalty": 0.3, "memory_mask": mask, "prefix": prefix}
        return tuple(find(oracles.reading_on, memory[:, :1], memory, **options))

    specs = [tf.TensorSpec((None, None), x) for x in ("float32", "bool", "int64")]
    graph = tf.function(run, specs, jit_compile=jit_compile)
    for batch, size, given in ((3, 5, 2), (2, 7, 0)):
        memory = np.random.default_rng(size).normal(size=(batch, size)).astype("float32")
        mask, prefix = memory > -1, np.array([[4, -1], [5, 0], [3, 3]])[:batch, :given]
        found = graph(memory, mask, prefix)
        assert_same(SearchResult(*found), SearchResult(*run(memory, mask, prefix)))


BOTH, BEAM = (greedy_search, beam_search), (beam_search,)
POSITIVE = "must be a positive integer, "


@pytest.mark.parametrize(("searches", "change", "words"), [(*case, words) for *case, words in (
    *((BOTH, {"max_length": x}, ("`max_length` " + POSITIVE, f"received {x}"))
      for x in (0, 2.0, True)),
    (BOTH, {"end_token": -3}, ("`end_token` must be an integer from 0 ", "received -3")),
    (BOTH, {"end_token": V}, ("`end_token` must be one of the 7 tokens ", " 0 to 6; received 7")),
    (BOTH, {"memory": None}, ("hold no tensor that could tell the batch size",)),
    (BOTH, {"state": np.zeros((3, 1))},
     ("one batch size, not 0; received {'state': (3, 1), 'memory'",)),
    (BOTH, {"memory": np.ones((0, 1))}, ("one batch size, not 0; received {'memory': (0, 1)}",)),
    (BOTH, {"memory": {"a": [np.float32(1)]}}, ("""memory['a'][0]": ()""",)),
    (BEAM, {"beam_width": 0}, ("`beam_width` " + POSITIVE, "received 0")),
    *((BEAM, {"length_penalty": x}, ("`length_penalty` must be a number ", f"received {x!r}"))
      for x in (math.inf, math.nan, "1", True, -0.1)),
)])  # fmt: skip
def test_arguments_out_of_range(searches, change, words):
    """But for the end token, before a step runs."""
    given = {"state": None, "memory": np.ones((2, 1), "float32")} | TOKENS | change
    step = count_up if change.get("end_token") == V else lambda *_: 1 / 0
    for find in searches:
        assert_refused(lambda find=find: find(step, **given), *words)


LOGITS = np.zeros((2, V), "float32")
STATE = {"a": np.zeros((2, D), "float32"), "b": None}
TUPLE, GIVEN = "must return the tuple (logits, state, weights)", "structure it was given"
RETURNED = "must return logits, float of shape (2, None)"


@pytest.mark.parametrize(("outputs", "words"), [
    (LOGITS, (TUPLE,)),
    ((LOGITS[:, None], STATE, None), (RETURNED, "(2, 1, 7)")),
    ((None, STATE, None), ("must return logits, float of shape ", " received None")),
    ((LOGITS, STATE, LOGITS[0]), ("must return weights, float of shape (2, None)", "(7,)")),
    ((LOGITS, None, None), (GIVEN, "state['a']", "received []")),
    ((LOGITS, [STATE], None), (GIVEN, "state[0]['a']")),
    ((LOGITS, {"a": LOGITS}, None), ("return state['a'] as it was given", "(2, 5)", "(2, 7)")),
    ((LOGITS, {"a": np.zeros((2, D), "int32")}, None), ("float32 ", "received int32")),
])  # fmt: skip
def test_steps_that_return_something_else(outputs, words):
    assert_refused(lambda: greedy_search(lambda *_: outputs, STATE, **TOKENS), *words)


@on_tensorflow
@pytest.mark.parametrize("search", [greedy_search, beam_search])
def test_a_vocabulary_of_unknown_size(search):
    import tensorflow as tf

    def find(table):
        return search(lambda tokens, state, memory: (memory, state, None), None, table, **TOKENS)

    with pytest.raises(ValueError, match="logits for a known number of tokens"):
        tf.function(find, [tf.TensorSpec((None, None))]).get_concrete_function()


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("count", [1, 5, 37])
@pytest.mark.parametrize("size", [40, SHORTEST, 60 * GROUP + 1, 63 * GROUP - 1])
@pytest.mark.each_value
def test_the_top_k_equal_a_sort(size, count, jit):
    rng = np.random.default_rng(size)
    rows = rng.normal(size=(7, size)).astype("float32")
    rows[1] = rng.integers(0, 3, size)  # many are equal
    rows[2] = np.sort(rows[2])
    rows[3, : size - 3] = -np.inf
    rows[4] = -np.inf
    rows[5, 1:] = -1e30
    expected = np.argsort(-rows, axis=-1, kind="stable")[:, :count]
    values, places = compiled(lambda x: top_k(x, count), jit)(ops.convert_to_tensor(rows))
    if BACKEND != "torch":  # whose sort leaves open which of several equal numbers comes first
        assert np.array_equal(numpy(places), expected)
    found = np.take_along_axis(rows, numpy(places).astype(int), axis=-1)
    assert np.array_equal(found, numpy(values))
    assert np.array_equal(numpy(values), np.take_along_axis(rows, expected, axis=-1))


def test_the_top_k_on_a_gpu(monkeypatch):
    monkeypatch.setattr(f"keras_attention.backend.{BACKEND}._device", lambda *_: "gpu")
    test_the_top_k_equal_a_sort(63 * GROUP - 1, 5, False)
