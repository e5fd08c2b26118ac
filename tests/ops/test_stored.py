"""Marked tensors are stored, and used again with the gradient of what they were computed from."""

import keras
import numpy as np

from keras_attention.ops._gradients import vector_jacobian
from keras_attention.ops._stored import reusing, stored, storing, without_storing
from tests.backends import only_on


def product(x):
    return stored(x**2) * stored(x + 1)


@only_on("tensorflow", "jax", reason="PyTorch differentiates the steps of a loop itself")
def test_marked_tensors():
    x = keras.ops.array([2.0, 5.0], "float32")
    with storing() as found:
        np.testing.assert_allclose(product(x), [12.0, 150.0])
    np.testing.assert_allclose(found, [[4.0, 25.0], [3.0, 6.0]])
    others = [keras.ops.array([100.0, 200.0], "float32"), keras.ops.array([1.0, 2.0], "float32")]

    def function(x):
        with reusing(others):
            result = product(x)
            with without_storing():
                return result, product(x)

    # 2x * 1 + 100 for the first number, 2x * 2 + 200 for the second
    (gradient,), plain = vector_jacobian(function, (x,), keras.ops.ones(2))
    np.testing.assert_allclose(gradient, [104.0, 220.0])
    np.testing.assert_allclose(plain, [12.0, 150.0])
    with reusing(others):
        np.testing.assert_allclose(product(x), [100.0, 400.0])
    np.testing.assert_allclose(product(x), [12.0, 150.0])
