"""Losses of bags beside loops."""

import math

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention import AttentionPooling
from keras_attention.bags import concordance, cox_loss, hazard_loss, instance_loss
from tests.backends import compiled, tensor
from tests.helpers import Weightless, assert_gradients, normal, numpy, refusals

B, R, T = 6, 3, 9
VALID = np.array([9, 8, 5, 2, 1, 0])  # instances of each bag
LABELS = np.array([0, 1, 2, 1, 0, 2])
WEIGHTS = np.random.default_rng(1).random((B, R, T))
WEIGHTS = np.where(np.arange(T) < VALID[:, None, None], WEIGHTS, -1)
# Ties, and censored bags at the time of an event.
SURVIVAL = np.array([[3, 1], [1, 1], [3, 0], [0, 0], [1, 1], [2, 1]], "float64")


def entropy(logit, target):
    return math.log1p(math.exp(-logit if target else logit))


def instance_oracle(all_logits, count, exclusive):
    losses = []
    for weights, logits, size, label in zip(WEIGHTS, all_logits, VALID, LABELS, strict=True):
        k, means = min(count, size // 2), []
        for r in range(R):
            order = sorted(range(size), key=lambda t: -weights[r][t])
            targets = [(t, r == label) for t in order[:k]]
            if r == label:
                targets += [(t, False) for t in order[size - k :]]
            elif not exclusive:
                continue
            means.append(np.mean([entropy(logits[r, t], x) for t, x in targets] or [0.0]))
        losses.append(np.mean(means))
    return np.array(losses)


def hazard_oracle(logits):
    losses = []
    for row, (interval, event) in zip(1 / (1 + np.exp(-logits)), SURVIVAL.astype(int), strict=True):
        survived = np.cumprod([1.0, *(1 - row)])
        event_now = survived[interval] * row[interval]
        losses.append(-math.log(event_now if event else survived[interval + 1]))
    return np.array(losses)


def cox_oracle(risk):
    losses = []
    for (time, event), own in zip(SURVIVAL, risk[:, 0], strict=True):
        at_risk = np.exp(risk[SURVIVAL[:, 0] >= time]).sum()
        losses.append(event * (math.log(at_risk) - own))
    return np.array(losses)


def stacked(logits):
    return ops.stack([tensor(WEIGHTS), logits], axis=1)


def instances(count, exclusive):
    return (
        lambda x: instance_loss(tensor(LABELS), stacked(x), count, exclusive),
        lambda x: instance_oracle(x, count, exclusive),
        (B, R, T),
    )


CASES = {
    "instances": instances(2, True),
    "more than there are": instances(8, True),
    "not exclusive": instances(2, False),
    "hazards": (lambda x: hazard_loss(tensor(SURVIVAL), x), hazard_oracle, (B, 4)),
    "cox": (lambda x: cox_loss(tensor(SURVIVAL), x), cox_oracle, (B, 1)),
}


@pytest.mark.parametrize("name", CASES)
def test_a_loss_and_its_gradient_equal_loops(name):
    loss, oracle, shape = CASES[name]
    x = 2 * normal(3, *shape)
    np.testing.assert_allclose(numpy(compiled(loss)(tensor(x))), oracle(x), rtol=1e-12, atol=1e-12)
    run, loops = lambda x: [loss(x)], lambda x, _: [oracle(x[0])]
    assert_gradients(Weightless, run, [x], loops)
    # Far values have finite losses and gradients, in half precision too.
    assert np.isfinite(numpy(loss(tensor(1e4 * np.sign(x), "float16")))).all()


@pytest.mark.parametrize("loss", [cox_loss, hazard_loss])
def test_a_model_is_compiled_with_a_loss_of_survival(loss):
    inputs = keras.Input((2,))
    model = keras.Model(inputs, keras.layers.Dense(1 if loss is cox_loss else 4)(inputs))
    x = normal(4, B, 2, dtype="float32")
    expected = numpy(loss(tensor(SURVIVAL), model(x))).mean()
    model.compile("sgd", loss)
    assert model.evaluate(x, SURVIVAL, verbose=0) == pytest.approx(expected, rel=1e-5)
    model.fit(x, SURVIVAL, verbose=0)
    assert model.evaluate(x, SURVIVAL, verbose=0) < expected


def test_a_model_is_compiled_with_a_loss_of_instances():
    bag, mask = keras.Input((T, 2)), keras.Input((T,), dtype="bool")
    _, weights = AttentionPooling(3, rows=R)(bag, mask=mask, return_attention_scores=True)
    logits = ops.swapaxes(keras.layers.Dense(R)(bag), 1, 2)
    outputs = ops.stack([ops.where(mask[:, None], weights, -1.0), logits], axis=1)
    model = keras.Model([bag, mask], outputs)
    x = [normal(5, B, T, 2, dtype="float32"), np.arange(T) < VALID[:, None]]
    expected = numpy(instance_loss(LABELS, model(x))).mean()
    model.compile(loss=instance_loss)
    assert model.evaluate(x, LABELS, verbose=0) == pytest.approx(expected, rel=1e-5)


def test_concordance_counts_pairs():
    rng = np.random.default_rng(0)
    survival = np.stack([rng.integers(0, 9, 40), rng.random(40) < 0.6], axis=1)
    risk = rng.integers(0, 7, 40)
    right = pairs = 0
    for (time, event), own in zip(survival, risk, strict=True):
        for (other_time, other_event), other in zip(survival, risk, strict=True):
            later = other_time > time or (other_time == time and not other_event)
            if event and later:
                pairs += 1
                right += 1 if own > other else 0.5 if own == other else 0
    assert concordance(survival, tensor(risk)) == pytest.approx(right / pairs, abs=1e-12)


ONE = np.ones((2, 1))
test_mistakes = refusals(
    (lambda: instance_loss(LABELS, WEIGHTS), "outputs (bags, 2, classes, instances)", "(6, 3, 9)"),
    (lambda: instance_loss(LABELS, np.ones((B, 3, R, T))), "outputs (bags, 2, classes", "(6, 3,"),
    (lambda: instance_loss(LABELS[:2], np.ones((B, 2, R, T))), "labels (bags,)", "2", "6"),
    (lambda: instance_loss(LABELS, np.ones((B, 2, R, T)), 0), "`count`", "positive integer"),
    (lambda: hazard_loss(ONE, ONE), "survival (bags, 2) and logits (bags, intervals)", "(2, 1)"),
    (lambda: cox_loss(SURVIVAL, np.ones((B, 2))), "risks (bags, 1)", "(6, 2)"),
    (lambda: concordance(SURVIVAL, [1, 2]), "`survival`", "(2, 2)", "(6, 2)"),
    (lambda: concordance([[1, 0], [2, 0]], [1, 2]), "at least one bag must have an event"),
)
