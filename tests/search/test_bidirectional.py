"""Search in both directions against exhaustive searches, and the reversal of tokens."""

import inspect

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention.search import SearchResult, beam_search, bidirectional_search, reverse_tokens
from tests import fast
from tests.backends import compiled
from tests.helpers import refusals
from tests.search import oracles
from tests.search.oracles import END, START, Decoder, assert_found, brute_force, penalty, to_numpy
from tests.search.test_logits_processors import is_allowed

WORDS, LONGEST, SAMPLES = 3, 5, 4
TOKENS = {"start_token": START, "end_token": END, "max_length": LONGEST}
EVERY = 63  # as many beams as there are sequences of 3 words


def turned(tokens):
    """A sequence in reverse order, as a loop: the end token stays the last."""
    ended = tokens[-1] == END
    body = tokens[:-1] if ended else tokens
    return [*reversed(body), *[END] * ended]


def exhaustive(decoders, inputs, length_penalty=1.0, **limits):
    """All sequences of every sample, the best first, as `brute_force` returns them."""
    allowed = lambda b, tokens: is_allowed(tokens, **limits)  # noqa: E731
    ahead, back = (
        brute_force(decoder, *own, 0, LONGEST, allowed=allowed)
        for decoder, own in zip(decoders, inputs, strict=True)
    )
    found = []
    for here, there in zip(ahead, back, strict=True):
        others = {tuple(turned(tokens)): gains for tokens, _, _, gains in there}
        rows = []
        for tokens, _, weights, gains in here:
            other = others[tuple(tokens)]
            last = len(other) - (tokens[-1] == END)
            other = [*reversed(other[:last]), *other[last:]]
            mean = [(x + y) / 2 for x, y in zip(gains, other, strict=True)]
            rows.append((tokens, sum(mean) / penalty(len(tokens), length_penalty), weights, mean))
        found.append(sorted(rows, key=lambda row: (END not in row[0], -row[1])))
    return found


def make_inputs():
    """Two decoders, and their states and memories, which differ in length."""
    decoders = [Decoder(seed, vocabulary=WORDS) for seed in (3, 4)]
    pairs = zip(decoders, (0, 1), (3, 2), strict=True)
    return decoders, [decoder.inputs(SAMPLES, seed, length) for decoder, seed, length in pairs]


def search(decoders, inputs, **options):
    steps = [decoder.step for decoder in decoders]

    def run(inputs):
        states, memories = zip(*inputs, strict=True)
        return tuple(bidirectional_search(steps, states, memories, **TOKENS, **options))

    return SearchResult(*compiled(run)(inputs))


OPTIONS = {
    "default": {},
    "no penalty": {"length_penalty": 0.0},
    "limits": {"length_penalty": 2.0, "min_length": 3, "no_repeat_ngram_size": 2},
}


@pytest.mark.parametrize("name", fast(OPTIONS, ["limits"], slow=0))
def test_with_all_beams_it_is_the_exhaustive_search(name):
    decoders, inputs = make_inputs()
    expected = exhaustive(decoders, inputs, **OPTIONS[name])
    found = search(decoders, inputs, beam_width=EVERY, **OPTIONS[name])
    oracles.assert_all_found(found, expected, LONGEST)


@pytest.mark.parametrize("width", fast([1, 2, 5], [2]))
def test_few_beams_rank_what_either_model_finds(width):
    decoders, inputs = make_inputs()
    every = exhaustive(decoders, inputs)
    ahead, back = (
        to_numpy(beam_search(decoder.step, *own, **TOKENS, beam_width=width))
        for decoder, own in zip(decoders, inputs, strict=True)
    )
    expected = []
    for b in range(SAMPLES):
        one, other = (
            [row[:length].tolist() for row, length in zip(x.tokens[b], x.lengths[b], strict=True)]
            for x in (ahead, back)
        )
        known = [*one, *map(turned, other)]
        expected.append([row for row in every[b] if row[0] in known][:width])
    assert_found(search(decoders, inputs, beam_width=width), expected, LONGEST)


def table(rows):
    """A step whose memory `(N, V, V)` holds p(next | last)."""

    def step(tokens, state, memory):
        row = ops.take_along_axis(memory, ops.reshape(tokens, (-1, 1, 1)), axis=1)
        return ops.log(ops.squeeze(row, 1)), state, None

    return step, None, np.array([rows], "float32")


def test_a_model_can_refuse_what_the_other_one_writes():
    end = [0.0, 1.0, 0.0, 0.0]
    start = [0.0, 0.0, 0.9, 0.1]
    free = table([start, end, end, end])
    strict = table([[0.0, 0.0, 0.0, 1.0], end, end, end])
    tokens = {"start_token": 0, "end_token": 1, "max_length": 2, "beam_width": 2}
    for pair in ((free, strict), (strict, free)):
        found = to_numpy(bidirectional_search(*zip(*pair, strict=True), **tokens))
        assert found.tokens.tolist() == [[[3, 1], [1, 1]]]
        assert found.lengths.tolist() == [[2, 0]]
        np.testing.assert_allclose(found.scores, [[np.log(0.1) / 2 / (7 / 6), -np.inf]], rtol=1e-6)


STEP, _, MEMORY = table([[0.25] * 4] * 4)
PAIR = "must be a pair, one for the left-to-right model and one for the right"


def both(steps=(STEP, STEP), states=(None, None), memories=(MEMORY, MEMORY)):
    return bidirectional_search(steps, states, memories, start_token=0, end_token=1, max_length=2)


TOKEN = "must be ", " received '</s>' ", " Look it up"
test_mistakes = refusals(
    (lambda: both(steps=STEP), "`steps` " + PAIR),
    (lambda: both(states=[None]), "`states` " + PAIR),
    (lambda: both(memories=None), "`memories` " + PAIR),
    (lambda: both(steps=(STEP, lambda tokens: None)),
     "`step` must be a function ", " too many positional arguments"),
    (lambda: both(memories=(MEMORY, np.concatenate([MEMORY, MEMORY]))),
     "state and memory must hold ", " one batch size"),
    *((lambda x=x: reverse_tokens(x, 2), "must be integer ids of shape")
      for x in ([[3, 4, 2]], np.ones((2, 3)), np.ones(3, int), None)),
    *((lambda x=x: reverse_tokens(np.ones((2, 3), int), **{"end_token": 2, x: "</s>"}),
       f"`{x}` ", *TOKEN) for x in ("end_token", "pad_token")),
)  # fmt: skip


def test_the_defaults_are_those_of_a_beam_search():
    beam, both = (inspect.signature(x).parameters for x in (beam_search, bidirectional_search))
    shared = set(beam) & set(both)
    assert {"beam_width", "length_penalty", "min_length", "no_repeat_ngram_size"} <= shared
    assert all(beam[name].default == both[name].default for name in shared)


def test_tokens_are_reversed_before_the_end_or_the_padding():
    for dtype in ("int32", "int64"):
        tokens = np.random.default_rng(1).integers(0, 5, (101, 7)).astype(dtype)
        found = reverse_tokens(tokens, end_token=1, pad_token=0)
        assert isinstance(found, np.ndarray)
        assert found.dtype == dtype
        for row, reversed_row in zip(tokens.tolist(), found.tolist(), strict=True):
            n = next((i for i, x in enumerate(row) if x in (0, 1)), len(row))
            assert reversed_row == [*row[:n][::-1], *row[n:]]
        again = reverse_tokens(ops.convert_to_tensor(tokens), 1)
        assert ops.is_tensor(again)
        assert np.array_equal(ops.convert_to_numpy(again), found)
    inputs = keras.Input((None,), dtype="int32")
    model = keras.Model(inputs, reverse_tokens(inputs, 1, 0))
    assert np.array_equal(model(tokens), found)
