"""The largest numbers of a row beside a stable sort."""

import keras
import numpy as np
import pytest

from keras_attention.search._top_k import GROUP, SHORTEST, top_k
from tests.backends import BACKEND
from tests.helpers import numpy


@pytest.mark.parametrize("jit", [None, False, True])
@pytest.mark.parametrize("count", [1, 5, 37])
@pytest.mark.parametrize("size", [40, SHORTEST, 60 * GROUP + 1, 63 * GROUP - 1])
def test_equals_a_sort(size, count, jit):
    rng = np.random.default_rng(size)
    rows = rng.normal(size=(7, size)).astype("float32")
    rows[1] = rng.integers(0, 3, size)  # many are equal
    rows[2] = np.sort(rows[2])
    rows[3, : size - 3] = -np.inf
    rows[4] = -np.inf
    rows[5, 1:] = -1e30
    expected = np.argsort(-rows, axis=-1, kind="stable")[:, :count]

    def run(x):
        return top_k(x, count)

    if jit is not None:
        if BACKEND != "tensorflow":
            pytest.skip("it builds a graph of TensorFlow")
        import tensorflow as tf

        run = tf.function(run, [tf.TensorSpec((None, size))], jit_compile=jit)
    values, places = run(keras.ops.convert_to_tensor(rows))
    if BACKEND != "torch":  # whose sort leaves open which of several equal numbers comes first
        assert np.array_equal(numpy(places), expected)
    found = np.take_along_axis(rows, numpy(places).astype(int), axis=-1)
    assert np.array_equal(found, numpy(values))
    assert np.array_equal(numpy(values), np.take_along_axis(rows, expected, axis=-1))


def test_on_a_gpu(monkeypatch):
    monkeypatch.setattr(f"keras_attention.backend.{BACKEND}._device", lambda *_: "gpu")
    test_equals_a_sort(63 * GROUP - 1, 5, None)
