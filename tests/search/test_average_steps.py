"""Averaged models against loops over them."""

import numpy as np
import pytest
from keras import ops

from keras_attention.search import average_steps, beam_search, greedy_search
from tests.helpers import refusals
from tests.search.oracles import (
    TOKENS,
    Decoder,
    V,
    assert_found,
    assert_same,
    oracle_beam,
    oracle_greedy,
)


class Mean:
    """The loop: one hypothesis of several decoders, whose probabilities are averaged."""

    vocabulary = V

    def __init__(self, *decoders, first=False):
        self.decoders, self.first = decoders, first

    def start(self, state, memory, b):
        starts = [
            decoder.start(*own, b)
            for decoder, *own in zip(self.decoders, state, self.memories, strict=True)
        ]
        return [x for x, _ in starts], [x for _, x in starts]

    def advance(self, token, state, memory):
        p, states, rows = np.zeros(V), [], []
        for decoder, *own in zip(self.decoders, state, memory, strict=True):
            log_probs, after, row = decoder.advance(token, *own)
            p += np.exp(log_probs) / len(self.decoders)
            states.append(after)
            rows.append(row)
        return np.log(p), states, rows[0] if self.first else sum(rows) / len(rows)


def members(lengths):
    decoders = [Decoder(seed) for seed in range(len(lengths))]
    inputs = [
        decoder.inputs(5, seed, length)
        for seed, (decoder, length) in enumerate(zip(decoders, lengths, strict=True))
    ]
    state, memory = zip(*inputs, strict=True)
    return decoders, state, memory


def test_one_step_is_the_model():
    (decoder,), state, memory = members([3])
    expected = beam_search(decoder.step, state[0], memory[0], **TOKENS)
    assert_same(beam_search(average_steps([decoder.step]), state, memory, **TOKENS), expected)


@pytest.mark.parametrize("lengths", [(3, 3), (3, 5), (2, 2, 2)])
def test_averaged_steps_are_the_loop(lengths):
    decoders, state, memory = members(lengths)
    oracle = Mean(*decoders, first=len(set(lengths)) > 1)
    oracle.memories = memory
    step = average_steps([decoder.step for decoder in decoders])
    samples = np.zeros((5, 1))  # its length is the number of samples
    if len(lengths) > 2:
        found = greedy_search(step, state, memory, **TOKENS)
        assert_found(found, oracle_greedy(oracle, state, (samples,)))
        return
    found = beam_search(step, state, memory, beam_width=3, **TOKENS)
    assert_found(found, oracle_beam(oracle, state, (samples,), 3, 1.0))


def constant(logits):
    return lambda tokens, state, memory: (ops.convert_to_tensor([logits]), state, None)


def test_tokens_that_a_model_forbids():
    inf = np.inf
    step = average_steps([constant([0.0, -inf, -inf, 800.0]), constant([1.0, 1.0, -inf, 1.0])])
    logits, state, weights = step(np.zeros(1, "int32"), (None, None), (None, None))
    expected = [1 / 6, 1 / 6, 0.0, 2 / 3]
    np.testing.assert_allclose(np.exp(ops.convert_to_numpy(logits))[0], expected, rtol=1e-5)
    assert state == (None, None)
    assert weights is None


def test_improbable_tokens_keep_their_log_probability():
    logits, *_ = average_steps([constant([0.0, -300.0])])(np.zeros(1, "int32"), (None,), (None,))
    np.testing.assert_allclose(ops.convert_to_numpy(logits), [[0.0, -300.0]], rtol=1e-6)


NOTHING = np.zeros(1, "int32"), (None, None)
test_mistakes = refusals(
    (lambda: average_steps([]), "at least one step function"),
    (lambda: average_steps(["model"]), "`step` must be a function"),
    (lambda: average_steps([constant([1.0, 2.0]), constant([1.0, 2.0, 3.0])])(
        *NOTHING, (None, None)), "share one vocabulary", "2, 3"),
    (lambda: average_steps([constant([1.0, 2.0])] * 2)(*NOTHING, None),
     "`memory` must be a tuple with one entry for each of the 2"),
)  # fmt: skip
