"""The cells of an image as a memory: positions, masks of padded images, unknown sizes."""

import math

import keras
import numpy as np
import pytest
from keras import layers

from keras_attention import BahdanauAttention
from keras_attention.seq2seq import ImageEncoder
from tests import fast
from tests.backends import BACKEND
from tests.helpers import assert_close, assert_gradients, normal, numpy, randomize, refusals
from tests.seq2seq.cases import TARGETS, seq2seq

B, Y, X, C, D = 3, 5, 7, 2, 8
STRIDE = 2, 3
# The valid pixels of each image, its rows and its columns.
SIZES = (5, 7), (3, 4), (1, 1)
POSITIONS = None, "sinusoidal", (2, 3)


@keras.saving.register_keras_serializable(package="tests")
class Sampled(layers.Layer):
    """Cells of one pixel each, so that no cell sees the padding of another."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.dense = layers.Dense(D, dtype=self.dtype_policy)

    def build(self, shape):
        self.dense.build(shape)

    def call(self, image):
        return self.dense(image[:, :: STRIDE[0], :: STRIDE[1]])


class GatedAttention(BahdanauAttention):
    def build(self, query_shape, value_shape=None, key_shape=None):
        super().build(query_shape, value_shape, key_shape)
        self.gate = self.add_weight((query_shape[-1], 1), name="gate")
        self.gate_bias = self.add_weight((1,), "zeros", name="gate_bias")

    def combine(self, query, context):
        product = self.project(query, self.gate)
        return keras.ops.sigmoid(product + self.gate_bias) * context


def encoder(positions=None, dtype="float64"):
    return ImageEncoder(Sampled(dtype=dtype), positions, STRIDE, dtype=dtype)


def padded(dtype="float64"):
    """Images with NaN in their padding, and their mask."""
    images, mask = normal(1, B, Y, X, C, dtype=dtype), np.zeros((B, Y, X), bool)
    for one, (rows, columns) in zip(mask, SIZES, strict=True):
        one[:rows, :columns] = True
    images[~mask] = np.nan
    return images, mask


def by_loops(images, weights, positions):
    *tables, kernel, bias = weights
    memory = []
    for image in images:
        cells = []
        for i in range(-(-image.shape[0] // STRIDE[0])):
            for j in range(-(-image.shape[1] // STRIDE[1])):
                cell = image[i * STRIDE[0], j * STRIDE[1]] @ kernel + bias
                if positions == "sinusoidal":
                    for n in range(D // 4):
                        rate = 10_000 ** (n / (D // 4))
                        cell[n] += math.sin(i / rate)
                        cell[n + D // 4] += math.cos(i / rate)
                        cell[n + D // 2] += math.sin(j / rate)
                        cell[n + 3 * D // 4] += math.cos(j / rate)
                elif positions:
                    rows, columns = tables
                    cell += rows[min(i, len(rows) - 1)] + columns[min(j, len(columns) - 1)]
                cells.append(cell)
        memory.append(cells)
    return np.array(memory)


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("size", [(Y, X), (1, 1)])
def test_the_memory_and_its_gradients_equal_loops(positions, size):
    layer, images = encoder(positions), normal(2, B, *size, C)
    layer.build(images.shape)
    randomize(layer)
    memory, state, mask = layer(images)
    assert state is mask is None
    expected = by_loops(images, [numpy(x) for x in layer.weights], positions)
    np.testing.assert_allclose(numpy(memory), expected, rtol=0, atol=1e-12)
    oracle = lambda x, weights: [by_loops(x[0], weights, positions)]  # noqa: E731
    assert_gradients(layer, lambda x: [layer(x)[0]], [images], oracle)


@pytest.mark.parametrize("positions", POSITIONS)
def test_padding_is_masked_and_leaks_nothing(positions):
    """Padded images have the cells of images that are cut, and a mask of these."""
    layer, (images, mask) = encoder(positions), padded()
    memory, _, cells = layer((images, mask))
    cells = keras.ops.convert_to_numpy(cells)
    assert np.isfinite(numpy(memory)).all()
    assert cells.shape == (B, 3 * 3)
    for n, (rows, columns) in enumerate(SIZES):
        alone, _, none = layer(images[n : n + 1, :rows, :columns])
        assert none is None
        assert_close(numpy(memory)[n][cells[n]], numpy(alone)[0])


def test_a_model_with_padded_images_is_that_of_cut_ones():
    model, (images, mask) = seq2seq(encoder(dtype="float32")), padded("float32")
    logits = numpy(randomize_called(model, (images, mask))(((images, mask), TARGETS)))
    for n, (rows, columns) in enumerate(SIZES):
        cut = tuple(x[n : n + 1, :rows, :columns] for x in (images, mask))
        alone = model((cut, TARGETS[n : n + 1]))
        valid = TARGETS[n] != 0
        assert_close(logits[n][valid], numpy(alone)[0][valid], "float32", before=50)


def randomize_called(model, source):
    model((source, TARGETS))
    return randomize(model)


FEATURES = ["sequential", "layer", "fixed channels"]


@pytest.mark.parametrize("features", fast(FEATURES, []))
def test_files_and_exports_take_images_of_any_size(features, reloaded, served):
    convolution = layers.Conv2D(D, 3, STRIDE, padding="same", activation="relu")
    inner = {
        "layer": lambda: convolution,
        "sequential": lambda: keras.Sequential([convolution]),
        "fixed channels": lambda: keras.Sequential([keras.Input((None, None, C)), convolution]),
    }[features]()
    model, source = seq2seq(ImageEncoder(inner, "sinusoidal", STRIDE)), padded("float32")
    randomize_called(model, source)
    found, loaded = model.generate(source, 4), reloaded(model)
    assert found.weights.shape == (B, 4, 3 * 3)
    larger = [
        np.pad(x, [(0, 0), (0, 2), (0, 1), (0, 0)][: x.ndim], constant_values=fill)
        for x, fill in zip(source, (np.nan, False), strict=True)
    ]
    for images in (source, tuple(larger)):
        expected = model.generate(images, 4)
        assert np.isfinite(expected.scores).all()
        assert np.array_equal(loaded.generate(images, 4).tokens, expected.tokens)
    if BACKEND == "tensorflow":
        serve = served(loaded, 4)
        sizes = {name: x.shape.as_list() for name, x in serve.inputs.items()}
        assert sizes == {"image": [None, None, None, C], "mask": [None, None, None]}
        out = serve(image=larger[0], mask=larger[1])
        assert np.array_equal(out["tokens"], expected.tokens)
        np.testing.assert_allclose(out["weights"], expected.weights, atol=1e-5)


def test_integer_pixels_and_sizes_that_features_fix():
    fixed = keras.Sequential([keras.Input((4, 6, 1)), layers.Reshape((2, 12, 1)), layers.Dense(8)])
    layer = ImageEncoder(fixed)
    assert layer(np.ones((2, 4, 6, 1), "uint8"))[0].shape == (2, 24, 8)
    assert [x.shape for x in layer.inputs] == [(None, 4, 6, 1)]


def test_a_gate_on_the_context():
    """The pattern of docs/mechanisms/images.md: a scalar from the query."""
    layer, query, value = GatedAttention(5, dtype="float64"), normal(3, B, 2, X), normal(4, B, Y, D)
    context, weights = layer(query, value, return_attention_scores=True)
    randomize(layer)
    context, weights = (numpy(x) for x in layer(query, value, return_attention_scores=True))
    gate, bias = numpy(layer.gate), numpy(layer.gate_bias)
    for b in range(B):
        for t in range(2):
            beta = 1 / (1 + math.exp(-(sum(query[b, t] * gate[:, 0]) + bias[0])))
            expected = beta * sum(weights[b, t, k] * value[b, k] for k in range(Y))
            np.testing.assert_allclose(context[b, t], expected, rtol=0, atol=1e-12)


IMAGES, MASK = padded("float32")
test_refusals = refusals(
    (lambda: ImageEncoder(3), "`features` must be a layer or a model; received 3"),
    (lambda: ImageEncoder(Sampled(), "2d"),
     'None, "sinusoidal" or a pair of integers, (rows, columns); received \'2d\''),
    (lambda: ImageEncoder(Sampled(), (0, 3)), "`positions` must be a positive integer"),
    (lambda: ImageEncoder(Sampled(), stride=2), "`stride` must be None or a pair of integers"),
    (lambda: ImageEncoder(Sampled())(IMAGES[0]), "`image` must be", "(batch, rows, columns,"),
    (lambda: ImageEncoder(Sampled())((IMAGES, MASK)), "a mask needs `stride`"),
    (lambda: encoder(dtype="float32")((IMAGES, MASK[:, 1:])), "`image` has 5 rows"),
    (lambda: ImageEncoder(Sampled(), stride=(2, 2))((IMAGES, MASK)), "a stride of as many"),
    (lambda: ImageEncoder(layers.Flatten())(IMAGES), "cells (batch, rows, columns, features)"),
    (lambda: ImageEncoder(layers.Dense(6), "sinusoidal")(IMAGES), "4 must divide"),
)  # fmt: skip
