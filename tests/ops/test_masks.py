"""Masks at positions are the same as whole masks, gathered."""

import numpy as np
import pytest
from keras import ops

from keras_attention.ops.masks import Masks
from tests.backends import tensor

B, TQ, TK = 2, 3, 7
QUERY, VALUE = np.ones((B, TQ, 5)), np.ones((B, TK, 11))
RNG = np.random.default_rng(1)
MASKS = [
    {"memory": (B, TK)}, {"query": (B, TQ)}, {"pairs": (TQ, TK)}, {"pairs": (B, TQ, TK)},
    {"memory": (B, TK), "query": (B, TQ), "pairs": (B, TQ, TK), "causal": True}, {"causal": True},
]  # fmt: skip


@pytest.mark.parametrize("shapes", MASKS, ids=str)
def test_masks_at_positions(shapes):
    given = {key: x if x is True else tensor(RNG.random(x) < 0.6) for key, x in shapes.items()}
    masks, position = Masks(**given), RNG.integers(0, TK, (B, TQ, 4)).astype("int32")
    whole = np.broadcast_to(ops.convert_to_numpy(masks.joined(QUERY, VALUE)), (B, TQ, TK))
    found = np.broadcast_to(ops.convert_to_numpy(masks.at(tensor(position))), position.shape)
    np.testing.assert_array_equal(found, np.take_along_axis(whole, position, axis=2))


def test_no_mask():
    assert Masks().joined(QUERY, VALUE) is None
    assert Masks().at(np.zeros((B, TQ, 4), "int32")) is None
