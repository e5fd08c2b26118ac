"""The additive, the trilinear and the convolved score as layers call them, against loops."""

import numpy as np
import pytest

from keras_attention.backend import ops
from keras_attention.ops import additive_score, compiling, trilinear_score
from keras_attention.ops.additive import dispatch
from keras_attention.ops.convolution import convolved_score
from tests import oracles
from tests.backends import BACKEND, compiled, dtypes, tensor
from tests.helpers import Weightless, assert_close, assert_gradients, gradients, normal, numpy

B, TK, U = 2, 5, 3


def of_shapes(*shapes):
    return [normal(n, *shape) for n, shape in enumerate(shapes)]


def additive_oracle(query, key, vector):
    pairs = zip(query, key, strict=True)
    return np.array([[oracles.additive_scores(q, k, vector) for q in qs] for qs, k in pairs])


def trilinear(context, query, *vectors):
    names = ("query_vector", "product_vector", "context_vector")
    return trilinear_score(context, query, **dict(zip(names, vectors, strict=False)))


def trilinear_oracle(context, query, *vectors):
    first = vectors[2] if len(vectors) == 3 else np.zeros_like(vectors[0])
    vector, pairs = np.concatenate([first, *vectors[:2]]), zip(context, query, strict=True)
    return np.array([oracles.trilinear_scores(h, u, vector) for h, u in pairs])


def convolved(query, weights, filters, vector, key=None):
    return convolved_score(query, key, weights, filters, vector)


def convolved_oracle(query, weights, filters, vector, key=None):
    scores = np.zeros((B, TK))
    for b, j in np.ndindex(B, TK):
        kernel = filters if filters.ndim == 2 else filters[b]
        hidden = query[b] + (0 if key is None else key[b, j])
        for w in range(len(kernel)):
            at = j + w - (len(kernel) - 1) // 2
            if 0 <= at < TK:
                hidden = hidden + kernel[w] * weights[b, at]
        scores[b, j] = vector @ np.tanh(hidden)
    return scores


# For each a function, its inputs, its oracle, and the error in float32.
SCORES = {
    **{f"additive, {n}": (
        additive_score, [normal(0, 2, 3, n), normal(1, 2, 7, n), normal(2, n) / n**0.5],
        additive_oracle, 1)
       for n in (1, 13, 37)},
    **{f"trilinear, {n}": (
        trilinear, of_shapes((2, 7, 5), (2, 3, 5), *[(5,)] * n), trilinear_oracle, 5)
       for n in (2, 3)},
    **{f"convolved, {filters}, {keys}": (
        convolved, of_shapes((B, U), (B, TK), filters, (U,), *[(B, TK, U)] * keys),
        convolved_oracle, 5)
       for filters in ((1, U), (4, U), (3, U), (B, 5, U), (B, 11, U)) for keys in (False, True)},
}  # fmt: skip


JIT = "additive, 37", "trilinear, 3", "convolved, (2, 5, 3), True"


@pytest.mark.parametrize(("name", "jit"), [
    *((name, False) for name in SCORES), *((name, True) for name in JIT),
])  # fmt: skip
def test_scores_and_gradients_in_both_precisions(name, jit):
    score, inputs, oracle, times = SCORES[name]
    expected, run = oracle(*inputs), compiled(score, jit)
    assert_close(run(*map(tensor, inputs)), expected)
    single = run(*[tensor(x, "float32") for x in inputs])
    assert dtypes(single) == ["float32"]
    assert_close(single, expected, "float32", times=times)
    loops = lambda inputs, _: [oracle(*inputs)]  # noqa: E731
    assert_gradients(Weightless, lambda *x: [score(*x)], inputs, loops, jit=jit)


@pytest.mark.parametrize("size", [45.0, 1e4])
def test_additive_score_saturates(size):
    query, key = size * np.sign(normal(0, 2, 3, 5)), size * np.sign(normal(1, 2, 7, 5))
    inputs = [tensor(x, "float32") for x in (query, key, normal(2, 5))]
    (scores,), found = gradients(Weightless, lambda *x: [additive_score(*x)], inputs)
    assert_close(scores, additive_oracle(*map(numpy, inputs)), "float32")
    assert all(np.isfinite(numpy(x)).all() for x in found)


@pytest.mark.skipif(BACKEND == "jax", reason="JAX compiles, and recomputes the tanh")
@pytest.mark.parametrize("steps", [1, 2])
def test_eager_code_stores_the_tanh_of_one_query(steps, monkeypatch):
    """Also beyond the few pairs that are always stored. Of several queries, it is recomputed."""
    monkeypatch.setattr(dispatch, "SMALL_EAGER", 0)
    calls, tanh = [], ops.tanh
    monkeypatch.setattr(ops, "tanh", lambda x: calls.append(x) or tanh(x))
    inputs = of_shapes((2, steps, 5), (2, 7, 5), (5,))
    with compiling(False):
        (scores,), _ = gradients(Weightless, lambda *x: [additive_score(*x)], inputs)
    assert_close(scores, additive_oracle(*inputs))
    assert (len(calls) == 1) == (steps == 1)
