"""The cases of an `each_value` test that the default run keeps."""

import itertools
from types import SimpleNamespace

from tests.conftest import repeating, values_of


def test_the_fewest_cases_with_every_value_of_every_parameter_stay():
    cases = [
        SimpleNamespace(callspec=SimpleNamespace(params={"dtype": dtype, "jit": jit, "kind": kind}))
        for dtype, jit, kind in itertools.product(range(5), range(2), range(3))
    ]
    left_out = repeating(cases)
    kept = [case for case in cases if case not in left_out]
    assert len(kept) == 5
    assert set.union(*map(values_of, kept)) == set.union(*map(values_of, cases))


def test_a_test_without_parameters_stays():
    assert not repeating([SimpleNamespace()])
