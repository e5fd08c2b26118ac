"""Shapes, dtypes and masks of a call, in all modes; training in `fit`."""

import keras
import numpy as np
import pytest
from keras import layers, ops, tree

from keras_attention import RecurrentScoringMixin
from tests.backends import BACKEND, dtypes
from tests.conformance.layers import compiled_cases, first_cases
from tests.helpers import assert_all_close, gradients, numpy


def flat_shapes(shapes):
    """A shape, or a list of them, nested for stacked cells."""
    if not any(isinstance(x, tuple | list) for x in shapes):
        return [tuple(shapes)]
    return [flat for shape in shapes for flat in flat_shapes(shape)]


@first_cases
def test_compute_output_shape(case):
    layer, tensors = case.built(), case.named(case.tensors(2)).values()
    shapes = tree.map_structure(lambda x: tuple(x.shape), layer(*tensors))
    assert layer.compute_output_shape(*case.named(case.shapes(2)).values()) == shapes
    count = len(case.scores)
    actual = tree.flatten(layer(*tensors, return_attention_scores=True))[-count:]
    assert [tuple(x.shape) for x in actual] == [(2, *shape) for shape in case.scores]


@first_cases
# The first policy finds inputs that are not cast, the second weights.
@pytest.mark.parametrize("policy", ["float64", "mixed_float16"])
@pytest.mark.each_value(slow=5)  # layers
def test_compute_output_spec(case, policy):
    """Called directly, where Keras casts no inputs, it returns the shapes and dtypes of a call."""
    layer, count = case.built(policy), len(case.scores)
    called = layer(*case.named(case.symbols()).values(), return_attention_scores=True)
    shapes = [tuple(x.shape) for x in tree.flatten(called)]
    unknown = layer.compute_output_shape(*case.named(case.shapes(None, known=False)).values())
    assert shapes[:-count] == flat_shapes(unknown)
    assert [*map(len, shapes[-count:])] == [1 + len(shape) for shape in case.scores]
    for dtype in ("float32", layer.compute_dtype):
        symbols = [
            keras.KerasTensor(x.shape, x.dtype if x.dtype == "int32" else dtype)
            for x in case.symbols()
        ]
        symbols = case.named(symbols).values()
        told = layer.compute_output_spec(*symbols, return_attention_scores=True)
        tree.assert_same_structure(told, called)
        for x, y in zip(tree.flatten(told), tree.flatten(called), strict=True):
            assert (x.shape, x.dtype) == (y.shape, y.dtype)


def levels(mask):
    """The mask of words, then the mask of groups with a word in them, and so on."""
    while mask.ndim > 1:
        yield mask
        mask = mask.any(axis=-1)


@first_cases
def test_symbolic_calls_and_masks_from_embeddings(case):
    """A functional model of unknown sizes is the layer called on arrays and explicit masks."""
    model = case.model()
    layer = next(x for x in model.layers if type(x) is case.layer)
    for batch, more in ((2, 0), (3, 5)):
        inputs = case.inputs(batch, more)
        embeddings = (x for x in model.layers if isinstance(x, layers.Embedding))
        tensors, masks, words = [], [], []
        for argument, x in zip(case.arguments, inputs, strict=True):
            embedded = argument.steps and argument.size
            tensors.append(numpy(next(embeddings)(x)) if embedded else x)
            if argument.steps and (not argument.size or case.mask_of(argument.name)):
                words.append(x != 0)
            masks.append((x != 0) if embedded and case.mask_of(argument.name) else None)
        tensors, masks = case.named(tensors).values(), case.masks(masks)
        expected = tree.flatten(layer(*tensors, **masks, return_attention_scores=True))
        result = model.predict_on_batch(inputs)
        assert_all_close(result, expected, "float32")
        every = [level for mask in words for level in levels(mask)]
        for weights in result[-len(case.scores) :]:
            # No two axes have the same length, so the length tells which one the weights go over.
            axis = case.masked_axis
            (valid,) = (x for x in every if x.shape[-1] == weights.shape[axis])
            wider = weights.ndim > valid.ndim
            hidden = np.expand_dims(~valid, 1 if axis == -1 else 2) if wider else ~valid
            assert not weights[np.broadcast_to(hidden, weights.shape)].any()


class Probe(layers.Layer):
    supports_masking = True

    def call(self, inputs, mask=None):
        self.masked = mask is not None
        return keras.ops.cast(mask, "int32") if self.masked else keras.ops.zeros((1,))


@first_cases
def test_the_output_is_masked_like(case):
    model = case.model(then=(probe := Probe()))
    assert probe.masked == (case.masked_like is not None)
    if probe.masked:
        inputs = case.inputs(5)
        like = inputs[[argument.name for argument in case.arguments].index(case.masked_like)]
        assert np.array_equal(model.predict_on_batch(inputs), like != 0)
        assert (like == 0).any()


@first_cases
@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
@pytest.mark.each_value(slow=5)  # layers
def test_mixed_precision(case, policy):
    mixed, plain = case.built(policy), case.built()
    # Switches, such as `linear` of a memory network, are boolean.
    assert {weight.dtype for weight in mixed.weights} <= {"float32", "bool"}
    tensors = case.named(case.tensors(2)).values()
    outputs, expected = (
        tree.flatten(layer(*tensors, return_attention_scores=True)) for layer in (mixed, plain)
    )
    # The state of an attention keeps its precision; it stands before the weights.
    kept = isinstance(getattr(mixed, "attention", None), RecurrentScoringMixin)
    kept = kept and case.options.get("return_state", False)
    names = zip(dtypes(*outputs), dtypes(*expected), strict=True)
    for n, (found, plain_name) in enumerate(names):
        # The number of the next step is an integer.
        as_is = plain_name == "int32" or (kept and n == len(outputs) - 2)
        assert found == (plain_name if as_is else policy.removeprefix("mixed_"))
    # Inputs and weights are rounded too, in layers that hold layers and in loops.
    assert_all_close(outputs, expected, policy, before=2.5)


def read_nothing(case, dtype, jit):
    """Outputs and gradients when the first sample has no memory and the second has one step."""
    layer, tensors, masks = case.built(dtype), case.tensors(3), [None] * len(case.arguments)
    for n, memory in enumerate(case.arguments):
        if memory.name.partition(" ")[0] == case.memory:
            mask = np.ones((3, *memory.steps), bool)
            mask[0], mask[1, 1:] = False, False
            # Padding masks ids, which have no gradients.
            masks[n] = mask if memory.size else None
            tensors[n] *= 1 if memory.size else mask
    floats = [n for n, argument in enumerate(case.arguments) if argument.size]

    def call(*inputs):
        given = dict(zip(floats, inputs, strict=True))
        named = case.named([given.get(n, x) for n, x in enumerate(tensors)]) | case.masks(masks)
        return tree.flatten(layer(**named, return_attention_scores=True))

    inputs = [ops.cast(x, layer.compute_dtype) for x in [tensors[n] for n in floats]]
    outputs, found = gradients(layer, call, inputs, jit)
    outputs, found = [numpy(x) for x in outputs], [numpy(x) for x in found]
    for weights in outputs[-len(case.scores) :]:
        assert not weights[0].any()
        assert weights[2].any()
    if case.reads_zeros:
        assert not outputs[0][0].any()
    assert outputs[0][2].any()
    assert all(np.isfinite(x).all() for x in (*outputs, *found))
    return outputs, found


HALVES = ["bfloat16", "float16", "mixed_bfloat16", "mixed_float16"]


@first_cases
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("jit", [False, True], ids=["eager", "jit"])
@pytest.mark.each_value(slow=5)  # layers
def test_nothing_valid_reads_zero_with_finite_gradients(case, dtype, jit):
    read_nothing(case, dtype, jit)


@compiled_cases
def test_jit_calculates_the_same(case):
    outputs, found = read_nothing(case, "float32", jit=False)
    fast_outputs, fast_found = read_nothing(case, "float32", jit=True)
    assert_all_close(fast_outputs, outputs, "float32")
    for x, y in zip(fast_found, found, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5)


def square_from_one(_, output):
    return keras.ops.mean(keras.ops.square(output - 1))


@compiled_cases
@pytest.mark.parametrize("jit", [False, True], ids=["graph", "jit"])
@pytest.mark.parametrize("static", [False, True], ids=["dynamic", "static"])
@pytest.mark.each_value(slow=5)  # layers
def test_training(case, jit, static):
    if jit and BACKEND == "torch":
        pytest.skip("XLA does not compile for PyTorch")
    model = case.model(batch=4 if static else None)
    training = keras.Model(model.inputs, model.outputs[0])
    training.compile(keras.optimizers.SGD(0.1), square_from_one, jit_compile=jit)
    for inputs in (case.inputs(4), case.inputs(3, more=2))[: 1 if static else 2]:
        before = [numpy(w) for w in training.trainable_weights]
        loss = training.train_on_batch(inputs, np.ones(len(inputs[0])))
        assert np.isfinite(loss)
        for old, new in zip(before, training.trainable_weights, strict=True):
            assert np.isfinite(numpy(new)).all(), new.path
            assert not np.array_equal(old, numpy(new)), new.path
