"""RETAIN against loops of the paper, and its exact decomposition."""

import keras
import numpy as np
import pytest

from keras_attention import RETAIN
from tests import fast
from tests.backends import dtypes, on_tensorflow
from tests.helpers import (
    DTYPES,
    assert_all_close,
    assert_close,
    assert_gradients,
    assert_refused,
    gradients,
    lengths_mask,
    normal,
    numpy,
    randomize,
    selected,
    weight_arrays,
)
from tests.oracles import gru, retain

B, T, D, U, C = 2, 5, 7, 3, 2
# A gap, and padding at both ends.
MASK = np.stack([np.arange(T) >= 1, lengths_mask([4], T)[0] & (np.arange(T) != 2)])
masked_or_not = pytest.mark.parametrize("mask", [None, MASK], ids=["whole", "masked"])


def built(dtype="float64", classes=C, **kwargs):
    layer = RETAIN(U, classes, dtype=dtype, **kwargs)
    layer.build((None, T if layer.unroll else None, D))
    return randomize(layer)


def run(layer, inputs, **kwargs):
    return list(layer(inputs, return_attention_scores=True, **kwargs))


def paper(layer, inputs, mask=None, weights=None):
    weights = weights or weight_arrays(layer)
    named, cells = {}, {"visit_rnn": {}, "gate_rnn": {}}
    for weight, array in zip(layer.trainable_weights, weights, strict=True):
        owner = next((x for x in cells if f"{x}/" in weight.path), None)
        (named if owner is None else cells[owner])[weight.name] = array
    return retain(named, *(gru(**x) for x in cells.values()), inputs, mask)


@masked_or_not
@pytest.mark.parametrize("unroll", [False, True], ids=["loop", "unrolled"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_equals_the_paper(mask, unroll, dtype):
    layer, inputs = built(dtype, unroll=unroll), normal(1, B, T, D, dtype=dtype)
    result = run(layer, inputs, mask=mask)
    assert dtypes(*result) == [dtype, dtype]
    logits, weights, shares = paper(layer, inputs, mask)
    # The recurrences round at every step.
    options = {"times": 2, "before": 4}
    assert_all_close(result, [logits, weights], dtype, **options)
    assert_close(layer.contributions(inputs, mask), shares, dtype, **options)


@pytest.mark.parametrize("jit", fast([False, True], [False]), ids=["eager", "jit"])
def test_gradients_are_those_of_the_paper(jit):
    layer = built()

    def oracle(inputs, weights):
        return paper(layer, *inputs, MASK, weights)[:2]

    inputs = [normal(1, B, T, D)]
    assert_gradients(layer, lambda x: run(layer, x, mask=MASK), inputs, oracle, jit=jit)


@masked_or_not
@pytest.mark.parametrize("classes", [1, C])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_the_contributions_add_up_to_the_logits(mask, classes, dtype):
    layer, inputs = built(dtype, classes), normal(1, B, T, D, dtype=dtype)
    shares = numpy(layer.contributions(inputs, mask))
    assert shares.shape == (B, T, D, classes)
    total = shares.sum(axis=(1, 2)) + numpy(layer.class_bias)
    assert_close(layer(inputs, mask=mask), total, dtype)


@pytest.mark.parametrize("fill", [np.inf, np.nan])
def test_masking_is_truncating_whatever_the_padding_holds(fill):
    layer, inputs = built(), normal(1, B, T, D)
    places = [0, 3, T]
    long = np.insert(inputs, places, fill, axis=1)
    kept = np.insert(np.ones(T, bool), places, False)
    mask = np.tile(kept, (B, 1))
    outputs, expected = gradients(layer, lambda x: run(layer, x), [inputs])

    def masked(x):
        logits, weights = run(layer, x, mask=mask)
        return [logits, selected(weights, kept, 1)]

    found_outputs, found = gradients(layer, masked, [long])
    assert_all_close(found_outputs, outputs)
    assert not numpy(found[0])[:, ~kept].any()
    found[0] = selected(found[0], kept, 1)
    assert_all_close(found, expected)
    shares = numpy(layer.contributions(long, mask))
    assert not shares[:, ~kept].any()
    assert_close(shares[:, kept], numpy(layer.contributions(inputs)))


def test_no_visits_mean_the_bias():
    layer = built()
    for mask in (None, np.ones((B, 0), bool)):
        logits, weights = run(layer, np.ones((B, 0, D)), mask=mask)
        np.testing.assert_array_equal(numpy(logits), np.tile(numpy(layer.class_bias), (B, 1)))
        assert tuple(weights.shape) == (B, 0)
        assert tuple(layer.contributions(np.ones((B, 0, D)), mask).shape) == (B, 0, D, C)


@on_tensorflow
@pytest.mark.parametrize("masked", [False, True])
def test_a_graph_of_unknown_lengths_reads_no_visits(masked):
    import tensorflow as tf

    layer = built()
    signature = tf.TensorSpec((None, None, D), "float64"), tf.TensorSpec((None, None), "bool")
    program = tf.function(
        lambda x, mask: run(layer, x, mask=mask if masked else None), signature, autograph=False
    )
    for visits in (T, 0):
        inputs, mask = normal(1, B, visits, D), np.arange(B * visits).reshape(B, visits) % 3 > 0
        expected = run(layer, inputs, mask=mask if masked else None)
        assert_all_close(program(inputs, mask), [numpy(x) for x in expected])


def test_a_history_without_a_visit_has_the_logit_of_the_bias():
    layer, mask = built(), np.zeros((B, T), bool)
    logits, weights = run(layer, normal(1, B, T, D), mask=mask)
    assert_close(logits, np.tile(numpy(layer.class_bias), (B, 1)))
    assert not numpy(weights).any()
    assert not numpy(layer.contributions(normal(1, B, T, D), mask)).any()


@pytest.mark.parametrize("policy", fast(["mixed_bfloat16", "mixed_float16"], ["mixed_float16"]))
def test_contributions_of_a_loaded_model_in_mixed_precision(policy, tmp_path):
    layer, inputs = built(policy), normal(1, B, T, D).astype("float32")
    visits = keras.Input((None, D))
    keras.Model(visits, layer(visits)).save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras").layers[-1]
    shares = numpy(again.contributions(inputs))
    assert np.array_equal(shares, numpy(layer.contributions(inputs)))
    total = shares.sum(axis=(1, 2)) + numpy(layer.class_bias)
    assert_close(layer(inputs), total, policy, before=2)


def test_what_is_refused():
    assert_refused(lambda: RETAIN(0), "`units` must be a positive integer")
    assert_refused(lambda: RETAIN(U, 0), "`classes` must be a positive integer")
    inputs = normal(1, B, T, D)
    with pytest.raises(ValueError, match="no weights yet"):
        RETAIN(U).contributions(inputs)
    symbolic = keras.Input((T, D))
    message = "must not be symbolic", "keras.layers.Layer"
    assert_refused(lambda: built().contributions(symbolic), *message)
    assert_refused(
        lambda: RETAIN(U, unroll=True)(keras.Input((None, D))), "visits of `inputs` must"
    )
    mask = np.ones((B, T + 1), bool)
    for call in (built(), built().contributions):
        assert_refused(lambda call=call: call(inputs[0]), "of shape (batch, steps, ")
        assert_refused(
            lambda call=call: call(inputs, mask=mask), "`mask` must be boolean, of shape (2, 5)"
        )
