"""The execution context: what it says, and that asking leaves no trace."""

import numpy as np
import pytest
import tensorflow as tf

from keras_attention.backend import (
    Compiling,
    ExecutionContext,
    capture_compiling,
    compiling,
    execution_context,
    may_compile,
)
from keras_attention.backend import tensorflow as backend
from keras_attention.ops import additive_score

KNOWN, UNKNOWN = tf.TensorSpec((2, 3)), tf.TensorSpec((None, 3))


def context_in_graph(spec=KNOWN, jit=None, choice=None, inner=lambda run: run):
    contexts = []

    def run(x):
        with compiling(choice):
            contexts.append(execution_context(x))
        return x

    tf.function(inner(run), [spec], jit_compile=jit, autograph=False).get_concrete_function()
    return contexts[-1]


@pytest.mark.parametrize(("options", "static", "compiled_by"), [
    ({}, True, "itself"),
    ({"spec": UNKNOWN}, False, None),
    ({"spec": UNKNOWN, "choice": True}, False, "itself"),
    ({"choice": False}, True, None),
    ({"jit": True}, True, "caller"),
    ({"jit": True, "spec": UNKNOWN, "choice": False}, False, "caller"),
])  # fmt: skip
@pytest.mark.each_value
def test_graphs(options, static, compiled_by):
    expected = ExecutionContext("tensorflow", "cpu", True, static, compiled_by)
    assert context_in_graph(**options) == expected


def test_eager():
    x = tf.ones((2, 3))
    expected = ExecutionContext("tensorflow", "cpu", graph=False, static=False)
    assert execution_context(x) == expected._replace(compiled_by="itself")
    with compiling(False):
        assert execution_context(x) == expected


def in_loop(run):
    return lambda x: tf.while_loop(lambda n, x: n < 2, lambda n, x: (n + 1, run(x)), (0, x))


def in_branch(run):
    return lambda x: tf.cond(tf.reduce_sum(x) > 0, lambda: run(x), lambda: x)


@pytest.mark.parametrize("inner", [in_loop, in_branch, tf.function])
def test_inner_graphs(inner):
    for jit, compiled_by in ((True, "caller"), (None, "itself")):
        assert context_in_graph(jit=jit, inner=inner).compiled_by == compiled_by


@pytest.mark.parametrize("choice", [True, False, None])
@pytest.mark.parametrize("jit", [True, None])
def test_gradients_restore_where_they_come_from(choice, jit):
    """And asking adds nothing to the graph."""
    kept = []

    def run(x):
        graph = tf.compat.v1.get_default_graph()
        before = len(graph.get_operations())
        with compiling(choice):
            execution_context(x)
            kept.append(capture_compiling())
        assert len(graph.get_operations()) == before
        return x

    tf.function(run, [KNOWN], jit_compile=jit, autograph=False).get_concrete_function()
    assert kept[-1] == Compiling(choice, bool(jit))
    with kept[-1].restored():
        assert capture_compiling() == kept[-1]
        assert (execution_context(tf.ones(3)).compiled_by == "caller") == bool(jit)
    assert capture_compiling() == Compiling()


def test_many_sizes_are_told_once(monkeypatch):
    """The first sizes are compiled. The warning says what happens to the next."""
    monkeypatch.setattr(backend, "_MOST_PROGRAMS", 1)
    monkeypatch.setattr(backend, "_programs", set())
    backend._warn_of_many.cache_clear()
    assert may_compile("a score", 1)
    with pytest.warns(UserWarning, match="more than 1 different sizes.*Pad to few sizes") as seen:
        assert not any([may_compile("a score", size) for size in (2, 3)])
    assert len(seen) == 1
    assert may_compile("a score", 1)
    with tf.Graph().as_default():
        assert may_compile("a score", 4)
    backend._warn_of_many.cache_clear()
    query, vector = np.ones((2, 1000, 1000), "float32"), np.ones(1000, "float32")
    with pytest.warns(UserWarning, match="Eager code has called attention"):
        additive_score(tf.constant(query[:1, :40]), tf.constant(query[:1]), tf.constant(vector))
