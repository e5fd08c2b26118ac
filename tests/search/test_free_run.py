"""Free runs against a loop, in every mode, and their errors."""

import numpy as np
import pytest
from keras import ops

from keras_attention.search import free_run
from tests.backends import compiled, tensor
from tests.helpers import assert_close, assert_refused, normal, numpy, refusals

B, F, TK, L = 3, 2, 5, 6
FIRST, KERNEL = (normal(n, *shape).astype("float32") for n, shape in ((1, (B, F)), (2, (F, F))))
LIMITS = np.array([1, 4, 99], "int32")


def step(last, state, memory):
    """Mixes the last output, and stops after as many steps as `memory` says."""
    count, total = state["count"] + 1, state["total"] + last
    weights = ops.one_hot(count % TK, TK, dtype="float32")
    output = ops.tanh(ops.matmul(last, tensor(KERNEL)) - total)
    stop = ops.cast(count - memory, "float32") + 0.5
    return output, stop, {"count": count, "total": total, "none": None}, weights


def loop():
    outputs, weights = np.zeros((B, L, F)), np.zeros((B, L, TK))
    for b in range(B):
        last, total = FIRST[b].astype("float64"), np.zeros(F)
        for t in range(min(L, LIMITS[b])):
            total = total + last
            last = np.tanh(last @ KERNEL - total)
            outputs[b, t], weights[b, t, (t + 1) % TK] = last, 1
    return outputs, np.minimum(LIMITS, L), weights


def run(first, limits, step=step, **options):
    zeros = {"count": ops.zeros((B,), "int32"), "total": ops.zeros((B, F), "float32"), "none": None}
    return free_run(step, zeros, limits, first=first, **{"max_steps": L, **options})


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize(("steps", "limit"), [(L, None), (1, None), (L, 1), (L, 3)])
@pytest.mark.each_value
def test_equals_a_loop(steps, limit, jit):
    """A limit is a smaller number of steps, whose number a compiled function does not know."""

    def limited(first, limits, *limit):
        return run(first, limits, max_steps=steps, **({"limit": limit[0]} if limit else {}))

    more = [] if limit is None else [ops.convert_to_tensor(limit)]
    found = compiled(limited, jit)(tensor(FIRST), tensor(LIMITS), *more)
    outputs, lengths, weights = (x[:, :steps] if x.ndim > 1 else x for x in loop())
    before, most = np.arange(steps)[:, None] < (limit or L), min(limit or L, steps)
    assert_close(found.outputs, outputs * before, "float32")
    assert numpy(found.lengths).tolist() == np.minimum(lengths, most).tolist()
    assert_close(found.weights, weights * before)


def test_it_ends_when_all_samples_have_ended():
    calls = []

    def counted(*given):
        calls.append(1)
        return step(*given)

    found = run(tensor(FIRST), tensor(np.array([1, 3, 2], "int32")), counted, max_steps=100)
    assert found.outputs.shape == (B, 100, F)
    assert len(calls) <= 4  # some backends trace a step once more


def test_frames_of_any_shape_and_no_weights():
    first = tensor(normal(1, B, 2, F).astype("float32"))

    def grow(last, state, memory):
        return last + 1, last[:, 0, 0] * 0 - 1, None, None

    found = free_run(grow, None, first=first, max_steps=3)
    assert_close(found.outputs[:, 2], numpy(first) + 3, "float32")
    assert found.weights is None
    assert numpy(found.lengths).tolist() == [3, 3, 3]


@pytest.mark.parametrize(("change", "words"), [
    (lambda o, s, z, w: (o, s, z), ("the tuple (output, stop, state", "a tuple of 3")),
    (lambda o, s, z, w: (o[:, :1], s, z, w),
     ("output, float of shape (3, 2)", "received float32 of shape (3, 1)")),
    (lambda o, s, z, w: (o, o, z, w),
     ("stop, float of shape (3,)", "received float32 of shape (3, 2)")),
    (lambda o, s, z, w: (o, s, z, [w, o[0]]), ("weights, float of shape (3, None)", "received [")),
    (lambda o, s, z, w: (o, s, None, w), ("`step` must return the state with the structure",)),
])  # fmt: skip
def test_what_a_step_returns_is_checked(change, words):
    given = tensor(FIRST), tensor(LIMITS)
    assert_refused(lambda: run(*given, lambda *x: change(*step(*x))), *words)


FIRST_OUTPUT = "`first` must be one tensor (batch, "
BATCH = "first, state and memory must hold tensors of shape (batch, ...) with one batch size"
test_mistakes = refusals(
    *((lambda x=x: free_run(step, None, first=x, max_steps=2), FIRST_OUTPUT)
      for x in (1.0, None, (np.zeros((3, 2)), np.zeros((3, 2))))),
    (lambda: run(tensor(FIRST[:1]), tensor(LIMITS)), BATCH, "'first': (1, 2)"),
    (lambda: run(tensor(FIRST), tensor(LIMITS[:1])), BATCH, "'memory': (1,)"),
    (lambda: run(tensor(FIRST), tensor(LIMITS), step=3),
     "`step` must be a function step(last, state, memory) -> (output, stop, state, weights)"),
    *((lambda x=x: run(tensor(FIRST), tensor(LIMITS), max_steps=x), "max_steps")
      for x in (0, -1, 2.0, None)),
)  # fmt: skip
