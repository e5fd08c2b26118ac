"""The cases of an `each_value` test that the default run and the slow tests keep; the seeds."""

import itertools
import random
from types import SimpleNamespace

import keras
import numpy as np
import pytest

from tests.conftest import values_of, with_new_values


def test_few_cases_with_every_value_stay():
    cases = [
        SimpleNamespace(callspec=SimpleNamespace(params={"dtype": dtype, "jit": jit, "kind": kind}))
        for dtype, jit, kind in itertools.product(range(5), range(2), range(3))
    ]
    kept = list(with_new_values(cases))
    assert len(kept) == 5
    assert set.union(*map(values_of, kept)) == set.union(*map(values_of, cases))


def test_cases_that_others_cover_are_not_taken():
    cases = [SimpleNamespace(callspec=SimpleNamespace(params={"x": x})) for x in (1, 2)]
    assert list(with_new_values(cases, cases[1:])) == cases[:1]


def test_a_test_without_parameters_stays():
    case = SimpleNamespace()
    assert list(with_new_values([case])) == [case]


drawn = []


@pytest.mark.parametrize("later", [11, 5, 7])
def test_every_test_draws_the_same_numbers(later):
    """`fit` shuffles its samples alike too, and other seeds end with the test that sets them."""
    orders = []

    class Order(keras.layers.Dense):
        def call(self, x):
            orders.append(keras.ops.convert_to_numpy(x)[:, 0].tolist())
            return super().call(x)

    x = np.arange(64.0)[:, None]
    model = keras.Sequential([Order(1)])
    model.compile("sgd", "mse", run_eagerly=True)
    model.fit(x, x, batch_size=64, verbose=0)
    drawn.append([orders[-1], random.random(), np.random.random(), float(keras.random.normal(()))])
    assert orders[-1] != x[:, 0].tolist()
    assert drawn[0] == drawn[-1]
    keras.utils.set_random_seed(later)
