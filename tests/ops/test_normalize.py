"""The normalizers against loops."""

import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from keras import ops

from keras_attention.ops import (
    masked_entmax15,
    masked_hardmax,
    masked_sigmoid,
    masked_softmax,
    masked_sparsemax,
)
from tests import fast, oracles
from tests.backends import compiled, dtypes, gradients_by, tensor
from tests.helpers import (
    Weightless,
    assert_close,
    assert_gradients,
    gradients,
    loss_of,
    normal,
    numpy,
)

NORMALIZERS = {
    "softmax": masked_softmax,
    "sparsemax": masked_sparsemax,
    "entmax15": masked_entmax15,
    "hardmax": masked_hardmax,
    "normalized_sigmoid": masked_sigmoid,
}
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
@settings(max_examples=50, derandomize=True, deadline=None)
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


def test_sparsemax_of_the_paper():
    weights = masked_sparsemax(tensor(np.array([[1.0, 0.5, -3.0]])))
    assert_close(weights, [[0.75, 0.25, 0.0]])


@each
def test_half_precision_scores_are_normalized_in_float32(name):
    scores = normal(3, 5, 61, dtype="bfloat16")
    expected = [oracles.NORMALIZERS[name](row, [True] * 61) for row in scores]
    for dtype in ("bfloat16", "float16"):
        weights = NORMALIZERS[name](keras.ops.cast(scores, dtype))
        assert dtypes(weights) == ["float32"]
        assert_close(weights, np.array(expected), "float32")
    scores = tensor(scores, "float64")
    assert dtypes(NORMALIZERS[name](scores)) == dtypes(scores)


@each
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.each_value
def test_nothing_valid_means_zero(name, dtype, jit):

    def run(scores):
        weights = NORMALIZERS[name](scores, ops.convert_to_tensor([[False], [True]]))
        return loss_of([weights]), weights

    scores = ops.cast(0.1 * normal(4, 2, 7), dtype)
    weights, (gradient,) = gradients_by(run, [scores], [], jit)
    assert not numpy(weights)[0].any()
    assert not numpy(gradient)[0].any()
    assert np.isfinite(numpy(gradient)).all()
    assert numpy(gradient)[1].any()


@pytest.mark.parametrize(
    ("name", "bad"),
    # The sigmoid of infinity is one.
    [(x, bad) for x in NORMALIZERS for bad in (np.nan, np.inf) if (x, bad) != (SIGMOID, np.inf)],
)
def test_a_valid_score_that_is_no_number_is_not_hidden(name, bad):
    scores = normal(5, 2, 7)
    scores[0, 2] = scores[1, 2] = bad
    weights = numpy(NORMALIZERS[name](tensor(scores), np.array([[True], [False]])))
    assert np.isnan(weights[0]).any()
    assert not weights[1].any()


def test_entmax15_lies_between():
    """Between softmax and sparsemax: two scores, whose larger weight has a closed form."""
    difference = np.linspace(0, 3, 31)
    scores = tensor(np.stack([difference, 0 * difference], -1))
    # With t = d / 2: the larger weight is ((t + sqrt(2 - t^2)) / 2)^2, and 1 from t = 1 on.
    t = np.minimum(difference / 2, 1)
    larger = ((t + np.sqrt(2 - t**2)) / 2) ** 2
    assert_close(masked_entmax15(scores), np.stack([larger, 1 - larger], -1))
    soft, sparse = numpy(masked_softmax(scores)), numpy(masked_sparsemax(scores))
    assert (soft[1:, 0] < larger[1:]).all()
    assert (larger[1:] <= sparse[1:, 0]).all()


def test_sigmoids_far_from_zero_are_a_softmax_or_a_mean():
    scores = normal(3, 2, 7)
    assert_close(masked_sigmoid(tensor(scores - 30)), numpy(masked_softmax(tensor(scores))))
    assert_close(masked_sigmoid(tensor(scores + 30)), np.full((2, 7), 1 / 7))


def test_hardmax_passes_the_gradient_of_the_softmax():
    scores, upstream = normal(8, 2, 7), tensor(normal(9, 2, 7))
    mask = np.arange(14).reshape(2, 7) % 3 > 0
    found = []
    for normalize in (masked_hardmax, masked_softmax):
        run = lambda x, f=normalize: (ops.sum(f(x, mask) * upstream), ())  # noqa: E731
        found.append(numpy(gradients_by(run, [tensor(scores)], [], False)[1][0]))
    np.testing.assert_array_equal(*found)
    assert found[0].any()


@pytest.mark.parametrize("size", fast([1, 2, 3, 17, 1000], [1, 2, 3, 17]))
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
def test_masked_nans_do_not_leak(name):
    scores, mask = normal(5, 2, 7), np.arange(14).reshape(2, 7) % 3 > 0
    spoiled = np.where(mask, scores, np.nan)
    (weights,), (gradient,) = gradients(
        Weightless, lambda x: [NORMALIZERS[name](x, tensor(mask))], [spoiled]
    )
    expected = [oracles.NORMALIZERS[name](s, m) for s, m in zip(scores, mask, strict=True)]
    assert_close(weights, expected)
    assert np.isfinite(numpy(gradient)).all()
    assert not numpy(gradient)[~mask].any()


@each_smooth
def test_gradients_of_normalizers(name):
    mask = np.arange(14).reshape(2, 7) % 3 > 0

    def oracle(inputs, _):
        rows = zip(inputs[0], mask, strict=True)
        return [np.array([oracles.NORMALIZERS[name](s, m) for s, m in rows])]

    run = lambda scores: [NORMALIZERS[name](scores, mask)]  # noqa: E731
    assert_gradients(Weightless, run, [normal(8, 2, 7)], oracle)


@each
def test_memories_of_no_step_and_of_one(name):
    normalize = NORMALIZERS[name]
    assert normalize(ops.zeros((2, 3, 0))).shape == (2, 3, 0)
    scores, mask = tensor(np.array([[[7.0]], [[-7.0]]])), tensor(np.array([[[True]], [[False]]]))
    assert numpy(normalize(scores, mask)).ravel().tolist() == [1, 0]
