"""Penalties and limits of the searches against exhaustive searches over all sequences."""

import functools
import itertools
import math

import numpy as np
import pytest
from keras import ops, tree

from keras_attention.attention import Memory
from keras_attention.search import (
    AllowedSequences,
    SearchResult,
    beam_search,
    greedy_search,
    sample_search,
)
from tests import fast
from tests.backends import BACKEND, compiled
from tests.helpers import assert_refused, refusals
from tests.search import oracles
from tests.search.oracles import END, START, TOKENS, Decoder, V, assert_same, brute_force, to_numpy

WORDS, LONGEST = 3, 5
FEW = {"start_token": START, "end_token": END, "max_length": LONGEST}
PREFIX = np.array([[0, 2, -1], [2, -1, -1], [-1, 0, -1], [0, END, 2]])
REPEATED = np.array([[0, 0, 0, -1], [2, 2, 2, 2], [0, 0, -1, 0], [-1, 0, 0, 0]])
ENDED = np.array([[0, END], [END, 0], [2, -1], [-1, END]])
VALID = np.array([[1, 1, 0], [1, 1, 1], [1, 0, 1], [1, 0, 0]], bool)


def gnmt(weights, valid):
    total = 0.0
    for j in np.flatnonzero(valid):
        total += math.log(max(min(sum(row[j] for row in weights), 1.0), 1e-10))
    return total


def summary(weights, valid):
    read = [max(sum(row[j] for row in weights), 1.0) for j in np.flatnonzero(valid)]
    return -(sum(read) - len(read))


def is_allowed(tokens, prefix=(), min_length=0, no_repeat_ngram_size=0):
    """Whether an output satisfies the limits, token by token."""
    n = no_repeat_ngram_size
    for t, token in enumerate(tokens):
        if t < len(prefix) and prefix[t] != -1:
            if token != prefix[t]:
                return False
        elif token == END and t + 1 < min_length:
            return False
        elif 0 < n <= t + 1:
            grams = [tuple(tokens[i : i + n]) for i in range(t + 2 - n)]
            if grams[-1] in grams[:-1]:
                return False
    return True


def exhaustive(decoder, inputs, options):
    options = dict(options)
    length_penalty = options.pop("length_penalty", 1.0)
    factor = options.pop("coverage_penalty", 0.0)
    terms = {"gnmt": gnmt, "summary": summary}[options.pop("coverage", "gnmt")]
    valid = options.pop("memory_mask", np.ones((4, 3), bool))
    prefix = options.pop("prefix", np.full((4, 1), -1))
    processed = bool(options.pop("logits_processors", ()))
    bonus = lambda b, weights: factor * terms(weights, valid[b])  # noqa: E731

    def allowed(b, tokens):
        after = processed and any(pair == (0, 2) for pair in itertools.pairwise(tokens))
        return is_allowed(tokens, prefix[b], **options) and not after

    return brute_force(decoder, *inputs, length_penalty, LONGEST, bonus=bonus, allowed=allowed)


def constant(tokens, state, memory):
    return memory, state, None


def no_two_after_zero(logits, tokens, step):
    last = ops.take(tokens, ops.maximum(step - 1, 0), axis=1)
    forbids = ops.expand_dims(ops.logical_and(last == 0, step > 0), 1)
    return ops.where(ops.logical_and(forbids, ops.arange(logits.shape[-1]) == 2), -np.inf, logits)


OPTIONS = {
    "a processor": {"logits_processors": [no_two_after_zero], "min_length": 2},
    "length_penalty": {"length_penalty": 0.6},
    "gnmt": {"coverage_penalty": 0.7, "memory_mask": VALID},
    "gnmt of all": {"coverage_penalty": 0.2, "length_penalty": 0.0},
    "summary": {"coverage_penalty": 1.3, "coverage": "summary", "memory_mask": VALID},
    "min_length": {"min_length": 2, "length_penalty": 0.0},
    "no token twice": {"no_repeat_ngram_size": 1},
    "no bigram twice": {"no_repeat_ngram_size": 2, "length_penalty": 2.5},
    "no trigram twice": {"no_repeat_ngram_size": 3},
    "prefix": {"prefix": PREFIX, "length_penalty": 2.5},
    "full prefix": {"prefix": np.array([[0, 2, 0, 2, 0]] * 3 + [[-1] * 5])},
    "prefix that repeats": {"prefix": REPEATED, "no_repeat_ngram_size": 1},
    "prefix that ends": {"prefix": ENDED, "min_length": 4},
    "no prefix": {"prefix": np.zeros((4, 0), "int32")},
    "nothing possible": {"min_length": 4, "no_repeat_ngram_size": 1},
    "all": {"prefix": PREFIX, "min_length": 2, "no_repeat_ngram_size": 2, "length_penalty": 0.6}
    | {"coverage_penalty": 0.4, "coverage": "summary", "memory_mask": VALID},
}


@functools.cache
def unlimited():
    """The sequences of each sample without limits, best first."""
    decoder = Decoder(3, vocabulary=WORDS)
    everything = brute_force(decoder, *decoder.inputs(4), 1.0, LONGEST)
    # Ended after 1 to 5 tokens, or never.
    assert {len(sequences) for sequences in everything} == {1 + 2 + 4 + 8 + 16 + 32}
    return [[x[0] for x in sequences] for sequences in everything]


@pytest.mark.parametrize("name", OPTIONS)
def test_exhaustive_beam_is_brute_force(name):
    decoder = Decoder(3, vocabulary=WORDS)
    inputs = decoder.inputs(4)
    expected = exhaustive(decoder, inputs, OPTIONS[name])
    changed = [[x[0] for x in y] for y in expected] != unlimited()
    assert changed or name in ("no prefix", "gnmt of all")
    found = beam_search(decoder.step, *inputs, beam_width=67, **FEW, **OPTIONS[name])
    oracles.assert_all_found(found, expected, LONGEST)


def test_greedy_search_with_limits():
    """The most probable of the allowed tokens, with its probability among all."""
    decoder = Decoder(5)
    state, memory = decoder.inputs(7)
    prefix = np.random.default_rng(1).integers(2, V, size=(7, 4))
    prefix[:3, 2:] = -1
    limits = {"min_length": 7, "no_repeat_ngram_size": 2}
    allowed = lambda b, tokens: is_allowed(tokens, prefix[b], **limits)  # noqa: E731
    expected = oracles.oracle_greedy(decoder, state, memory, allowed=allowed)
    options = TOKENS | limits | {"prefix": prefix}
    found = greedy_search(decoder.step, state, memory, **options)
    oracles.assert_found(found, expected)
    one = to_numpy(beam_search(decoder.step, state, memory, beam_width=1, **options))
    np.testing.assert_array_equal(one.tokens[:, 0], to_numpy(found).tokens)


def test_a_prefix_keeps_its_log_probability_and_outside_the_vocabulary_forbids_every_token():
    logits = np.array([[0.0, -400.0, 3.0]] * 2, "float32")
    options = {"prefix": [[1, -1], [0, 3]], "start_token": 0, "end_token": 2, "max_length": 2}
    for find in (greedy_search, beam_search, sample_search):
        found = to_numpy(find(constant, None, logits, **options))
        assert found.tokens.reshape(2, -1)[0, 0] == 1
        expected = -400 - math.log(1 + math.exp(3))
        np.testing.assert_allclose(found.log_probs.reshape(2, -1)[0, 0], expected, rtol=1e-6)
        assert (found.scores[1] == -np.inf).all()


def test_the_mask_of_a_memory_is_that_of_the_coverage():
    keys = np.random.default_rng(0).normal(size=(4, 3, 5)).astype("float32")

    def step(tokens, state, memory):
        scores = ops.sum(memory.key * ops.expand_dims(ops.one_hot(tokens, 5), 1), axis=-1)
        weights = ops.softmax(ops.where(memory.mask, scores, -1e9))
        return ops.einsum("nt,ntd->nd", weights, memory.value), state, weights

    options = {"coverage_penalty": 0.5, "beam_width": 3, **TOKENS}
    memory = Memory(keys, keys, VALID)
    found = beam_search(step, None, memory, **options)
    assert_same(found, beam_search(step, None, memory, memory_mask=VALID, **options))
    other = beam_search(step, None, memory, memory_mask=np.ones_like(VALID), **options)
    assert np.any(to_numpy(found).scores != to_numpy(other).scores)


@pytest.mark.parametrize(("change", "words"), [
    ({"min_length": 12}, ("`min_length` must be an integer from 0 to 11; received 12",)),
    ({"limit": np.int32(12)}, ("`limit` must be a positive integer, at most 11; received",)),
    ({"no_repeat_ngram_size": 2.0},
     ("`no_repeat_ngram_size` must be an integer ", "received 2.0")),
    ({"prefix": [1, 2]}, ("`prefix` must be integers (batch, steps)", "(2,)")),
    ({"prefix": np.zeros((2, 12), "int32")},
     ("`prefix` must have at most max_length=11 steps; ", "12")),
    ({"logits_processors": no_two_after_zero},
     ("`logits_processors` must be a list of functions (logits, tokens, step)",)),
    ({"logits_processors": [AllowedSequences([[0] * 11], END)]},
     ("`max_length` must be at least 12, the longest allowed sequence; received 11",)),
    ({"prefix": np.zeros((3, 1), "int32")}, ("one batch size", "'prefix': (3, 1)")),
])  # fmt: skip
def test_options_out_of_range(change, words):
    """Before a step runs."""
    for find in (greedy_search, beam_search, sample_search):
        run = functools.partial(find, lambda *_: 1 / 0, None, np.ones((2, 1), "float32"))
        assert_refused(lambda run=run: run(**TOKENS | change), *words)


@pytest.mark.parametrize(("find", "numbers"), [
    (greedy_search, {"min_length": 2}),
    (beam_search, {"min_length": 2, "length_penalty": 0.7, "coverage_penalty": 0.3}),
    (sample_search, {"min_length": 2, "temperature": 1.3, "top_p": 0.8}),
    (oracles.both_directions, {"min_length": 2, "length_penalty": 0.7}),
])  # fmt: skip
@pytest.mark.parametrize("limit", [2, 4, 9])
@pytest.mark.parametrize("jit", fast([False, True], [False]))
@pytest.mark.each_value
def test_a_limit_is_a_smaller_buffer(find, numbers, limit, jit):
    """As scalar tensors, whose values a compiled function does not know."""
    decoder = Decoder(3)
    inputs, tokens = decoder.inputs(5), {"start_token": START, "end_token": END}
    tokens |= {"seed": 4} if find is sample_search else {}

    def run(state, memory, numbers, length=9):
        return tuple(find(decoder.step, state, memory, **tokens, max_length=length, **numbers))

    jit = jit or BACKEND == "jax"  # eagerly, JAX compiles every loop again
    expected = SearchResult(*compiled(lambda *x: run(*x, numbers, limit), jit)(*inputs))
    limited = tree.map_structure(ops.convert_to_tensor, {**numbers, "limit": limit})
    found = compiled(run, jit)(*inputs, limited)
    found, expected = to_numpy(SearchResult(*found)), to_numpy(expected)
    assert expected.lengths.max() == limit or limit == 9  # some are cut off
    assert (found.tokens[..., limit:] == END).all()
    tokens, log_probs = found.tokens[..., :limit], found.log_probs[..., :limit]
    weights = found.weights[..., :limit, :]
    assert_same(found._replace(tokens=tokens, log_probs=log_probs, weights=weights), expected)


@pytest.mark.parametrize(("change", "words"), [
    ({"coverage_penalty": -1}, ("`coverage_penalty` must be a number of at least 0 ",
                                "received -1")),
    ({"coverage": "sum"}, ("`coverage` must be one of 'gnmt', 'summary'; received 'sum'",)),
    ({"memory_mask": np.ones((2, 3))}, ("`memory_mask` must be boolean",)),
    *(({"memory_mask": np.ones(shape, bool), "coverage_penalty": x}, words)
      for x in (0, 1) for shape, words in (
          ((2, 4), ("`memory_mask` must have the shape (batch, 3)", "bool of shape (2, 4)")),
          ((3, 3), ("one batch size", "'memory_mask': (3, 3)")))),
    ({"weights": None}, ("`coverage_penalty` needs the weights of one memory, the third output",)),
])  # fmt: skip
def test_coverage_out_of_range(change, words):
    change = {"weights": np.ones((10, 3), "float32"), "coverage_penalty": 1, **change}
    weights = change.pop("weights")
    step = lambda tokens, state, _: (ops.one_hot(tokens, V), state, weights)  # noqa: E731
    memory = np.ones((2, 1), "float32")
    assert_refused(lambda: beam_search(step, None, memory, **TOKENS, **change), *words)


def test_a_processor_that_changes_a_logit_changes_the_score():
    logits = np.array([[0.0, 1.0, 2.0]], "float32")
    search = functools.partial(
        *(greedy_search, constant, None, logits), start_token=0, end_token=0, max_length=2
    )
    found = search(logits_processors=[lambda logits, *_: ops.add(logits, [3.0, 0.0, 0.0])])
    expected = 3 - math.log(1 + math.e + math.e**2)
    np.testing.assert_allclose(ops.convert_to_numpy(found.scores), [expected], rtol=1e-6)
    words = "a logits processor must return logits of shape (1, 3)", "(1, 2)"
    assert_refused(lambda: search(logits_processors=[lambda logits, *_: logits[:, :2]]), *words)


ALLOWED = [[0], [0, 2], [0, 2, 2, 0], [2, 0, 2], [2, 2], []]


def probabilities_of(outputs, decoder, inputs, b):
    """Each output with its probability, where a token that leads to no output has none."""
    complete = [(*output, END) for output in outputs]
    for output in complete:
        state, memory = decoder.start(*inputs, b)
        token, probability = START, 1.0
        for t, following in enumerate(output):
            log_probs, state, _ = decoder.advance(token, state, memory)
            allowed = {x[t] for x in complete if x[:t] == output[:t]}
            total = sum(math.exp(log_probs[x]) for x in allowed)
            token, probability = following, probability * math.exp(log_probs[following]) / total
        yield output[:-1], probability


@pytest.mark.parametrize("find", [greedy_search, beam_search, sample_search])
def test_no_output_leaves_a_closed_set(find):
    decoder = Decoder(3, vocabulary=WORDS)
    inputs, few = decoder.inputs(4), {"logits_processors": [AllowedSequences(ALLOWED, END)]}
    more = {beam_search: {"beam_width": 7}, sample_search: {"samples": 300, "seed": 0}}
    options = {**FEW, **few, **more.get(find, {})}
    found = to_numpy(find(decoder.step, *inputs, **options))
    tokens = found.tokens.reshape(4, -1, LONGEST)
    rows = [[tuple(row[: row.tolist().index(END)]) for row in sample] for sample in tokens]
    allowed = {*map(tuple, ALLOWED)}
    assert all({*row} <= allowed for row in rows)
    if find is sample_search:
        for b, row in enumerate(rows):
            for output, expected in probabilities_of(ALLOWED, decoder, inputs, b):
                spread = math.sqrt(expected * (1 - expected) / len(row))
                assert abs(row.count(output) / len(row) - expected) <= 5 * spread + 1e-6
    if find is beam_search:  # each is found, and the seventh does not exist
        assert all({*row} == allowed for row in rows)
        assert (found.lengths[:, 6] == 0).all()
        expected = exhaustive(decoder, inputs, {})
        kept = [
            [x for x in sample if x[0][-1] == END and tuple(x[0][:-1]) in allowed]
            for sample in expected
        ]
        oracles.assert_all_found(found, kept, LONGEST)


test_sequences_that_cannot_be_allowed = refusals(
    (lambda: AllowedSequences([], END), "at least one sequence"),
    (lambda: AllowedSequences([[3, END, 4]], END), "must not hold the end token", "Leave it out."),
    (lambda: AllowedSequences([["a"]], END), "`sequences` must be"),
    (lambda: AllowedSequences([[2**31 - 1]], END), "the trie may have at most"),
)
