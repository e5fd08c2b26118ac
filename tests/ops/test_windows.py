"""Windows of positions, and the products that read only them."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention import backend
from keras_attention.ops import windows
from keras_attention.ops.windows import dispatch, fused, reference
from keras_attention.ops.windows.fused import FUSED
from keras_attention.ops.windows.gathered import GATHERED
from keras_attention.ops.windows.looped import LOOPED
from keras_attention.ops.windows.positions import sentence_span
from tests import fast, helpers
from tests.backends import dtypes, gradients_by, on_tensorflow, tensor
from tests.helpers import Weightless, assert_all_close, assert_close, normal, numpy

# Whether the memory is short matters to the last one only.
IMPLEMENTATIONS = {
    "gathered": (GATHERED, False),
    "looped": (LOOPED, False),
    "fused": (FUSED, False),
    "fused, short memory": (FUSED, True),
}


def test_sentence_span():
    mask = np.array([[0, 0, 1, 1, 1], [1, 1, 0, 0, 0], [0, 0, 0, 0, 0], [0, 1, 0, 1, 0]], bool)
    start, size = sentence_span(tensor(mask), 4, 5)
    assert numpy(start).tolist() == [2, 0, 0, 1]
    assert numpy(size).tolist() == [3, 2, 0, 3]
    start, size = sentence_span(tensor(np.arange(90)[None] >= 70), 1, 90)
    assert (numpy(start).tolist(), numpy(size).tolist()) == ([70], [20])
    start, size = sentence_span(None, 4, 5, "float64")
    assert numpy(start).tolist() == [0, 0, 0, 0]
    assert numpy(size).tolist() == [5, 5, 5, 5]
    assert dtypes(start, size) == ["float64", "float64"]


def inputs_of(name):
    inputs = [normal(1, 2, 3, 5 if name.endswith("sum") else 4), normal(2, 2, 7, 4)]
    return inputs + [normal(3, 4)] * name.endswith("tanh")


@pytest.mark.parametrize("jit", fast([False, True], [False]))
@pytest.mark.parametrize("widest", [0, 64])
@pytest.mark.parametrize("name", ["window_dot", "window_sum", "window_tanh"])
@pytest.mark.each_value
def test_products_in_windows(name, widest, jit, monkeypatch):
    monkeypatch.setattr(dispatch, "MAX_WIDTH", widest)
    position = np.random.default_rng(1).integers(0, 7, (2, 3, 5))

    def oracle(inputs, _=None):
        first, memory, *vector = inputs
        rows = memory[np.arange(2)[:, None, None], position]
        if name == "window_tanh":
            return [np.einsum("bqwu,u->bqw", np.tanh(first[:, :, None] + rows), *vector)]
        equation = {"window_dot": "bqd,bqwd->bqw", "window_sum": "bqw,bqwd->bqd"}[name]
        return [np.einsum(equation, first, rows)]

    places = tensor(position, "int32")
    call = lambda *given: [getattr(windows, name)(*given, places)]  # noqa: E731
    helpers.assert_gradients(Weightless, call, inputs_of(name), oracle, jit=jit)


@pytest.mark.parametrize(("products", "short"), IMPLEMENTATIONS.values(), ids=IMPLEMENTATIONS)
def test_every_implementation_equals_the_reference(products, short, monkeypatch):
    monkeypatch.setattr(fused, "_is_short", lambda *_: short)
    position = np.random.default_rng(1).integers(0, 7, (2, 3, 5))
    places = tensor(position, "int32")
    for name in ("dot", "tanh", "weighted_sum"):
        inputs = [tensor(x) for x in inputs_of(name)]
        expected = getattr(reference, name)(*inputs, places)
        assert_close(getattr(products, name)(*inputs, places), numpy(expected))
    sizes = (2, 3, 5), (2, 3, 4), (2, 7, 4), (4,)
    weights, query, key, vector = (normal(n, *size) for n, size in enumerate(sizes, 1))
    hidden = np.tanh(query[:, :, None] + key[np.arange(2)[:, None, None], position])
    slopes = weights[..., None] * vector * (1 - hidden**2)
    scattered, grad_key = np.zeros((2, 2, 7, 4))
    for b, i, w in np.ndindex(position.shape):
        scattered[b, position[b, i, w]] += weights[b, i, w] * query[b, i]
        grad_key[b, position[b, i, w]] += slopes[b, i, w]
    found = products.scatter(tensor(weights), tensor(query), places, tensor(key))
    assert_close(found, scattered)
    inputs = [tensor(x) for x in (query, key, vector)]
    found = products.tanh_gradient(*inputs, places, tensor(weights))
    by_vector = np.einsum("bqw,bqwu->u", weights, hidden)
    assert_all_close(found, (slopes.sum(2), grad_key, by_vector))


@on_tensorflow
@pytest.mark.parametrize("name", fast(["window_dot", "window_sum", "window_tanh"], ["window_dot"]))
def test_a_graph_for_a_gpu_has_no_loop(name, monkeypatch):
    import tensorflow as tf

    monkeypatch.setattr(backend.tensorflow, "_device", lambda: "gpu")
    position = tf.random.stateless_uniform((2, 3, 5), (1, 2), 0, 7, "int32")
    inputs = [tensor(x) for x in inputs_of(name)]

    def both(*inputs):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            outputs = getattr(windows, name)(*inputs, position)
        return outputs, tape.gradient(outputs, inputs)

    found = tf.function(both, jit_compile=True)(*inputs)
    program = tf.function(both, jit_compile=True).experimental_get_compiler_ir(*inputs)
    assert "while(" not in program(stage="hlo")
    monkeypatch.undo()
    expected = tf.function(both, jit_compile=True)(*inputs)
    assert_all_close(*map(keras.tree.flatten, (found, expected)))


@pytest.mark.parametrize("jit", [False, True])
def test_many_queries_of_one_place_in_half_precision(jit):
    """2,000 of them add up to 2,000, although bfloat16 counts only to 256."""
    position = ops.zeros((1, 2000, 1), "int32")
    query, value = ops.ones((1, 2000, 3), "bfloat16"), ops.ones((1, 4, 3), "bfloat16")

    def run(value):
        outputs = windows.window_dot(query, value, position)
        return ops.sum(ops.cast(outputs, "float32")), outputs

    _, (gradient,) = gradients_by(run, [value], [], jit)
    assert numpy(gradient)[0, 0].tolist() == [2000] * 3


@pytest.mark.parametrize("jit", [False, True])
def test_products_in_windows_are_summed_in_float32(jit):
    """They are rounded once, although half precision would round every term."""
    query, value, weights, mix = (
        normal(n, *shape, dtype="bfloat16")
        for n, shape in enumerate([(2, 3, 37), (2, 7, 37), (2, 3, 5), (2, 3, 37)])
    )
    position = np.random.default_rng(4).integers(0, 7, (2, 3, 5))
    rows = np.stack([one[places] for one, places in zip(value, position, strict=True)])
    places = tensor(position, "int32")

    def run(weights, value):
        outputs = windows.window_sum(weights, value, places)
        found = windows.window_dot(ops.cast(query, "bfloat16"), value, places)
        return ops.sum(ops.cast(mix, "float32") * ops.cast(outputs, "float32")), found

    inputs = [ops.cast(x, "bfloat16") for x in (weights, value)]
    found, (of_weights, _) = gradients_by(run, inputs, [], jit)
    # No more than one unit in the last place, however much of the sum cancels.
    assert_close(found, np.einsum("bqd,bqwd->bqw", query, rows), "bfloat16", before=1e-5)
    assert_close(of_weights, np.einsum("bqd,bqwd->bqw", mix, rows), "bfloat16", before=1e-5)
