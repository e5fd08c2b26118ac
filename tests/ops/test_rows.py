"""Rows are gathered from their own sample, and added to it."""

import numpy as np
import pytest

from keras_attention.backend import gather_rows, scatter_add
from keras_attention.ops import take_windows
from tests.backends import tensor
from tests.helpers import assert_close, normal

# Equal sizes, because Keras 3.15 on TensorFlow adds `(B, 1)` to `(B, B)` along the wrong axis.
SIZES = [(5,), (5, 5), (5, 3), (5, 5, 4), (5, 4, 5), (1, 3), (3, 1), (2, 0, 3)]


@pytest.mark.parametrize("sizes", [*SIZES, (0, 2, 3)], ids=str)
@pytest.mark.parametrize("features", [(), (2,), (2, 3)], ids=str)
def test_taken_rows(sizes, features):
    samples = normal(0, sizes[0], 6, *features)
    row = np.random.default_rng(1).integers(0, 6, sizes).astype("int32")
    expected = np.zeros((*sizes, *features))
    for place in np.ndindex(*sizes):
        expected[place] = samples[place[0], row[place]]
    assert_close(gather_rows(tensor(samples), tensor(row, "int32")), expected)
    if len(sizes) == 3:
        assert_close(take_windows(samples, row), expected)


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_added_rows(sizes):
    rows = normal(0, *sizes, 2)
    row = np.random.default_rng(1).integers(0, 6, sizes).astype("int32")
    expected = np.zeros((sizes[0], 6, 2))
    for place in np.ndindex(*sizes):
        expected[place[0], row[place]] += rows[place]
    # No empty batch: `segment_sum` of Keras 3.15 refuses it on PyTorch.
    assert_close(scatter_add(tensor(rows), tensor(row, "int32"), 6), expected)
