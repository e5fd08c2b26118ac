"""Averaged models, and replaced unknown tokens, against loops."""

import itertools

import numpy as np
import pytest
from keras import ops

from keras_attention.backend import leaves, tree_map
from keras_attention.search import average_steps, beam_search, replace_unknown
from tests.backends import tensor
from tests.helpers import assert_all_close, assert_close, refusals
from tests.search.oracles import START, TOKENS, Decoder, V, assert_same


@pytest.mark.parametrize("lengths", [(3,), (3, 5), (2, 2, 2)])
def test_averaged_steps(lengths):
    """The mean of the probabilities; of the weights too, if the memories have one length."""
    decoders = [Decoder(seed) for seed in range(len(lengths))]
    inputs = [x.inputs(5, n, lengths[n]) for n, x in enumerate(decoders)]
    state, memory = zip(*tree_map(tensor, inputs), strict=True)
    step = average_steps([decoder.step for decoder in decoders])
    tokens = np.array([START, 3, 4, 0, 5], "int32")
    logits, after, weights = step(tensor(tokens), state, memory)
    p, rows = np.zeros((5, V)), np.zeros((len(lengths), 5, lengths[0]))
    for n, (decoder, found) in enumerate(zip(decoders, after, strict=True)):
        _, wanted, _ = decoder.step(tensor(tokens), state[n], memory[n])
        assert_all_close(leaves(found), leaves(wanted))
        for b in range(5):
            log_probs, _, row = decoder.advance(tokens[b], *decoder.start(*inputs[n], b))
            p[b] += np.exp(log_probs) / len(lengths)
            rows[n, b] = row[: lengths[0]]
    assert_close(logits, np.log(p), "float32", times=5)
    rows = rows.mean(axis=0) if len(set(lengths)) == 1 else rows[0]
    assert_close(weights, rows, "float32")
    found = beam_search(step, state, memory, **TOKENS)
    if len(lengths) == 1:
        assert_same(found, beam_search(decoders[0].step, state[0], memory[0], **TOKENS))


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
    logits, *_ = average_steps([constant([0.0, -300.0])])(np.zeros(1, "int32"), (None,), (None,))
    np.testing.assert_allclose(ops.convert_to_numpy(logits), [[0.0, -300.0]], rtol=1e-6)


B, K, L, TK, UNKNOWN = 2, 3, 5, 7, 3


def arrays(shape):
    rng = np.random.default_rng(0)
    tokens = rng.integers(2, 4, size=shape).astype("int32")
    weights = rng.random((*shape, TK)).astype("float32")
    tokens[0, ..., 0], weights[0, ..., 0, :] = UNKNOWN, 0  # this step read nothing
    source = rng.integers(100, 200, size=(B, TK)).astype("int32")
    mask = rng.random((B, TK)) < 0.5
    mask[1] = False
    return tokens, weights, source, mask


@pytest.mark.parametrize("shape", [(B, L), (B, K, L)])
@pytest.mark.parametrize("masked", [False, True])
def test_replace_unknown_is_the_loop(shape, masked):
    tokens, weights, source, mask = arrays(shape)
    expected = tokens.copy()
    for index in itertools.product(*map(range, shape)):
        best, largest = None, 0.0
        for j in range(TK):
            if (mask[index[0], j] or not masked) and weights[index][j] > largest:
                best, largest = j, weights[index][j]
        if tokens[index] == UNKNOWN and best is not None:
            expected[index] = source[index[0], best]
    assert 0 < np.sum(expected != tokens) < np.sum(tokens == UNKNOWN)
    given = [tensor(x) for x in (tokens, weights, source)]
    found = replace_unknown(*given, UNKNOWN, tensor(mask) if masked else None)
    np.testing.assert_array_equal(ops.convert_to_numpy(found), expected)
    nothing = replace_unknown(tokens, weights[..., :0], source[:, :0], UNKNOWN)
    np.testing.assert_array_equal(ops.convert_to_numpy(nothing), tokens)


NOTHING, (ONES, READ, FROM, _) = (np.zeros(1, "int32"), (None, None)), arrays((B, L))


def replaced(tokens=ONES, weights=READ, source=FROM, unknown=UNKNOWN, **mask):
    return replace_unknown(tokens, weights, source, unknown, **mask)


test_mistakes = refusals(
    (lambda: average_steps([]), "at least one step function"),
    (lambda: average_steps(["model"]), "`step` must be a function"),
    (lambda: average_steps([constant([1.0, 2.0]), constant([1.0, 2.0, 3.0])])(
        *NOTHING, (None, None)), "share one vocabulary", "2, 3"),
    (lambda: average_steps([constant([1.0, 2.0])] * 2)(*NOTHING, None),
     "`memory` must be a tuple with one entry for each of the 2"),
    (lambda: replaced(weights=None),
     "`weights` must be floating-point, of shape (2, 5, memory steps); received None"),
    (lambda: replaced(source=np.zeros((B, 6), "int32")),
     "`source` must be integer ids, of shape (2, 7), because `weights` has 7 memory steps"),
    (lambda: replaced(memory_mask=np.ones((B, TK))), "`memory_mask` must be boolean"),
    (lambda: replaced(unknown=-1),
     "`unknown_token` must be an integer from 0 to 2147483647; received -1"),
)  # fmt: skip
