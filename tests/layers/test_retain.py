"""The exact decomposition of RETAIN, and its limits."""

import keras
import numpy as np
import pytest

from keras_attention import RETAIN
from tests import helpers
from tests.backends import on_tensorflow
from tests.helpers import DTYPES, B, assert_all_close, assert_close, normal, numpy, padded
from tests.layers.papers import GAPS, PAPERS, D, T, retain, run

CASE = PAPERS["retain"]
U, C = 3, 2


def total(layer, shares):
    return numpy(shares).sum(axis=(1, 2)) + numpy(layer.class_bias)


@pytest.mark.parametrize("mask", [None, GAPS], ids=["whole", "masked"])
@pytest.mark.parametrize("classes", [1, C])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.each_value
def test_the_contributions_are_those_of_the_paper_and_add_up_to_the_logits(mask, classes, dtype):
    (inputs,), layer = CASE.inputs(dtype), RETAIN(U, classes, dtype=dtype)
    layer.build((None, None, D))
    names = [x.path.partition("/")[2] for x in helpers.randomize(layer).trainable_weights]
    weights = dict(zip(names, helpers.weight_arrays(layer), strict=True))
    shares = layer.contributions(inputs, mask)
    assert_close(shares, retain(layer, weights, inputs, mask)[2], dtype, times=2, before=4)
    assert shares.shape == (B, T, D, classes)
    if dtype in ("float64", "float32"):
        assert_close(layer(inputs, mask=mask), total(layer, shares), dtype)


def test_visits_that_are_masked_contribute_nothing():
    layer, (inputs,), places = CASE.built(), CASE.inputs(), [0, 3, T]
    kept = np.insert(np.ones(T, bool), places, False)
    long, mask = padded(inputs, places, [np.inf, np.nan]), np.tile(kept, (B, 1))
    shares = numpy(layer.contributions(long, mask))
    assert not shares[:, ~kept].any()
    assert_close(shares[:, kept], numpy(layer.contributions(inputs)))


@pytest.mark.parametrize("visits", [0, T])
def test_without_a_valid_visit_the_logits_are_the_bias(visits):
    layer, inputs, mask = CASE.built(), np.ones((B, visits, D)), np.zeros((B, visits), bool)
    logits, _ = run(layer, inputs, mask=mask)
    assert_close(logits, np.tile(numpy(layer.class_bias), (B, 1)))
    shares = numpy(layer.contributions(inputs, mask))
    assert shares.shape == (B, visits, D, C)
    assert not shares.any()


@on_tensorflow
@pytest.mark.parametrize("masked", [False, True])
def test_a_graph_of_unknown_lengths_reads_no_visits(masked):
    import tensorflow as tf

    layer = CASE.built()
    call = lambda x, mask: run(layer, x, mask=mask if masked else None)  # noqa: E731
    signature = tf.TensorSpec((None, None, D), "float64"), tf.TensorSpec((None, None), "bool")
    program = tf.function(call, signature, autograph=False)
    for visits in (T, 0):
        inputs, mask = normal(1, B, visits, D), np.arange(B * visits).reshape(B, visits) % 3 > 0
        assert_all_close(program(inputs, mask), call(inputs, mask))


def test_contributions_of_a_loaded_model_in_mixed_precision(tmp_path):
    policy = "mixed_float16"
    layer, inputs = CASE.built(policy), normal(1, B, T, D, dtype="float32")
    visits = keras.Input((None, D))
    keras.Model(visits, layer(visits)).save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras").layers[-1]
    shares = numpy(again.contributions(inputs))
    assert np.array_equal(shares, numpy(layer.contributions(inputs)))
    assert_close(layer(inputs), total(layer, shares), policy, before=2)


def contributions(inputs, mask=None):
    return lambda: CASE.built().contributions(inputs, mask)


test_refusals = helpers.refusals(
    (lambda: RETAIN(U).contributions(CASE.inputs()[0]), "no weights yet"),
    (contributions(keras.Input((T, D))), "must not be symbolic", "keras.layers.Layer"),
    (contributions(np.ones((T, D))), "of shape (batch, steps, "),
    (contributions(CASE.inputs()[0], np.ones((B, T + 1), bool)),
     f"`mask` must be boolean, of shape (2, {T})"),
    (lambda: RETAIN(U, unroll=True)(keras.Input((None, D))), "visits of `inputs` must"),
)  # fmt: skip
