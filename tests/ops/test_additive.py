"""The additive score: every implementation of it, wherever it runs, against loops in float64."""

from unittest import mock

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_attention import BahdanauAttention
from keras_attention.backend import tensorflow as backend
from keras_attention.ops import additive_score
from keras_attention.ops.additive import dense, dispatch, fused, query_tiled
from keras_attention.ops.additive import feature_blocked as blocked
from keras_attention.ops.additive.feature_blocked import BLOCK, LARGEST_SLICE
from keras_attention.ops.padding import round_up_length
from tests import fast
from tests.helpers import assert_close, numpy
from tests.ops.scores import SIZES, assert_exact, both_with, make_inputs, oracle, shapes_of

IMPLEMENTATIONS = {
    "fused": (fused.fused_score, fused.fused_gradient),
    "dense": (dense.dense_score, dense.dense_gradient),
    "feature-blocked": (blocked.feature_blocked_score, blocked.feature_blocked_gradient),
    "query-tiled": (query_tiled.query_tiled_score, query_tiled.query_tiled_gradient),
}
every_implementation = pytest.mark.parametrize("name", IMPLEMENTATIONS)
both = both_with(None)


def all_of(name, inputs):
    score, gradient = IMPLEMENTATIONS[name]
    tensors = [tf.convert_to_tensor(x) for x in inputs]
    return [score(*tensors[:3]), *gradient(*tensors)]


@every_implementation
@settings(max_examples=6, deadline=None)
@given(
    sizes=st.tuples(*(st.integers(1, n) for n in (3, 40, 40, 70)))
    | st.tuples(*(st.integers(n, 2 * n) for n in (2, 20, 20, 35))),
    deviation=st.sampled_from([0.1, 1.0, 10.0, 100.0]),
    seed=st.integers(0, 999),
    block=st.sampled_from([2**13, 2**16, 2**20]),
    slices=st.sampled_from([0, LARGEST_SLICE]),
)
def test_every_implementation_is_exact(name, sizes, deviation, seed, block, slices):
    inputs = make_inputs(sizes, deviation, seed)
    with pytest.MonkeyPatch.context() as patch:
        # Small blocks, so that there is more than one.
        patch.setattr(query_tiled, "TILE", block)
        patch.setattr(query_tiled, "WHOLE", block)
        patch.setattr(blocked, "LARGEST_SLICE", slices)
        patch.setattr(query_tiled, "SMALLEST_SAMPLE", 0)
        assert_exact(all_of(name, inputs), inputs, few=min(sizes[1:]) < 20)


@every_implementation
@pytest.mark.parametrize("small", [False, True], ids=["slices, one block", "groups, blocks"])
def test_every_implementation_equals_the_loops(name, small, monkeypatch):
    """In float64, where only the order of the sums differs."""
    for constant in ("TILE", "WHOLE", "SMALLEST_SAMPLE"):
        monkeypatch.setattr(query_tiled, constant, 20 if small else 2**20)
    monkeypatch.setattr(blocked, "LARGEST_SLICE", 0 if small else LARGEST_SLICE)
    for sizes in ((2, 5, 7, 37), (2, 1, 5, 3)):
        inputs = make_inputs(sizes, dtype="float64")
        for x, expected in zip(all_of(name, inputs), oracle(*inputs), strict=True):
            np.testing.assert_allclose(numpy(x), expected, rtol=0, atol=1e-12)


@every_implementation
def test_far_values(name):
    """Large of both signs, which may cancel."""
    for shift in np.float32([-1e30, -1e4, -50, 21, 31, 44, 50, 1e4, 1e30]):
        inputs = query, key, _, _ = make_inputs((2, 5, 7, 33), 3.0)
        query[0] += shift
        key[0] -= shift
        query[1, 2] += shift
        for x, wanted in zip(all_of(name, inputs), oracle(*inputs), strict=True):
            np.testing.assert_allclose(numpy(x), wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())


def test_a_graph_for_a_gpu_gets_its_implementation(monkeypatch):
    """Score and gradient equal the equation, and each of the two passes has its own numbers."""
    inputs = make_inputs(SIZES)

    def maxima():
        compiled = tf.function(both_with(None), jit_compile=True)
        program = compiled.experimental_get_compiler_ir(*map(tf.constant, inputs))
        assert_exact(compiled(*map(tf.constant, inputs)), inputs)
        return program(stage="optimized_hlo").count(" maximum(")

    monkeypatch.setattr(backend, "_device", lambda: "gpu")
    assert maxima() == 2
    monkeypatch.undo()
    assert maxima() == 0


@pytest.mark.parametrize("length", [1, 3, 4, 5, 15, *(2 * BLOCK + n for n in (-1, 0, 1)), 71, 96])
@pytest.mark.parametrize("slices", [0, LARGEST_SLICE])
@pytest.mark.each_value
def test_groups_of_every_size(length, slices, monkeypatch):
    monkeypatch.setattr(blocked, "LARGEST_SLICE", slices)
    for sizes in ((1, 3, length, 5), (1, length, 3, 5), (1, 3, 5, length)):
        inputs = make_inputs(sizes)
        assert_exact(all_of("feature-blocked", inputs), inputs, few=True)


in_training, with_nothing_compiled = both_with(True), both_with(False)
UNKNOWN = [tf.TensorSpec(shape) for shape in shapes_of(None, None, None, SIZES[3])]
# The function of each context, and what compiles the score.
CONTEXTS = {
    "eager": (both, "itself"),
    "graph": (tf.function(both), "itself"),
    "compiled": (tf.function(both, jit_compile=True), "caller"),
    "unknown sizes": (tf.function(both, UNKNOWN), None),
    "unknown sizes in training": (tf.function(in_training, UNKNOWN), "itself"),
    "unknown sizes, compiled": (tf.function(both, UNKNOWN, jit_compile=True), "caller"),
    "not compiled": (with_nothing_compiled, None),
    "graph, not compiled": (tf.function(with_nothing_compiled), None),
}


@pytest.fixture
def large(monkeypatch):
    monkeypatch.setattr(dispatch, "SMALLEST", {"tensorflow": 1, "jax": 1})
    monkeypatch.setattr(dispatch, "SMALL_EAGER", 0)
    monkeypatch.setattr(query_tiled, "WHOLE", 1)
    monkeypatch.setattr(query_tiled, "SMALLEST_SAMPLE", 1)
    monkeypatch.setattr(query_tiled, "TILE", 10_000)


@pytest.fixture
def taken(monkeypatch):
    """What compiles each score and gradient that a test computes."""
    compiled_by, run = [], dispatch.run

    def spy(context, *others):
        compiled_by.append(context.compiled_by)
        return run(context, *others)

    monkeypatch.setattr(dispatch, "run", spy)
    return compiled_by


@pytest.mark.parametrize("name", fast(CONTEXTS, ["eager", "unknown sizes", "not compiled"]))
def test_every_context_is_exact(name, large, taken):
    function, expected = CONTEXTS[name]
    inputs = make_inputs(SIZES)
    assert_exact(function(*[tf.constant(x) for x in inputs]), inputs)
    assert taken == [expected] * 2


@pytest.mark.slow
@pytest.mark.parametrize("concrete", [False, True])
@pytest.mark.each_value
def test_a_tape_outside_of_compiled_code(concrete, large, taken):
    """TensorFlow cannot tell there that it compiles the gradient too, so the score remembers."""
    score = tf.function(additive_score, UNKNOWN[:3], jit_compile=True)
    score = score.get_concrete_function() if concrete else score

    def run(*inputs):
        *tensors, upstream = inputs
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            scores = score(*tensors)
        return scores, *tape.gradient(scores, tensors, upstream)

    inputs = make_inputs(SIZES)
    run = run if concrete else tf.function(run, UNKNOWN)
    assert_exact(run(*[tf.constant(x) for x in inputs]), inputs)
    assert set(taken) == {"caller"}


@every_implementation
def test_nan_stays_where_it_is_and_nothing_may_be_compared(name):
    query, key, vector, _ = make_inputs((1, 5, 7, 33))
    key[0, 3, 2] = np.nan
    scores = numpy(IMPLEMENTATIONS[name][0](*[tf.constant(x) for x in (query, key, vector)]))
    assert np.isnan(scores).tolist() == [[[j == 3 for j in range(7)]] * 5]
    for sizes in ((0, 3, 5, 7), (2, 0, 5, 7), (2, 3, 0, 7)):
        assert_exact(all_of(name, make_inputs(sizes)), make_inputs(sizes), few=True)


def test_lengths_are_rounded_up_to_few():
    few = [0, 1, *range(32, 256, 32), *range(256, 512, 64), *range(512, 1024, 128)]
    few += [size * 2**n for n in range(1, 12) for size in range(512, 1024, 128)]
    sizes = [*range(3000), *(m + n for m in few if m >= 3000 for n in (-1, 0, 1))]
    rounded = [round_up_length(n) for n in sizes]
    assert rounded == [min(m for m in [*few, 2**21] if m >= n) for n in sizes]
    of_tensors = tf.function(lambda x: tf.map_fn(round_up_length, x))
    assert rounded == numpy(of_tensors(tf.constant(sizes))).tolist()
    assert all(m <= max(1.25 * n, n + 31) for n, m in zip(sizes, rounded, strict=True))


def test_lengths_are_compiled_a_few_times_only(large, monkeypatch):
    shapes, run = set(), dispatch.run_compiled

    def spy(function, *tensors):
        shapes.add((function, *(tuple(x.shape) for x in tensors)))
        return run(function, *tensors)

    monkeypatch.setattr(dispatch, "run_compiled", spy)
    for length in (2, 17, 31, 40):
        inputs = make_inputs((1, length, length, 8))
        assert_exact(both(*[tf.constant(x) for x in inputs]), inputs, few=True)
    assert len(shapes) == 2 * 2


def test_eager_calls_compile_a_limited_number_of_programs(monkeypatch):
    """TensorFlow never frees a program, so later sizes run as ordinary operations."""
    counting = mock.Mock(side_effect=tf.function)
    monkeypatch.setattr(tf, "function", counting)
    monkeypatch.setattr(backend, "_programs", set())
    monkeypatch.setattr(backend, "_MOST_PROGRAMS", 2)
    backend._traced.cache_clear()
    monkeypatch.setitem(dispatch.SMALLEST, "tensorflow", 0)
    monkeypatch.setattr(dispatch, "SMALL_EAGER", 0)
    for steps in (40, 80, 120, 160, 40, 120):
        inputs = make_inputs((1, steps, 37, 3), seed=steps)
        with tf.GradientTape() as tape:
            given = [tf.constant(x) for x in inputs[:3]]
            tape.watch(given)
            scores = additive_score(*given)
        assert_exact([scores, *tape.gradient(scores, given, inputs[3])], inputs)
    assert sum(x.kwargs.get("jit_compile") is True for x in counting.call_args_list) == 2


def test_exported_graphs_hold_ordinary_operations(large):
    model = attention_model()
    for training in (None, False, True):
        shapes = [tf.TensorSpec((None, None, size)) for size in (5, 7)]
        graph = tf.function(lambda *x, t=training: model(x, training=t), shapes)
        functions = graph.get_concrete_function().graph.as_graph_def().library.function
        assert any(x.attr["_XlaMustCompile"].b for x in functions) == bool(training)


def attention_model():
    query, memory = keras.Input((None, 5)), keras.Input((None, 7))
    return keras.Model([query, memory], BahdanauAttention(64)(query, memory))


@pytest.mark.slow
def test_fit_compiles_score_and_gradient(large, taken):
    model = attention_model()
    model.compile("sgd", "mse", jit_compile=False)
    x = [np.ones((5, 33, n), "float32") for n in (5, 7)]
    assert set(taken) == {None}  # Keras has found out the shapes of the model
    taken.clear()
    model.fit(x, x[1], batch_size=2, verbose=0)
    assert set(taken) == {"itself"}


def test_second_derivatives(large):
    inputs = [tf.constant(x) for x in make_inputs((2, 3, 5, 7), dtype="float64")]

    def penalty(score):
        with tf.GradientTape() as outer:
            outer.watch(inputs)
            with tf.GradientTape() as tape:
                tape.watch(inputs[:3])
                found = score(*inputs[:3])
            first = tape.gradient(found, inputs[:3], inputs[3])
            total = tf.add_n([tf.reduce_sum(tf.sin(x)) for x in first])
        return outer.gradient(total, inputs)

    expected = penalty(lambda q, k, v: tf.reduce_sum(v * tf.tanh(q[:, :, None] + k[:, None]), -1))
    for x, y in zip(penalty(additive_score), expected, strict=True):
        np.testing.assert_allclose(numpy(x), numpy(y), rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", fast(["float16", "bfloat16", "float64"], ["bfloat16"]))
def test_other_dtypes(dtype, large):
    inputs = [tf.cast(x, dtype) for x in make_inputs(SIZES)]
    found = both(*inputs)
    assert {x.dtype for x in found} == {inputs[0].dtype}
    expected = oracle(*[numpy(x) for x in inputs])
    for x, y in zip(found, expected, strict=True):
        # The sums are at least in float32, so that only the results are rounded.
        scale = np.abs(y).max()
        assert_close(numpy(x) / scale, y / scale, dtype, times=0.1, before=0.1)
