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


@pytest.mark.parametrize("masks", [{}, {"mask": np.stack([GAPS[0], GAPS[0] & False])}])
def test_the_penalty_is_that_of_the_paper(masks):
    """Its gradient too; an empty bag adds nothing."""
    layer = ROWS.built()

    def oracle(inputs, weights):
        _, align = ROWS.paper(layer, inputs, weights, **masks)
        return [np.array(0.7 * redundancy(align))]

    def call(x):
        layer(x, **masks)
        return layer.losses

    assert_gradients(layer, call, ROWS.inputs(), oracle)


@pytest.mark.parametrize(("penalty", "bags", "losses"), [(0.0, B, []), (0.7, 0, [0.0])])
def test_nothing_to_penalize(penalty, bags, losses):
    layer = ROWS.built(penalty=penalty)
    layer(normal(1, bags, T, D))
    assert [float(numpy(x)) for x in layer.losses] == losses


def test_dropout_drops_weights_and_keeps_their_expectation():
    """Unit vectors show which weights were read, and their scale."""
    layer = AttentionPooling(U, dropout=0.4, seed=3)
    inputs = np.tile(np.eye(T, dtype="float32"), (211, 1, 1))
    assert_drops(*run(layer, inputs, training=True))


@pytest.mark.parametrize(("steps", "vector"), [
    ([[8.0, 0.0], [8.0, 0.5]], [4096.0, 1.0]),  # The difference is lost in a sum of halves,
    ([[0.5, 0.0], [0.5 + 2**-11, 0.0]], [1024.0, 0.0]),  # and in a half that holds a tanh.
])  # fmt: skip
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
