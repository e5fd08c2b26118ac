"""The trilinear score against loops."""

import numpy as np
import pytest

from keras_attention.ops import trilinear_score
from tests import oracles
from tests.backends import compiled, dtypes, tensor
from tests.helpers import Weightless, assert_close, assert_gradients, normal, numpy


def trilinear(context, query, *vectors):
    names = ("query_vector", "product_vector", "context_vector")
    return trilinear_score(context, query, **dict(zip(names, vectors, strict=False)))


def trilinear_oracle(inputs, _=None):
    """The scores, without a context vector if there is no fifth input."""
    context, query, *vectors = inputs
    first = vectors[2] if len(vectors) == 3 else np.zeros_like(vectors[0])
    vector = np.concatenate([first, *vectors[:2]])
    pairs = zip(context, query, strict=True)
    return [np.array([oracles.trilinear_scores(h, u, vector) for h, u in pairs])]


@pytest.mark.parametrize("vectors", [2, 3])
@pytest.mark.parametrize("jit", [False, True])
def test_trilinear_score(vectors, jit):
    inputs = normal(0, 2, 7, 5), normal(1, 2, 3, 5), *(normal([2, n], 5) for n in range(vectors))
    call = lambda *x: [trilinear(*x)]  # noqa: E731
    assert_gradients(Weightless, call, inputs, trilinear_oracle, jit=jit)
    assert_close(compiled(trilinear, jit)(*map(tensor, inputs)), trilinear_oracle(inputs)[0])
    single = compiled(trilinear, jit)(*[tensor(x, "float32") for x in inputs])
    assert dtypes(single) == ["float32"]
    np.testing.assert_allclose(numpy(single), trilinear_oracle(inputs)[0], rtol=1e-6, atol=1e-5)
