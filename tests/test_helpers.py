"""The tolerance of half precision."""

import numpy as np
import pytest

from tests.helpers import HALVES, TOLERANCES, assert_close

# The number found on a processor that cuts where others round, the number of the paper, the largest
# number of its array, and `before`.
CUT = {
    "coverage": (1.6328, 1.6439, 1.6439, 0.5),
    "forward": (2.0, 2.0125, 2.0125, 0.5),
    "forward with agent": (-1.3047, -1.3154, 1.953, 0.5),
    "gmm": (0.9865, 1.0, 1.0, 1),
    "luong": (-1.6016, -1.6171, 1.716, 0.5),
    "decoder": (1.4609, 1.4749, 1.88, 1.5),
    "decoder with input feeding": (0.2363, 0.2484, 0.995, 1.5),
}


@pytest.mark.parametrize(("found", "expected", "largest", "before"), CUT.values(), ids=CUT)
def test_cut_products_pass_and_four_units_more_do_not(found, expected, largest, before):
    expected = [largest, expected]
    assert_close([largest, found], expected, "bfloat16", before=before)
    unit = 2.0 ** (np.floor(np.log2(abs(found))) - 7)
    worse = found + 4 * unit * np.sign(found - expected[1])
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        assert_close([largest, worse], expected, "bfloat16", before=before)


def assert_limits(expected, dtype, errors):
    """Each number may be off by its error, and no further."""
    for place, error in enumerate(errors):
        change = error * np.eye(len(expected))[place]
        assert_close(expected + 0.99 * change, expected, dtype)
        with pytest.raises(AssertionError):
            assert_close(expected + 1.01 * change, expected, dtype)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_the_tolerance_of_half_precision_grows_with_the_numbers(dtype, scale):
    """By one unit of the number, and half a unit of the largest number of its array."""
    units = scale * TOLERANCES[dtype]
    for policy in (dtype, f"mixed_{dtype}"):
        assert_limits(scale * np.array([0.0, 0.5, -1.0]), policy, units * np.array([0.5, 1.0, 1.5]))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_other_tolerances_do_not_grow_with_the_largest_number(dtype):
    assert_limits(np.array([0.0, 0.0, 100.0]), dtype, [TOLERANCES[dtype]] * 2)
