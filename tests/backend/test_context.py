"""Where code runs: what a place says, and that asking leaves no trace."""

import numpy as np
import pytest
import tensorflow as tf

from keras_attention.backend import context
from keras_attention.backend.context import Compiling, Place, compiling
from keras_attention.ops import additive_score

KNOWN, UNKNOWN = tf.TensorSpec((2, 3)), tf.TensorSpec((None, 3))


def place_in_graph(spec=KNOWN, jit=None, choice=None, inner=lambda run: run):
    """The place of a function in a graph."""
    places = []

    def run(x):
        with compiling(choice):
            places.append(Place.of(x))
        return x

    tf.function(inner(run), [spec], jit_compile=jit, autograph=False).get_concrete_function()
    return places[-1]


def test_eager():
    x = tf.ones((2, 3))
    assert Place.of(x) == Place("tensorflow", "cpu", graph=False, fixed=False, xla="alone")
    with compiling(False):
        assert Place.of(x) == Place("tensorflow", "cpu", graph=False, fixed=False, xla="nowhere")


@pytest.mark.parametrize(
    ("options", "fixed", "xla"),
    [
        ({}, True, "alone"),
        ({"spec": UNKNOWN}, False, "nowhere"),
        ({"spec": UNKNOWN, "choice": True}, False, "alone"),
        ({"choice": False}, True, "nowhere"),
        ({"jit": False}, True, "alone"),
        ({"jit": True}, True, "inside"),
        ({"jit": True, "spec": UNKNOWN, "choice": False}, False, "inside"),
    ],
)
@pytest.mark.each_value
def test_graphs(options, fixed, xla):
    expected = Place("tensorflow", "cpu", graph=True, fixed=fixed, xla=xla)
    assert place_in_graph(**options) == expected


def in_loop(run):
    return lambda x: tf.while_loop(lambda n, x: n < 2, lambda n, x: (n + 1, run(x)), (0, x))


def in_branch(run):
    return lambda x: tf.cond(tf.reduce_sum(x) > 0, lambda: run(x), lambda: x)


@pytest.mark.parametrize("inner", [in_loop, in_branch, tf.function])
@pytest.mark.parametrize(("jit", "xla"), [(True, "inside"), (None, "alone")])
@pytest.mark.each_value
def test_inner_graphs(inner, jit, xla):
    assert place_in_graph(jit=jit, inner=inner).xla == xla


@pytest.mark.parametrize("jit", [True, None])
def test_asking_adds_nothing_to_the_graph(jit):
    def run(x):
        graph = tf.compat.v1.get_default_graph()
        before = len(graph.get_operations())
        Place.of(x)
        Compiling.here()
        assert len(graph.get_operations()) == before
        return x

    tf.function(run, [KNOWN], jit_compile=jit, autograph=False).get_concrete_function()


@pytest.mark.parametrize("choice", [True, False, None])
@pytest.mark.parametrize("jit", [True, None])
@pytest.mark.each_value
def test_gradients_restore_where_they_come_from(choice, jit):
    kept = []

    def run(x):
        with compiling(choice):
            kept.append(Compiling.here())
        return x

    tf.function(run, [KNOWN], jit_compile=jit, autograph=False).get_concrete_function()
    assert kept[-1] == Compiling(choice, bool(jit))
    with kept[-1].restored():
        assert Compiling.here() == kept[-1]
        assert (Place.of(tf.ones(3)).xla == "inside") == bool(jit)
    assert Compiling.here() == Compiling()


def test_many_sizes_are_told_once(monkeypatch):
    """The first sizes are compiled. The warning says what happens to the next."""
    monkeypatch.setattr(context, "MOST_PROGRAMS", 1)
    monkeypatch.setattr(context, "_programs", set())
    context._warn_of_many.cache_clear()
    place = Place.of(tf.ones(3))
    assert place.may_compile("a score", 1)
    with pytest.warns(UserWarning, match="more than 1 different sizes.*Pad to few sizes") as seen:
        assert not any([place.may_compile("a score", size) for size in (2, 3)])
    assert len(seen) == 1
    assert place.may_compile("a score", 1)
    graph = place._replace(graph=True)
    assert graph.may_compile("a score", 4)


def test_a_score_warns(monkeypatch):
    monkeypatch.setattr(context, "MOST_PROGRAMS", 0)
    monkeypatch.setattr(context, "_programs", set())
    context._warn_of_many.cache_clear()
    query, vector = np.ones((2, 1000, 1000), "float32"), np.ones(1000, "float32")
    with pytest.warns(UserWarning, match="Eager code has called attention"):
        additive_score(tf.constant(query[:1, :40]), tf.constant(query[:1]), tf.constant(vector))
