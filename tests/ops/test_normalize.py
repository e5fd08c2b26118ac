"""The normalizers against loops."""

import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from keras import ops

from keras_attention.attention.scoring import NORMALIZERS
from keras_attention.ops import masked_hardmax, masked_softmax
from tests import oracles
from tests.backends import compiled, dtypes, gradients_by, tensor
from tests.helpers import Weightless, assert_close, assert_gradients, gradients, normal, numpy

SIGMOID = "normalized_sigmoid"
each = pytest.mark.parametrize("name", NORMALIZERS)
each_smooth = pytest.mark.parametrize("name", [x for x in NORMALIZERS if x != "hardmax"])


@st.composite
def scores_and_mask(draw):
    shape = draw(st.tuples(st.integers(1, 3), st.integers(1, 9)))
    # Multiples of 1/64 are exact, so that ties and the ends of supports come up and agree.
    scores = draw(arrays.arrays("int64", shape, elements=st.integers(-640, 640))) / 64
    return scores, draw(arrays.arrays("bool", shape))


@each
@settings(max_examples=25, derandomize=True, deadline=None)
@given(given_scores=scores_and_mask())
def test_normalizers_equal_the_oracle(name, given_scores):
    scores, mask = given_scores
    oracle = oracles.NORMALIZERS[name]
    everything = np.ones_like(mask)
    for allowed, argument in ((mask, mask), (everything, None), (mask[0], mask[:1])):
        allowed = np.broadcast_to(allowed, mask.shape)
        expected = np.array([oracle(s, m) for s, m in zip(scores, allowed, strict=True)])
        weights = numpy(NORMALIZERS[name](keras.ops.convert_to_tensor(scores), argument))
        assert_close(keras.ops.convert_to_tensor(weights), expected)
        assert not weights[~allowed].any()
        assert_close(weights.sum(-1), allowed.any(-1).astype("float64"))


# The sigmoid of infinity is one.
@pytest.mark.parametrize(("name", "bad"), [
    *((x, np.nan) for x in NORMALIZERS), *((x, np.inf) for x in NORMALIZERS if x != SIGMOID),
])  # fmt: skip
def test_a_valid_score_that_is_no_number_is_not_hidden(name, bad):
    scores = normal(5, 2, 7)
    scores[0, 2] = scores[1, 2] = bad
    weights = numpy(NORMALIZERS[name](tensor(scores), np.array([[True], [False]])))
    assert np.isnan(weights[0]).any()
    assert not weights[1].any()


def test_hardmax_passes_the_gradient_of_the_softmax():
    scores, upstream = normal(8, 2, 7), tensor(normal(9, 2, 7))
    mask = np.arange(14).reshape(2, 7) % 3 > 0
    found = []
    for normalize in (masked_hardmax, masked_softmax):
        run = lambda x, f=normalize: (ops.sum(f(x, mask) * upstream), ())  # noqa: E731
        found.append(numpy(gradients_by(run, [tensor(scores)], [], False)[1][0]))
    np.testing.assert_array_equal(*found)
    assert found[0].any()


@pytest.mark.parametrize("size", [1, 2, 3, 17, pytest.param(1000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("name", ["sparsemax", "entmax15"])
@pytest.mark.each_value
def test_many_supports(name, size, jit):
    """The support holds one entry, all of them, or any number between; some are ties."""
    spread = np.geomspace(1e-4, 1e3, 29)[:, None]
    scores = np.concatenate([normal(1, 29, size) * spread, np.round(normal(2, 29, size))])
    for dtype in ("float64", "float32"):
        given = tensor(scores, dtype)
        weights = compiled(NORMALIZERS[name], jit)(given)
        expected = [oracles.NORMALIZERS[name](row, [True] * size) for row in numpy(given)]
        # The largest scores are thousands, of which float32 has seven digits.
        atol = 1e-12 if dtypes(weights) == ["float64"] else 1e-3
        np.testing.assert_allclose(numpy(weights), expected, atol=atol)


@each_smooth
@pytest.mark.parametrize("top", [-3e4, 3e4, -1e30, 1e30])
def test_extreme_scores_do_not_reach_the_masked_ones(name, top):
    scores = np.full((1, 5), top, "float32")
    weights = NORMALIZERS[name](tensor(scores), np.array([[True, True, False, False, True]]))
    assert_close(weights, [[1 / 3, 1 / 3, 0, 0, 1 / 3]], "float32")


@each
@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.each_value(slow=4)
def test_masked_nans_do_not_leak(name, jit):
    """Outputs and gradients; the last row has nothing valid."""
    scores, mask = normal(5, 3, 7), np.arange(21).reshape(3, 7) % 3 > 0
    mask[2] = False
    spoiled = np.where(mask, scores, np.nan)

    def run(x):
        return [NORMALIZERS[name](x, tensor(mask))]

    def oracle(inputs, _):
        rows = zip(inputs[0], mask, strict=True)
        return [np.array([oracles.NORMALIZERS[name](*x) for x in rows])]

    (weights,), (gradient,) = gradients(Weightless, run, [spoiled], jit)
    assert_close(weights, oracle([scores], None)[0])
    assert np.isfinite(numpy(gradient)).all()
    assert not numpy(gradient)[~mask].any()
    if name != "hardmax":
        assert_gradients(Weightless, run, [scores], oracle, jit=jit)


@each
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.each_value
def test_half_precision_scores_are_normalized_in_float32(name, dtype):
    scores = normal(3, 5, 61, dtype="bfloat16")
    expected = [oracles.NORMALIZERS[name](row, [True] * 61) for row in scores]
    weights = NORMALIZERS[name](keras.ops.cast(scores, dtype))
    assert dtypes(weights) == ["float32"]
    assert_close(weights, np.array(expected), "float32")
    one, mask = ops.cast([[7.0], [-7.0]], dtype), np.array([[True], [False]])
    assert numpy(NORMALIZERS[name](one, tensor(mask))).ravel().tolist() == [1, 0]
    assert NORMALIZERS[name](ops.zeros((2, 3, 0))).shape == (2, 3, 0)
