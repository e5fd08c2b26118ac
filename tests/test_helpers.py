"""The tests' own tools: the tolerance of half precision, the cases that a run keeps, the seeds."""

import itertools
import random
from types import SimpleNamespace

import keras
import numpy as np
import pytest

from tests.conftest import values_of, with_new_values
from tests.helpers import TOLERANCES, assert_close


@pytest.mark.parametrize("dtype", TOLERANCES)
def test_the_tolerance_grows_with_the_numbers_in_half_precision_alone(dtype):
    """By one unit of the number, and half a unit of the largest number of its array."""
    for scale in (1e-3, 1.0, 30.0):
        expected, half = scale * np.array([0.0, 0.5, -1.0]), "16" in dtype
        limits = scale * np.array([0.5, 1.0, 1.5]) if half else np.ones(3)
        for change in TOLERANCES[dtype] * np.diag(limits):
            assert_close(expected + 0.99 * change, expected, dtype)
            with pytest.raises(AssertionError):
                assert_close(expected + 1.01 * change, expected, f"mixed_{dtype}" * half or dtype)


def test_few_cases_with_every_value_stay():
    cases = [
        SimpleNamespace(callspec=SimpleNamespace(params={"dtype": dtype, "jit": jit, "kind": kind}))
        for dtype, jit, kind in itertools.product(range(5), range(2), range(3))
    ]
    kept = list(with_new_values(cases))
    assert len(kept) == 5
    assert set.union(*map(values_of, kept)) == set.union(*map(values_of, cases))
    assert list(with_new_values(cases, kept)) == []  # others cover their values
    case = SimpleNamespace()  # without parameters
    assert list(with_new_values([case])) == [case]


drawn = []


@pytest.mark.parametrize("later", [11, 5, 7])
def test_every_test_draws_the_same_numbers(later):
    """Other seeds end with the test that sets them."""
    drawn.append([random.random(), np.random.random(), float(keras.random.normal(()))])
    assert drawn[0] == drawn[-1]
    keras.utils.set_random_seed(later)
