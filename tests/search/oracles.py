"""A small decoder, and searches written as loops over single hypotheses."""

import itertools
import math

import numpy as np
from keras import ops

from keras_attention.search import SearchResult, bidirectional_search

V, D, TK, L = 7, 5, 3, 11
START, END = 2, 1
TOKENS = {"start_token": START, "end_token": END, "max_length": L}


class Decoder:
    """A small recurrent decoder with attention whose logits depend on all that it has read.

    `advance` is one step of one hypothesis in float64, `step` the same for N of them in ops. The
    state has leaves of several dtypes, each of which changes the logits, so that a leaf that does
    not follow its hypothesis is noticed; so does the memory.
    """

    def __init__(self, seed=0, vocabulary=V):
        rng = np.random.default_rng(seed)
        self.vocabulary = vocabulary
        self.embedding = rng.normal(size=(vocabulary, D))
        # Small enough not to double the rounding of float32 at every step.
        self.recurrent = rng.normal(size=(D, D)) / math.sqrt(D)
        self.output = 1.5 * rng.normal(size=(D, vocabulary))
        self.read = 1.5 * rng.normal(size=(D, vocabulary))
        self.seen = rng.normal(size=(vocabulary, vocabulary))
        self.count = rng.normal(size=(vocabulary,)) / 5
        self.count[END] += 0.3

    def inputs(self, batch, seed=0, length=TK):
        rng = np.random.default_rng(100 + seed)
        state = {
            "hidden": rng.normal(size=(batch, D)).astype("float32"),
            "rest": [
                rng.integers(0, 3, size=(batch, 1)).astype("int32"),
                None,
                (rng.random((batch, self.vocabulary)) < 0.3, np.ones((batch,), "float16")),
            ],
        }
        mask = rng.random((batch, length)) < 0.7
        mask[:, 0] = True
        memory = (rng.normal(size=(batch, length, D)).astype("float32"), None, {"mask": mask})
        return state, memory

    def start(self, state, memory, b):
        hidden, (count, _, (seen, even)) = state["hidden"], state["rest"]
        state = hidden[b].astype("float64"), int(count[b, 0]), seen[b], float(even[b])
        return state, (memory[0][b].astype("float64"), memory[2]["mask"][b])

    def advance(self, token, state, memory):
        (hidden, count, seen, even), (keys, mask) = state, memory
        hidden = np.tanh(self.embedding[token] + hidden @ self.recurrent)
        weights = np.where(mask, np.exp(keys @ hidden), 0.0)
        weights = weights / weights.sum()
        seen = seen | (np.arange(self.vocabulary) == token)
        logits = hidden @ self.output + (weights @ keys) @ self.read
        even = even + 0.5 * (token % 2 == 0)
        logits = logits + seen @ self.seen + (count - even) * self.count
        log_probs = logits - np.log(np.sum(np.exp(logits)))
        return log_probs, (hidden, count + 1, seen, even), weights

    def step(self, tokens, state, memory):
        count, _, (seen, even) = state["rest"]
        keys, mask = memory[0], memory[2]["mask"]
        hidden = ops.take(constant(self.embedding), tokens, axis=0)
        hidden = ops.tanh(hidden + ops.matmul(state["hidden"], constant(self.recurrent)))
        weights = ops.where(mask, ops.exp(ops.einsum("ntd,nd->nt", keys, hidden)), 0.0)
        weights = weights / ops.sum(weights, axis=-1, keepdims=True)
        context = ops.einsum("nt,ntd->nd", weights, keys)
        seen = seen | ops.one_hot(tokens, self.vocabulary, dtype="bool")
        even = even + 0.5 * ops.cast(tokens % 2 == 0, "float16")
        logits = ops.matmul(hidden, constant(self.output))
        logits = logits + ops.matmul(context, constant(self.read))
        logits = logits + ops.matmul(ops.cast(seen, "float32"), constant(self.seen))
        steps = ops.cast(count, "float32") - ops.cast(ops.expand_dims(even, -1), "float32")
        logits = logits + steps * constant(self.count)
        return logits, {"hidden": hidden, "rest": [count + 1, None, (seen, even)]}, weights


def constant(x):
    return ops.convert_to_tensor(x, dtype="float32")


def anything(b, tokens):
    return True


def oracle_greedy(*inputs, **options):
    """For each sample the tokens, their summed log probability, the weights and the terms."""
    return [beams[0] for beams in oracle_beam(*inputs, width=1, length_penalty=0.0, **options)]


def penalty(length, length_penalty):
    return ((5 + length) / 6) ** length_penalty


def oracle_beam(decoder, state, memory, width, length_penalty, max_length=L, allowed=anything):
    """For each sample the hypotheses (tokens, score, weights, log probabilities), best first."""
    found = []
    for b in range(len(memory[0])):
        hypothesis, constant = decoder.start(state, memory, b)
        beams = [([], 0.0, [], [], hypothesis)]
        for _ in range(max_length):
            candidates = []
            for tokens, score, weights, gains, hypothesis in beams:
                if END in tokens:
                    candidates.append((tokens, score, weights, gains, hypothesis))
                    continue
                last = tokens[-1] if tokens else START
                log_probs, after, row = decoder.advance(last, hypothesis, constant)
                for token, gain in enumerate(log_probs):
                    if allowed(b, (*tokens, token)):
                        longer = [*gains, gain]
                        score = sum(longer) / penalty(len(longer), length_penalty)
                        candidates.append(([*tokens, token], score, [*weights, row], longer, after))
            candidates.sort(key=lambda candidate: -candidate[1])
            beams = candidates[:width]
        found.append([beam[:4] for beam in beams])
    return found


def brute_force(decoder, state, memory, length_penalty, max_length, bonus=None, allowed=anything):
    """All sequences that end, or reach the length without ending, the best first.

    `bonus(b, weights)` is added to the score, and `allowed(b, tokens)` says which to leave out.
    """
    found = oracle_beam(decoder, state, memory, None, length_penalty, max_length, allowed)
    for b, sequences in enumerate(found if bonus else ()):
        for n, (tokens, score, weights, gains) in enumerate(sequences):
            sequences[n] = tokens, score + bonus(b, weights), weights, gains
    return [sorted(sequences, key=lambda sequence: -sequence[1]) for sequences in found]


def reading_on(tokens, state, memory):
    """A step of a memory of any size. No two sequences are equally probable."""
    last, following = ops.cast(tokens, "float32")[:, None], ops.arange(float(V))
    angles = (1.3 * last + state) * following + ops.sum(memory, axis=-1, keepdims=True)
    return 2 * ops.sin(angles), state + 0.4, ops.softmax(memory)


def both_directions(step, state, memory, **options):
    """A search in both directions, as a function like the other searches."""

    def other(*inputs):  # equal to the first, it would score a sequence as its mirror image
        logits, *rest = step(*inputs)
        return 0.9 * logits, *rest

    return bidirectional_search((step, other), (state, state), (memory, memory), **options)


def to_numpy(result):
    return SearchResult(*(x if x is None else ops.convert_to_numpy(x) for x in result))


def assert_found(result, expected, max_length=L):
    """`result` of one of the searches is what the oracle found for each sample (and beam)."""
    result = to_numpy(result)
    if result.tokens.ndim == 2:
        result = SearchResult(*(x[:, None] for x in result))
        expected = [[hypothesis] for hypothesis in expected]
    batch, beams = len(expected), len(expected[0])
    assert result.tokens.shape == (batch, beams, max_length)
    assert result.tokens.dtype == result.lengths.dtype == np.int32
    assert result.scores.dtype == result.log_probs.dtype == np.float32
    for b, k in itertools.product(range(batch), range(beams)):
        tokens, length, score, weights, log_probs = (x[b, k] for x in result)
        expected_tokens, expected_score, expected_weights, expected_log_probs = expected[b][k]
        n = len(expected_tokens)
        assert length == n
        assert tokens.tolist() == expected_tokens + [END] * (max_length - n)
        np.testing.assert_allclose(score, expected_score, rtol=1e-5, atol=1e-5)
        for found, wanted in ((weights, expected_weights), (log_probs, expected_log_probs)):
            np.testing.assert_allclose(found[:n], wanted, rtol=1e-4, atol=1e-5)
            assert not found[n:].any()


def assert_all_found(result, expected, max_length):
    """`result` holds the sequences of each sample in order, and then only impossible ones."""
    result = to_numpy(result)
    for b, sequences in enumerate(expected):
        one, count = SearchResult(*(x[b : b + 1] for x in result)), len(sequences)
        if count:
            assert_found(SearchResult(*(x[:, :count] for x in one)), [sequences], max_length)
        assert np.all(one.scores[:, count:] == -np.inf)
        assert np.all(one.tokens[:, count:] == END)
        assert not any(x[:, count:].any() for x in (one.lengths, one.weights, one.log_probs))


def assert_same(result, other):
    result, other = to_numpy(result), to_numpy(other)
    np.testing.assert_array_equal(result.tokens, other.tokens)
    np.testing.assert_array_equal(result.lengths, other.lengths)
    np.testing.assert_allclose(result.scores, other.scores, rtol=1e-5)
    for x, y in ((result.weights, other.weights), (result.log_probs, other.log_probs)):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5)
