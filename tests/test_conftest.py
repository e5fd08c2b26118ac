"""The cases of an `each_value` test that the default run and the slow tests keep."""

import itertools
from types import SimpleNamespace

from tests.conftest import pairs_of, repeating, values_of


def test_few_cases_with_every_value_or_pair_of_values_stay():
    cases = [
        SimpleNamespace(callspec=SimpleNamespace(params={"dtype": dtype, "jit": jit, "kind": kind}))
        for dtype, jit, kind in itertools.product(range(5), range(2), range(3))
    ]
    for contents, count in ((values_of, 5), (pairs_of, 15)):
        left_out = repeating(cases, contents)
        kept = [case for case in cases if case not in left_out]
        assert len(kept) == count
        assert set.union(*map(contents, kept)) == set.union(*map(contents, cases))


def test_cases_that_others_cover_are_not_taken():
    cases = [SimpleNamespace(callspec=SimpleNamespace(params={"x": x})) for x in (1, 2)]
    assert repeating(cases, values_of, values_of(cases[1])) == cases[1:]


def test_a_test_without_parameters_stays():
    assert not repeating([SimpleNamespace()], values_of)
    assert pairs_of(SimpleNamespace()) == values_of(SimpleNamespace())
