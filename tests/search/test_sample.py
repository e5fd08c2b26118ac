"""Sampling against the distributions that it must have."""

import math
from functools import partial

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention.search import SearchResult, greedy_search, sample_search
from tests.backends import compiled
from tests.helpers import assert_refused
from tests.search.oracles import END, START, TOKENS, Decoder, V, assert_same, brute_force, to_numpy

WORDS = 127  # a prime, so that the last group of words is padded
ONE = {"start_token": START, "end_token": END, "max_length": 1}


def kept(p, temperature=1.0, top_k=None, top_p=None):
    """The distribution of one token, token by token."""
    q = np.array([x ** (1 / temperature) for x in p])
    order = sorted(range(len(q)), key=lambda v: -q[v])[:top_k]
    total, chosen = sum(q[v] for v in order), []
    for v in order:
        if top_p is None or sum(q[w] for w in chosen) < top_p * total:
            chosen.append(v)
    return np.array([q[v] if v in chosen else 0.0 for v in range(len(q))]) / sum(q[chosen])


def assert_distributed(counts, p):
    """Pearson's test, at four standard deviations; nothing without probability is drawn."""
    assert np.all(counts[p == 0] == 0)
    expected = p * counts.sum()
    rare = expected < 5  # too rare for the test one by one
    expected, counts = (np.append(x[~rare], x[rare].sum()) for x in (expected, counts))
    freedom = len(expected) - 1
    error = np.sum((counts - expected) ** 2 / np.maximum(expected, 1e-3))
    assert error <= freedom + 4 * math.sqrt(2 * freedom)


OPTIONS = [
    *({"temperature": 0.5}, {"temperature": 1.7}, {"top_k": 5}, {"top_k": 500}),
    *({"top_p": 0.01}, {"top_p": 0.97}, {"top_p": 1.0}),
    {"temperature": 0.7, "top_k": 40, "top_p": 0.6},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_one_token_has_the_distribution(options):
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(2, WORDS)).astype("float32")
    logits[0, ::3] = -np.inf
    step = lambda tokens, state, memory: (memory + 30, state, None)  # noqa: E731
    memory = np.concatenate([logits] * 4)
    found = to_numpy(sample_search(step, None, memory, samples=4096, seed=5, **ONE, **options))
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    for b in range(2):
        tokens = found.tokens[b::2].ravel()
        assert_distributed(np.bincount(tokens, minlength=WORDS), kept(np.exp(log_p[b]), **options))
        scores = found.scores[b::2].ravel()
        np.testing.assert_allclose(scores, log_p[b, tokens], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("jit", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_sequences_have_the_distribution_of_the_model(jit):
    """The state follows its draw, steps and draws are independent, and scores are the model's."""
    decoder = Decoder(3, vocabulary=3)
    state, memory = decoder.inputs(2)
    everything = brute_force(decoder, state, memory, 0.0, max_length=4)
    options = {"start_token": START, "end_token": END, "max_length": 4, "samples": 4096}

    def run(state, memory, seed, **options):
        return tuple(sample_search(decoder.step, state, memory, seed=seed, **options))

    for temperature in (1.0, 0.8):
        search = compiled(partial(run, temperature=temperature, **options), jit)
        seed = ops.convert_to_tensor(1, "int32")
        found = to_numpy(SearchResult(*search(state, memory, seed)))
        for b in range(2):
            names = {tuple(x[0]): i for i, x in enumerate(everything[b])}
            rows = zip(found.tokens[b].tolist(), found.lengths[b], strict=True)
            numbers = [names[tuple(tokens[:n])] for tokens, n in rows]
            if temperature == 1.0:
                p = np.exp([x[1] for x in everything[b]])
                assert_distributed(np.bincount(numbers, minlength=len(p)), p / p.sum())
            for k in range(0, 4096, 97):
                _, score, weights, log_probs = everything[b][numbers[k]]
                n = found.lengths[b, k]
                np.testing.assert_allclose(found.scores[b, k], score, rtol=1e-4, atol=1e-5)
                for x, y in ((found.log_probs, log_probs), (found.weights, weights)):
                    np.testing.assert_allclose(x[b, k, :n], y, rtol=1e-4, atol=1e-4)
                    assert not np.any(x[b, k, n:])
    np.testing.assert_array_equal(found.tokens, to_numpy(search(state, memory, seed)).tokens)
    assert np.any(found.tokens != to_numpy(search(state, memory, seed + 1)).tokens)


def test_one_kept_token_is_greedy_search():
    decoder = Decoder()
    inputs = decoder.inputs(5)
    limits = {"min_length": 4, "no_repeat_ngram_size": 2, "prefix": np.array([[3, 4]] * 5)}
    limits |= TOKENS | {"max_length": 6}
    greedy = to_numpy(greedy_search(decoder.step, *inputs, **limits))
    for options in ({"top_k": 1, "top_p": 0.5}, {"top_p": 1e-6, "temperature": 1e-9}):
        found = to_numpy(sample_search(decoder.step, *inputs, samples=2, **limits, **options))
        for k in range(2):
            assert_same(SearchResult(*(x[:, k] for x in found)), greedy)


def fixed(tokens, state, memory):
    return memory, state, None


def tokens_of(seed, **options):
    options = TOKENS | {"max_length": 4, "samples": 5, "seed": seed} | options
    found = sample_search(fixed, None, np.zeros((2, V), "float32"), **options)
    return ops.convert_to_numpy(found.tokens)


def test_seeds():
    first = tokens_of(3)
    np.testing.assert_array_equal(first, tokens_of(3))
    np.testing.assert_array_equal(first, tokens_of(ops.convert_to_tensor(3, "int32")))
    assert np.any(first != tokens_of(4))
    assert np.any(tokens_of(None) != tokens_of(None))
    generator = keras.random.SeedGenerator(3)
    again = [tokens_of(generator), tokens_of(generator)]
    assert np.any(again[0] != again[1])
    np.testing.assert_array_equal(again[0], tokens_of(keras.random.SeedGenerator(3)))
    np.testing.assert_array_equal(first, tokens_of(3, top_k=V, top_p=1.0))


def test_nothing_is_possible():
    logits = np.full((1, V), -np.inf, "float32")
    for top_p in (None, 0.5):
        found = to_numpy(sample_search(fixed, None, logits, samples=2, top_p=top_p, **TOKENS))
        assert (found.scores == -np.inf).all()
        assert (found.tokens == END).all()
        assert not any(x.any() for x in (found.lengths, found.log_probs))


@pytest.mark.parametrize(("change", "words"), [
    ({"samples": 0}, ("`samples` must be a positive integer, ", "received 0")),
    ({"temperature": math.inf}, ("`temperature` must be a number above 0; received inf",)),
    ({"top_k": 0}, ("`top_k` must be a positive integer, ", "received 0")),
    ({"top_p": 1.1}, ("`top_p` must be a number above 0 and at most 1; received 1.1",)),
    ({"seed": 1.0}, ("`seed` must be an integer ", "received 1.0")),
])  # fmt: skip
def test_arguments_out_of_range(change, words):
    given = TOKENS | change
    assert_refused(lambda: sample_search(fixed, None, np.ones((2, V), "float32"), **given), *words)
