"""How attention by Gaussians starts."""

import numpy as np
import pytest

from keras_attention import GMMAttention
from tests.helpers import assert_close, gradients, normal, numpy


@pytest.mark.parametrize(("step", "width", "options"), [
    (1, 10, {}), (0.5, 2, {"initial_step": 0.5, "initial_width": 2}),
])  # fmt: skip
def test_where_v2b_starts(step, width, options):
    layer = GMMAttention(3, components=2, **options)
    query, value = np.zeros((1, 4, 5), "float32"), np.zeros((1, 30, 7), "float32")
    _, weights = layer(query, value, return_attention_scores=True)
    j, i = np.arange(30), np.arange(1, 5)[:, None]
    expected = np.exp(-((j - step * i) ** 2) / (2 * width**2)) / np.sqrt(2 * np.pi * width**2)
    assert_close(weights[0], expected, "float32")


@pytest.mark.parametrize(("width", "place", "total"), [
    (-9.0, 5.0, 39.4),  # narrowest, on a step
    (-0.725, 5.0, 1.08),  # narrow, on a step
    (-0.725, 5.5, 0.92),  # between two
    (3.0, 15.0, 1.0),  # wide
    (3.0, 29.0, 0.57),  # at the end
])  # fmt: skip
def test_what_a_row_sums_to(width, place, total):
    """docs/mechanisms/gmm.md: to one, but for narrow Gaussians and the end of the memory."""
    layer = GMMAttention(3, components=1, version="V2", dtype="float64")
    layer.build((1, 1, 5), (1, 30, 7))
    # softplus(x) = d is x = log(exp(d) - 1)
    layer.mixture_bias.assign([0.0, np.log(np.expm1(place)), width])
    query, value = np.zeros((1, 1, 5)), np.zeros((1, 30, 7))
    _, weights = layer(query, value, return_attention_scores=True)
    assert numpy(weights).sum() == pytest.approx(total, abs=0.01)


@pytest.mark.parametrize("dtype", ["float32", "mixed_float16"])
@pytest.mark.parametrize("logit", [-120.0, 120.0])
@pytest.mark.parametrize("version", ["V0", "V2", "V2b"])
def test_extreme_mixtures_stay_finite(version, logit, dtype):
    layer = GMMAttention(3, components=2, version=version, dtype=dtype)
    query, value = normal(1, 2, 4, 5, dtype="float32"), normal(2, 2, 7, 3, dtype="float32")
    layer.build(query.shape, value.shape)
    for n in range(3):
        layer.mixture_bias.assign(np.where(np.arange(6) // 2 == n, logit, 0.0))
        outputs, found = gradients(layer, lambda *x: [layer(*x)], [query, value])
        assert all(np.isfinite(numpy(x)).all() for x in (*outputs, *found))
