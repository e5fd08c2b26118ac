"""The additive score as users call it, against loops."""

import numpy as np
import pytest

from keras_attention.backend import ops
from keras_attention.ops import additive_score, compiling
from keras_attention.ops.additive import dispatch
from tests import oracles
from tests.backends import BACKEND, compiled, dtypes, tensor
from tests.helpers import Weightless, assert_close, assert_gradients, gradients, normal, numpy


def additive_oracle(inputs, _=None):
    query, key, vector = inputs
    pairs = zip(query, key, strict=True)
    return [np.array([[oracles.additive_scores(q, k, vector) for q in qs] for qs, k in pairs])]


@pytest.mark.parametrize("units", [1, 13, 37])
@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.each_value
def test_additive_score(units, jit):
    inputs = normal(0, 2, 3, units), normal(1, 2, 7, units), normal(2, units) / units**0.5
    run, call = compiled(additive_score, jit), lambda *x: [additive_score(*x)]
    assert_gradients(Weightless, call, inputs, additive_oracle, jit=jit)
    assert_close(run(*[tensor(x) for x in inputs]), additive_oracle(inputs)[0])
    single = run(*[tensor(x, "float32") for x in inputs])
    assert dtypes(single) == ["float32"]
    assert_close(single, additive_oracle(inputs)[0], "float32")


@pytest.mark.parametrize("size", [45.0, 1e4])
def test_additive_score_saturates(size):
    query, key = size * np.sign(normal(0, 2, 3, 5)), size * np.sign(normal(1, 2, 7, 5))
    inputs = [tensor(x, "float32") for x in (query, key, normal(2, 5))]
    (scores,), found = gradients(Weightless, lambda *x: [additive_score(*x)], inputs)
    assert_close(scores, additive_oracle([numpy(x) for x in inputs])[0], "float32")
    assert all(np.isfinite(numpy(x)).all() for x in found)


@pytest.mark.skipif(BACKEND == "jax", reason="JAX compiles, and recomputes the tanh")
@pytest.mark.parametrize("steps", [1, 2])
def test_eager_code_stores_the_tanh_of_one_query(steps, monkeypatch):
    """Also beyond the few pairs that are always stored. Of several queries, it is recomputed."""
    monkeypatch.setattr(dispatch, "SMALL_EAGER", 0)
    calls, tanh = [], ops.tanh
    monkeypatch.setattr(ops, "tanh", lambda x: calls.append(x) or tanh(x))
    inputs = [tensor(x) for x in (normal(0, 2, steps, 5), normal(1, 2, 7, 5), normal(2, 5))]
    with compiling(False):
        (scores,), _ = gradients(Weightless, lambda *x: [additive_score(*x)], inputs)
    assert_close(scores, additive_oracle([numpy(x) for x in inputs])[0])
    assert (len(calls) == 1) == (steps == 1)
