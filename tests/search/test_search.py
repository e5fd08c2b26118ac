"""Greedy and beam search against searches written as loops over single hypotheses."""

import math

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention.search import SearchResult, beam_search, greedy_search
from keras_attention.search._top_k import GROUP
from tests import fast
from tests.backends import on_tensorflow
from tests.helpers import assert_refused
from tests.search.oracles import (
    END,
    START,
    TK,
    TOKENS,
    D,
    Decoder,
    V,
    assert_found,
    assert_same,
    oracle_beam,
    oracle_greedy,
    penalty,
    to_numpy,
)


def count_up(tokens, state, memory):
    """The next token is the last plus one, and the memory says how surely."""
    return memory * ops.one_hot((tokens + 1) % V, V, dtype="float32"), state, None


# -- what is found


def test_greedy_search_is_the_loop():
    decoder = Decoder()
    state, memory = decoder.inputs(13)
    expected = oracle_greedy(decoder, state, memory)
    assert len({len(tokens) for tokens, *_ in expected}) > 3
    assert_found(greedy_search(decoder.step, state, memory, **TOKENS), expected)


@pytest.mark.parametrize("seed", [0, 1])
def test_one_beam_is_greedy_search(seed):
    decoder = Decoder(seed)
    state, memory = decoder.inputs(13, seed)
    greedy = to_numpy(greedy_search(decoder.step, state, memory, **TOKENS))
    for length_penalty in (0.0, 1.3):
        options = TOKENS | {"beam_width": 1, "length_penalty": length_penalty}
        beam = to_numpy(beam_search(decoder.step, state, memory, **options))
        scores = greedy.scores / penalty(greedy.lengths, length_penalty)
        assert_same(SearchResult(*(x[:, 0] for x in beam)), greedy._replace(scores=scores))


@pytest.mark.parametrize(("width", "length_penalty"), [(2, 1.0), (3, 0.0), (5, 0.6), (11, 1.7)])
def test_beam_search_is_the_loop(width, length_penalty):
    decoder = Decoder(width)
    state, memory = decoder.inputs(5)
    expected = oracle_beam(decoder, state, memory, width, length_penalty)
    assert len({len(tokens) for beams in expected for tokens, *_ in beams}) > 1
    options = TOKENS | {"beam_width": width, "length_penalty": length_penalty}
    assert_found(beam_search(decoder.step, state, memory, **options), expected)


def test_a_step_of_an_ended_hypothesis_does_not_matter():
    decoder = Decoder()
    state, memory = decoder.inputs(5)

    def step(tokens, state, memory):
        logits, state, weights = decoder.step(tokens, state, memory)
        ended = ops.expand_dims(tokens == END, -1)
        state["hidden"] = ops.where(ended, math.nan, state["hidden"])
        return ops.where(ended, math.nan, logits), state, ops.where(ended, math.nan, weights)

    for find in (greedy_search, beam_search):
        expected = find(decoder.step, state, memory, **TOKENS)
        assert len(np.unique(ops.convert_to_numpy(expected.lengths))) > 1
        assert_same(find(step, state, memory, **TOKENS), expected)


def test_nan_of_an_ended_hypothesis_chooses_no_token_behind_a_long_vocabulary():
    words = 60 * GROUP + 1  # its last group is padded
    table = np.random.default_rng(3).normal(size=(words, words)).astype("float32")
    table[:, END] += 4

    def step(tokens, state, memory):
        ended = ops.expand_dims(tokens == END, -1)
        return ops.where(ended, math.nan, ops.take(table, tokens, axis=0)), state, None

    found = to_numpy(beam_search(step, None, np.ones((1, 2)), beam_width=5, **TOKENS))
    assert found.tokens.max() < words
    assert len(np.unique(found.lengths)) > 1


def test_a_state_or_a_memory_alone_is_enough():
    decoder = Decoder()
    state, memory = decoder.inputs(5)
    expected = beam_search(decoder.step, state, memory, **TOKENS)

    def all_in_state(tokens, both, memory):
        assert memory is None
        logits, state, weights = decoder.step(tokens, both[0], both[1])
        return logits, (state, both[1]), weights

    assert_same(beam_search(all_in_state, (state, memory), **TOKENS), expected)
    for nothing in (None, (), {"nothing": None}):
        certainty = np.full((3, 1), 9.0, "float32")
        found = greedy_search(count_up, nothing, certainty, **TOKENS)
        assert ops.convert_to_numpy(found.lengths).tolist() == [6] * 3
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


def test_one_step():
    decoder = Decoder()
    state, memory = decoder.inputs(2)
    tokens = dict(start_token=START, end_token=END, max_length=1)
    expected = oracle_beam(decoder, state, memory, V, 1.0, max_length=1)
    result = beam_search(decoder.step, state, memory, beam_width=V, **tokens)
    assert_found(result, expected, max_length=1)
    expected = oracle_greedy(decoder, state, memory, max_length=1)
    assert_found(greedy_search(decoder.step, state, memory, **tokens), expected, max_length=1)


def test_a_step_that_allows_nothing():
    # After token 4 nothing is allowed: the most probable token leads nowhere.
    table = np.full((1, V, V), -np.inf, "float32")
    table[0, START, [3, 4]] = 1.0, 2.0
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


# -- where it runs


def both_searches(decoder):
    """Both searches as a function of the decoder's flat inputs, for signatures hold no None."""
    template = decoder.inputs(1)

    def run(*tensors):
        tensors = iter(tensors)
        inputs = keras.tree.map_structure(lambda x: x if x is None else next(tensors), template)
        greedy = greedy_search(decoder.step, *inputs, **TOKENS)
        beam = beam_search(decoder.step, *inputs, beam_width=3, **TOKENS)
        return {"greedy": greedy._asdict(), "beam": beam._asdict()}

    return run


def flat_inputs(decoder, batch, length):
    inputs = keras.tree.flatten(decoder.inputs(batch, length=length))
    return [ops.convert_to_tensor(x) for x in inputs if x is not None]


@on_tensorflow
@pytest.mark.slow
@pytest.mark.parametrize("jit_compile", fast([False, True], [True], slow=0))
def test_tf_function_with_unknown_sizes(jit_compile):
    import tensorflow as tf

    decoder = Decoder()
    # Batch size and memory steps are unknown: where two sizes differ.
    pairs = zip(flat_inputs(decoder, 2, 3), flat_inputs(decoder, 5, 7), strict=True)
    sizes = [(zip(x.shape, y.shape, strict=True), x.dtype) for x, y in pairs]
    specs = [tf.TensorSpec([a if a == b else None for a, b in pair], x) for pair, x in sizes]
    run = tf.function(both_searches(decoder), specs, jit_compile=jit_compile)
    for batch, length in ((5, 3), (2, 7)):
        inputs = flat_inputs(decoder, batch, length)
        found, expected = run(*inputs), both_searches(decoder)(*inputs)
        for name in ("greedy", "beam"):
            assert_same(SearchResult(**found[name]), SearchResult(**expected[name]))


@on_tensorflow
def test_export_archive_of_a_keras_decoder(tmp_path):
    import tensorflow as tf

    parts = keras.layers.Embedding(V, D), keras.layers.GRUCell(D), keras.layers.Dense(V)
    embed, cell, head = parts

    def step(tokens, state, memory):
        output, state = cell(embed(tokens), state)
        weights = ops.softmax(ops.einsum("nd,ntd->nt", output, memory))
        return head(output + ops.einsum("nt,ntd->nd", weights, memory)), state, weights

    def translate(memory):
        return beam_search(step, [memory[:, 0]], memory, beam_width=3, **TOKENS)._asdict()

    memory = np.random.default_rng(0).normal(size=(2, TK, D)).astype("float32")
    expected = SearchResult(**translate(ops.convert_to_tensor(memory)))
    archive = keras.export.ExportArchive()
    for layer in parts:
        archive.track(layer)
    archive.add_endpoint("translate", translate, [tf.TensorSpec((None, None, D), "float32")])
    archive.write_out(str(tmp_path), verbose=False)
    served = tf.saved_model.load(str(tmp_path))
    assert_same(SearchResult(**served.translate(memory)), expected)


# -- what is refused


RANGE = "must be an integer from 0 ", "must be a positive integer, "


BOTH, BEAM = (greedy_search, beam_search), (beam_search,)
PENALTY = "`length_penalty` must be a number "


@pytest.mark.parametrize(("searches", "change", "words"), [
    (BOTH, {"max_length": 0}, ("`max_length` " + RANGE[1], "received 0")),
    (BOTH, {"max_length": 2.0}, ("`max_length` " + RANGE[1], "received 2.0")),
    (BOTH, {"max_length": True}, ("`max_length` " + RANGE[1], "received True")),
    (BOTH, {"max_length": -1}, ("`max_length` " + RANGE[1], "received -1")),
    (BOTH, {"start_token": -1}, ("`start_token` " + RANGE[0], "received -1")),
    (BOTH, {"end_token": 1.0}, ("`end_token` " + RANGE[0], "received 1.0")),
    (BOTH, {"end_token": -3}, ("`end_token` " + RANGE[0], "received -3")),
    (BOTH, {"memory": None}, ("hold no tensor that could tell the batch size",)),
    (BOTH, {"state": np.zeros((3, 1))},
     ("one batch size, not 0; received {'state': (3, 1), 'memory'",)),
    (BOTH, {"memory": np.ones((0, 1))}, ("one batch size, not 0; received {'memory': (0, 1)}",)),
    (BOTH, {"memory": {"a": [np.float32(1)]}}, ("""memory['a'][0]": ()""",)),
    (BEAM, {"beam_width": 0}, ("`beam_width` " + RANGE[1], "received 0")),
    (BEAM, {"beam_width": 2.5}, ("`beam_width` " + RANGE[1], "received 2.5")),
    (BEAM, {"length_penalty": -0.1}, (PENALTY + "of at least 0 ", "received -0.1")),
    (BEAM, {"length_penalty": math.inf}, (PENALTY, "received inf")),
    (BEAM, {"length_penalty": math.nan}, (PENALTY, "received nan")),
    (BEAM, {"length_penalty": "1"}, (PENALTY, "received '1'")),
])  # fmt: skip
def test_arguments_out_of_range(searches, change, words):
    """Before a step runs."""
    given = {"state": None, "memory": np.ones((2, 1), "float32")} | TOKENS | change
    for find in searches:
        assert_refused(lambda find=find: find(lambda *_: 1 / 0, **given), *words)


def test_an_end_token_outside_of_the_vocabulary():
    words = "`end_token` must be one of the 7 tokens ", " 0 to 6; received 7"
    given = TOKENS | {"end_token": V}
    for find in (greedy_search, beam_search):
        assert_refused(lambda find=find: find(count_up, None, LOGITS[:, :1], **given), *words)


LOGITS = np.zeros((2, V), "float32")
STATE = {"a": np.zeros((2, D), "float32"), "b": None}
TUPLE, GIVEN = "must return the tuple (logits, state, weights)", "structure it was given"
RETURNED = "must return logits, float of shape (2, None)"


@pytest.mark.parametrize(("outputs", "words"), [
    (LOGITS, (TUPLE,)),
    ((LOGITS, STATE), (TUPLE,)),
    ((LOGITS[:, None], STATE, None), (RETURNED, "(2, 1, 7)")),
    ((LOGITS[:1], STATE, None), (RETURNED, "(1, 7)")),
    ((None, STATE, None), ("must return logits, float of shape ", " received None")),
    ((LOGITS, STATE, LOGITS[0]), ("must return weights, float of shape (2, None)", "(7,)")),
    ((LOGITS, None, None), (GIVEN, "state['a']", "received []")),
    ((LOGITS, STATE | {"b": LOGITS}, None), (GIVEN, "state['b']")),
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


def test_a_memory_and_a_state_of_no_steps():
    """Their axes of size zero pass through a beam search."""
    state, memory = np.zeros((2, 0), "float32"), np.zeros((2, 0, D), "float32")
    tokens = {"start_token": 1, "end_token": 4, "max_length": 5, "beam_width": 3}
    step = lambda tokens, state, _: (ops.one_hot((tokens + 1) % V, V), state, None)  # noqa: E731
    found = ops.convert_to_numpy(beam_search(step, state, memory, **tokens).tokens)
    assert found[:, 0].tolist() == [[2, 3, 4, 4, 4]] * 2
