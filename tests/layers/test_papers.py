"""Pooling, attention flow, target attention, hops and RETAIN against loops of their papers."""

import functools

import numpy as np
import pytest
from keras import ops

from tests.backends import dtypes, tensor
from tests.helpers import (
    DTYPES,
    B,
    assert_all_close,
    assert_close,
    assert_dropout_is_for_training,
    assert_gradients,
    assert_masking_is_truncating,
    gradients,
    numpy,
)
from tests.layers.papers import PAPERS, run

every_paper = pytest.mark.parametrize("name", PAPERS)
JIT = "pooling, rows", "flow, both", "target, none", "hop, no softmax"
LOOPED = [name for name, case in PAPERS.items() if not case.known]
MASKED = [(name, mask) for name in LOOPED for mask in PAPERS[name].masks]


@every_paper
@pytest.mark.parametrize("dtype", DTYPES)
def test_equals_the_paper(name, dtype):
    case = PAPERS[name]
    layer, inputs = case.built(dtype, scale=1.0 if name[0] in "pf" else 0.5), case.inputs(dtype)
    masks, tensors = case.all_masks(), [tensor(x, dtype) for x in inputs]
    for given in ({}, masks, *([{x: masks[x]} for x in masks] if len(masks) > 1 else ())):
        result = run(layer, *tensors, **given)
        assert dtypes(*result) == [dtype] * len(result)
        expected = case.paper(layer, inputs, **given)
        assert_all_close(result, expected, dtype, **case.tolerance)
        assert_close(layer(*tensors, **given), numpy(result[0]), dtype)


@pytest.mark.parametrize(("name", "jit"), [
    *((name, False) for name in PAPERS),
    *((name, True) for name in JIT),
    pytest.param("retain", True, marks=pytest.mark.slow),
])  # fmt: skip
def test_gradients_are_those_of_the_paper(name, jit):
    case = PAPERS[name]
    layer, masks = case.built(), case.all_masks()

    def oracle(inputs, weights):
        return case.paper(layer, inputs, weights, **masks)

    assert_gradients(layer, lambda *x: run(layer, *x, **masks), case.inputs(), oracle, jit=jit)


@pytest.mark.parametrize(("name", "mask"), MASKED)
def test_masking_is_truncating_whatever_the_padding_holds(name, mask):
    case = PAPERS[name]
    layer, (_, hidden) = case.built(), case.masks[mask]
    steps = case.inputs()[hidden[0]].shape[1]

    def call(*inputs):
        return run(layer, *inputs[:-1], **{mask: inputs[-1]})

    assert_masking_is_truncating(layer, call, case.inputs(), hidden, [0, 2, steps])


@every_paper
@pytest.mark.parametrize(("dtype", "jit"), [("float64", False), ("mixed_float16", True)])
def test_where_nothing_is_valid_the_weights_are_zero(name, dtype, jit):
    """Sample n has no valid step of the mask n, where its inputs are NaN; the last has all."""
    case = PAPERS[name]
    batch = len(case.masks) + 1
    layer, inputs = case.built(dtype), case.inputs("bfloat16", batch)
    masks, clean = {}, [np.array(x) for x in inputs]
    for n, (mask, (_, hidden)) in enumerate(case.masks.items()):
        masks[mask] = np.ones((batch, inputs[hidden[0]].shape[1]), bool)
        masks[mask][n] = False
        for i in hidden:
            inputs[i][n] = np.nan

    def call(*x):
        return run(layer, *x, **masks)

    tensors = [ops.cast(x, layer.compute_dtype) for x in inputs]
    outputs, found = gradients(layer, call, tensors, jit and name in JIT)
    found = [numpy(x) for x in found]
    assert all(np.isfinite(x).all() for x in (*map(numpy, outputs), *found))
    for weights in outputs[1:]:
        assert not numpy(weights)[:-1].any()
        assert numpy(weights)[-1].any()
    for n, (_, hidden) in enumerate(case.masks.values()):
        assert not any(found[i][n].any() for i in hidden)
    if dtype == "float64":
        assert_all_close(outputs, case.paper(layer, clean, **masks))


@pytest.mark.parametrize("name", LOOPED)
def test_no_steps_and_no_samples(name):
    case = PAPERS[name]
    layer, given = case.built(), case.inputs()
    full = [tuple(x.shape) for x in run(layer, *given)]
    for mask, (_, hidden) in case.masks.items():
        steps = given[hidden[0]].shape[1]
        for batch, length, masked in ((B, 0, False), (B, 0, True), (0, steps, True)):
            inputs = [x[:batch, :length] if n in hidden else x[:batch] for n, x in enumerate(given)]
            masks = {mask: np.ones((batch, length), bool)} if masked else {}
            outputs, found = gradients(layer, lambda *x, m=masks: run(layer, *x, **m), inputs)
            wanted = [(batch, *(length if n == steps else n for n in x[1:])) for x in full]
            assert [tuple(x.shape) for x in outputs] == wanted
            assert all(np.isfinite(numpy(x)).all() for x in found)
            if batch:
                assert_all_close(outputs, case.paper(layer, inputs, **masks))


@pytest.mark.parametrize("name", ["pooling, softmax", "flow, both", "target, softmax", "hop"])
@pytest.mark.parametrize("dtype", ["float32", "mixed_float16"])
def test_dropout_is_for_training_and_the_weights_are_those_before_it(name, dtype):
    make = functools.partial(PAPERS[name].built, dtype, dropout=0.4, seed=3)
    assert_dropout_is_for_training(make, [tensor(x, "float32") for x in PAPERS[name].inputs()])
