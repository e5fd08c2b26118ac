"""The tolerance of half precision."""

import numpy as np
import pytest

from tests.helpers import HALVES, TOLERANCES, assert_close, rounded

# The number found on a processor that cuts where others round, the number of the paper, the largest
# number of its array and, in a decoder of three steps, `times`.
CUT = {
    "coverage": (1.6328, 1.6439, 1.6439, 1),
    "forward": (2.0, 2.0125, 2.0125, 1),
    "forward with agent": (-1.3047, -1.3154, 1.953, 1),
    "gmm": (0.9865, 1.0, 1.0, 1),
    "luong": (-1.6016, -1.6171, 1.716, 1),
    "decoder": (1.4609, 1.4749, 1.88, 1.5),
    "decoder with input feeding": (0.2363, 0.2484, 0.995, 1.5),
}


@pytest.mark.parametrize(("found", "expected", "largest", "times"), CUT.values(), ids=CUT)
def test_cut_products_pass_and_four_units_more_do_not(found, expected, largest, times):
    expected = [largest, expected]
    assert_close([largest, found], expected, "bfloat16", times)
    unit = 2.0 ** (np.floor(np.log2(abs(found))) - 7)
    worse = found + 4 * unit * np.sign(found - expected[1])
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        assert_close([largest, worse], expected, "bfloat16", times)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("policy", ["", "mixed_"])
def test_the_tolerance_of_half_precision_grows_with_the_numbers(dtype, policy):
    """A number may be cut, and the largest one says how far the numbers before it were off."""
    for scale in (1e-3, 1.0, 1e3):
        largest = scale * rounded(1.999, dtype)
        expected = np.array([0.0, largest])
        for error, close in ((1.99, True), (2.01, False)):
            found = expected + error * TOLERANCES[dtype] * largest * np.array([0.5, 1.0])
            for n in range(2):
                one = expected.copy()
                one[n] = found[n]
                if close:
                    assert_close(one, expected, policy + dtype)
                else:
                    with pytest.raises(AssertionError):
                        assert_close(one, expected, policy + dtype)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_the_tolerance_of_other_dtypes_does_not_grow_with_the_largest_number(dtype):
    expected = np.array([0.0, 1e6])
    assert_close(expected + [0.99 * TOLERANCES[dtype], 0], expected, dtype)
    with pytest.raises(AssertionError):
        assert_close(expected + [1.01 * TOLERANCES[dtype], 0], expected, dtype)
