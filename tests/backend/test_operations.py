"""The operations of the package, where those of Keras differ from backend to backend."""

import numpy as np
import pytest

from keras_attention.backend import ops
from tests.backends import dtypes, tensor
from tests.helpers import assert_close, normal, numpy

BOTH = "add", "divide", "logaddexp", "maximum", "minimum", "multiply", "subtract"


@pytest.mark.parametrize("name", [*BOTH, "cos", "cumsum", "floor", "matmul", "mean", "sin", "tanh"])
def test_double_precision_is_kept(name):
    x, y = normal(1, 5, 7), normal(2, 5, 7) + 3
    arguments = {"matmul": [x, y.T]}.get(name, [x, y] if name in BOTH else [x])
    options = {"axis": 1} if name in ("cumsum", "mean") else {}
    found = getattr(ops, name)(*map(tensor, arguments), **options)
    assert dtypes(found) == ["float64"]
    assert_close(found, getattr(np, name)(*arguments, **options))


def test_an_axis_may_have_no_name_and_a_number_stand_beside_double_precision():
    x = normal(1, 5, 7)
    for name in ("cumsum", "mean"):
        assert_close(getattr(ops, name)(tensor(x), 1), getattr(np, name)(x, 1))
    for number in (0, 1e-12, -0.1):
        found = ops.maximum(tensor(1e-12 * x), number)
        assert np.array_equal(numpy(found), np.maximum(1e-12 * x, number))
    (found,) = ops.split(tensor(x), [], axis=-1)
    assert_close(found, x)
