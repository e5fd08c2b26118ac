"""What sets attentions with a state apart: losses, priors, agents, and where they start."""

import keras
import numpy as np
import pytest

import keras_attention as ka
from tests.helpers import DV, TK, B, assert_close, gradients, lengths_mask, normal, numpy
from tests.recurrent_oracles import beta_binomial

T = 5
INPUTS = normal(1, B, T, 3, dtype="float32"), normal(2, B, TK, DV, dtype="float32")
MASK = np.array([[True, True, True, True, True], [True, True, False, False, False]])


def loss_of_weights(weights, mask):
    total = 0.0
    for b in range(B):
        coverage, losses = np.zeros(TK), []
        for i in range(T):
            if mask[b, i]:
                losses.append(sum(np.minimum(weights[b, i], coverage)))
                coverage = coverage + weights[b, i]
        total += np.mean(losses) / B
    return total


@pytest.mark.parametrize("decoder", [False, True])
def test_the_loss(decoder):
    layer, masks = ka.CoverageAttention(11, 0.25), {"query_mask": MASK}
    if decoder:
        layer = ka.AttentionRNN(keras.layers.GRUCell(7), layer)
        masks = {"sequences_mask": MASK, "memory_mask": lengths_mask([5, 7], TK)}
    _, weights = layer(*INPUTS, **masks, return_attention_scores=True)
    expected = 0.25 * loss_of_weights(numpy(weights), MASK)
    assert [float(numpy(x)) for x in layer.losses] == pytest.approx([expected], rel=1e-5)


@pytest.mark.parametrize(("weight", "samples", "losses"), [(1, 0, [0.0]), (0, B, [])])
def test_no_loss(weight, samples, losses):
    layer = ka.CoverageAttention(3, weight)
    layer(*(x[:samples] for x in INPUTS))
    assert [float(numpy(x)) for x in layer.losses] == losses


@pytest.mark.parametrize("length", [1, 2, 11])
def test_the_prior_alone_moves(length):
    """With a score vector of zeros, the weights of a step are the prior of those before."""
    layer = ka.DynamicConvolutionAttention(3, prior_length=length, dtype="float64")
    query, value = np.ones((1, 2, 5)), np.ones((1, 30, 7))
    layer.build(query.shape, value.shape)
    layer.score_vector.assign(np.zeros(3))
    _, weights = layer(query, value, return_attention_scores=True)
    prior = beta_binomial(length - 1, 0.1, 0.9)
    assert sum(prior) == pytest.approx(1)
    assert np.arange(length) @ prior == pytest.approx((length - 1) * 0.1)
    for row, expected in zip(numpy(weights)[0], (prior, np.convolve(prior, prior)), strict=True):
        np.testing.assert_allclose(row[: len(expected)], expected, rtol=0, atol=1e-6)
        assert not row[len(expected) :].any()


def test_an_agent_that_always_moves_stays_at_the_end():
    layer = ka.ForwardAttention(3, transition_agent=True)
    query, value = normal(1, 2, 9, 5, dtype="float32"), normal(2, 2, 4, 3, dtype="float32")
    layer.build(query.shape, value.shape)
    layer.agent_bias.assign(30.0)
    _, weights = layer(query, value, return_attention_scores=True)
    np.testing.assert_allclose(numpy(weights).sum(-1), 1, atol=1e-5)
    np.testing.assert_allclose(numpy(weights)[:, 4:, 3], 1, atol=1e-4)


@pytest.mark.parametrize("agent", [False, True])
def test_a_step_that_can_reach_nothing_changes_nothing(agent):
    layer = ka.ForwardAttention(3, transition_agent=agent)
    query, value = normal(1, 1, 4, 6, dtype="float32"), normal(2, 1, 5, 6, dtype="float32")
    mask = np.ones((4, 5), bool)
    mask[1] = [False, False, False, True, True]
    options = {"attention_mask": mask, "return_attention_scores": True}
    _, weights = layer(query, value, **options)
    np.testing.assert_allclose(numpy(weights).sum(-1), [[1, 0, 1, 1]], atol=1e-6)
    without = np.delete(query, 1, axis=1)
    _, expected = layer(without, value, return_attention_scores=True)
    np.testing.assert_allclose(np.delete(numpy(weights), 1, axis=1), numpy(expected), atol=1e-6)


@pytest.mark.parametrize(("step", "width", "options"), [
    (1, 10, {}), (0.5, 2, {"initial_step": 0.5, "initial_width": 2}),
])  # fmt: skip
def test_where_v2b_starts(step, width, options):
    layer = ka.GMMAttention(3, components=2, **options)
    query, value = np.zeros((1, 4, 5), "float32"), np.zeros((1, 30, 7), "float32")
    _, weights = layer(query, value, return_attention_scores=True)
    j, i = np.arange(30), np.arange(1, 5)[:, None]
    expected = np.exp(-((j - step * i) ** 2) / (2 * width**2)) / np.sqrt(2 * np.pi * width**2)
    assert_close(weights[0], expected, "float32")


def test_what_a_row_sums_to():
    """docs/mechanisms/gmm.md: to one, but for narrow Gaussians and the end of the memory."""
    layer = ka.GMMAttention(3, components=1, version="V2", dtype="float64")
    layer.build((1, 1, 5), (1, 30, 7))
    for width, place, total in (
        (-9.0, 5.0, 39.4),  # narrowest, on a step
        (-0.725, 5.0, 1.08),  # narrow, on a step
        (-0.725, 5.5, 0.92),  # between two
        (3.0, 15.0, 1.0),  # wide
        (3.0, 29.0, 0.57),  # at the end
    ):
        # softplus(x) = d is x = log(exp(d) - 1)
        layer.mixture_bias.assign([0.0, np.log(np.expm1(place)), width])
        _, weights = layer(np.zeros((1, 1, 5)), np.zeros((1, 30, 7)), return_attention_scores=True)
        assert numpy(weights).sum() == pytest.approx(total, abs=0.01)


@pytest.mark.parametrize("dtype", ["float32", "mixed_float16"])
@pytest.mark.parametrize("logit", [-120.0, 120.0])
@pytest.mark.parametrize("version", ["V0", "V2", "V2b"])
@pytest.mark.each_value
def test_extreme_mixtures_stay_finite(version, logit, dtype):
    layer = ka.GMMAttention(3, components=2, version=version, dtype=dtype)
    query, value = normal(1, 2, 4, 5, dtype="float32"), normal(2, 2, 7, 3, dtype="float32")
    layer.build(query.shape, value.shape)
    for n in range(3):
        layer.mixture_bias.assign(np.where(np.arange(6) // 2 == n, logit, 0.0))
        outputs, found = gradients(layer, lambda *x: [layer(*x)], [query, value])
        assert all(np.isfinite(numpy(x)).all() for x in (*outputs, *found))
