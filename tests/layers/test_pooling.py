"""Penalty, rows, temperature and precision of attention pooling."""

import numpy as np
import pytest

from keras_attention import AttentionPooling
from tests.helpers import (
    B,
    assert_close,
    assert_drops,
    assert_gradients,
    normal,
    numpy,
)
from tests.layers.papers import GAPS, PAPERS, D, T, U, run
from tests.oracles import redundancy

SOFTMAX, GATED, ROWS = (PAPERS[f"pooling, {name}"] for name in ("softmax", "gated", "rows"))


@pytest.mark.parametrize("mask", [None, np.stack([GAPS[0], GAPS[0] & False])])
@pytest.mark.parametrize("jit", [False, True], ids=["eager", "jit"])
@pytest.mark.each_value
def test_the_penalty_is_that_of_the_paper(mask, jit):
    """Its gradient too; an empty bag adds nothing."""
    layer, masks = ROWS.built(), {} if mask is None else {"mask": mask}

    def oracle(inputs, weights):
        _, align = ROWS.paper(layer, inputs, weights, **masks)
        return [np.array(0.7 * redundancy(align))]

    def call(x):
        layer(x, **masks)
        return layer.losses

    assert_gradients(layer, call, ROWS.inputs(), oracle, jit=jit)


@pytest.mark.parametrize(
    ("penalty", "bags", "losses"), [(0.0, B, []), (0.7, 0, [0.0])], ids=["no penalty", "no bag"]
)
def test_nothing_to_penalize(penalty, bags, losses):
    layer = ROWS.built(penalty=penalty)
    layer(normal(1, bags, T, D))
    assert [float(numpy(x)) for x in layer.losses] == losses


@pytest.mark.parametrize(
    ("options", "queries"), [({}, (U,)), ({"gated": True, "rows": 3}, (3, U))], ids=["", "rows"]
)
def test_weights(options, queries):
    layer = AttentionPooling(U, **options)
    layer.build((B, T, D))
    shapes = {"kernel": (D, U), "bias": (U,), "query_vector": queries}
    gate = {"gate_kernel": (D, U), "gate_bias": (U,)} if options else {}
    assert {w.name: w.shape for w in layer.weights} == shapes | gate
    for weight in layer.weights:
        assert numpy(weight).any() == ("bias" not in weight.name)


def test_dropout_drops_weights_and_keeps_their_expectation():
    """Unit vectors show which weights were read, and their scale."""
    layer = AttentionPooling(U, dropout=0.4, seed=3)
    inputs = np.tile(np.eye(T, dtype="float32"), (211, 1, 1))
    assert_drops(*run(layer, inputs, training=True))


@pytest.mark.parametrize(
    ("steps", "vector"),
    [
        # The difference is lost in a sum of halves,
        ([[8.0, 0.0], [8.0, 0.5]], [4096.0, 1.0]),
        # and in a half that holds a tanh.
        ([[0.5, 0.0], [0.5 + 2**-11, 0.0]], [1024.0, 0.0]),
    ],
)
def test_half_precision_scores_are_calculated_in_float32(steps, vector):
    """The better of two steps wins, even if the scores differ only in the fourth digit."""
    layer = AttentionPooling(2, dtype="float16")
    layer.build((None, None, 2))
    layer.kernel.assign(np.eye(2, dtype="float16"))
    layer.query_vector.assign(np.array(vector, "float16"))
    inputs = np.array([steps], "float16")
    _, weights = run(layer, inputs)
    assert 0.55 < numpy(weights)[0, 1] < 0.65
    assert_close(weights, SOFTMAX.paper(layer, [inputs.astype("float64")])[1], "float16")
