"""Feature attention against loops of the paper."""

import keras
import numpy as np
import pytest

from keras_attention import FeatureAttention
from tests import fast, helpers
from tests.backends import dtypes
from tests.decoder.cases import CELLS, INITIALIZER
from tests.helpers import DTYPES, assert_all_close, assert_close, gradients, normal, numpy, refusals
from tests.layers.papers import run
from tests.oracles import feature_attention

B, T, N, H, U = 2, 5, 7, 3, 11
# Single values are missing, a whole step in front, and a whole series.
MASK = np.random.default_rng(3).random((B, T, N)) < 0.6
MASK[0, 0], MASK[1, :, 2] = False, False


def built(kind="lstm", dtype="float64", **kwargs):
    cell = CELLS[kind][0](H, dtype=dtype, **INITIALIZER)
    layer = FeatureAttention(cell, U, **kwargs)
    layer.build((None, T, N))
    return helpers.randomize(layer)


def paper(layer, kind, inputs, mask=None, weights=None):
    weights = weights or helpers.weight_arrays(layer)
    named, of_cell = {}, {}
    inside = {id(x) for x in layer.cell.trainable_weights}
    for weight, array in zip(layer.trainable_weights, weights, strict=True):
        (of_cell if id(weight) in inside else named)[weight.name] = array
    cell, sizes = CELLS[kind][1](**of_cell), [H, H] if kind == "lstm" else [H]
    return feature_attention(named, cell, sizes, inputs, mask, layer.normalizer)


@pytest.mark.parametrize("kind", CELLS)
@pytest.mark.parametrize("mask", [None, MASK], ids=["whole", "masked"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.each_value
def test_equals_the_paper(kind, mask, dtype):
    layer, inputs = built(kind, dtype), normal(1, B, T, N, dtype=dtype)
    result = run(layer, inputs, mask=mask)
    assert dtypes(*result) == [dtype, dtype]
    assert_all_close(result, paper(layer, kind, inputs, mask), dtype, before=4)


@pytest.mark.parametrize("unroll", [False, True], ids=["loop", "unrolled"])
@pytest.mark.parametrize("jit", fast([False, True], [False]), ids=["eager", "jit"])
def test_gradients_are_those_of_the_paper(unroll, jit):
    layer = built(unroll=unroll)

    def oracle(inputs, weights):
        return paper(layer, "lstm", *inputs, MASK, weights)

    inputs = [normal(1, B, T, N)]
    helpers.assert_gradients(layer, lambda x: run(layer, x, mask=MASK), inputs, oracle, jit=jit)


def test_sparse_weights_without_a_bias():
    layer, inputs = built(normalizer="sparsemax", use_bias=False), 3 * normal(1, B, T, N)
    result = run(layer, inputs, mask=MASK)
    assert_all_close(result, paper(layer, "lstm", inputs, MASK))
    assert (numpy(result[1])[MASK] == 0).any()


def test_a_missing_value_has_no_effect():
    layer, inputs = built(), normal(1, B, T, N)
    filled = np.where(MASK, inputs, np.resize([np.inf, np.nan, -np.inf, 3.0], MASK.shape))
    outputs, expected = gradients(layer, lambda x: run(layer, x, mask=MASK), [inputs])
    found_outputs, found = gradients(layer, lambda x: run(layer, x, mask=MASK), [filled])
    assert_all_close(found_outputs, outputs)
    assert_all_close(found, expected)
    assert not numpy(found[0])[~MASK].any()
    assert not numpy(outputs[1])[~MASK].any()


def test_a_step_without_values_keeps_the_state():
    """A mask of steps is the mask of all their values, and the output carries it."""
    layer, inputs = built(), normal(1, B, T, N)
    steps = np.array([[True, False, True, True, False], [False, True, True, False, True]])
    each = np.repeat(steps[:, :, None], N, axis=2)
    assert_all_close(run(layer, inputs, mask=steps), paper(layer, "lstm", inputs, each))
    for mask in (steps, each):
        assert np.array_equal(numpy(layer.compute_mask(inputs, mask)), steps)
    assert layer.compute_mask(inputs, None) is None


def test_the_dropout_of_the_cell_is_for_training():
    layer = FeatureAttention(keras.layers.GRUCell(H, dropout=0.5, seed=1), U)
    inputs = normal(1, B, T, N).astype("float32")
    quiet = numpy(layer(inputs))
    assert np.array_equal(numpy(layer(inputs, training=False)), quiet)
    first, second = (numpy(layer(inputs, training=True)) for _ in range(2))
    assert not np.isclose(first, quiet).all()
    assert not np.isclose(first, second).all()


CELL, INPUTS = keras.layers.GRUCell(H), normal(1, B, T, N)
test_what_is_refused = refusals(
    *((lambda x=x: FeatureAttention(x, U), "`cell` must be a Keras RNN cell")
      for x in (keras.layers.GRU(3), keras.layers.GRUCell, None, [])),
    (lambda: FeatureAttention(CELL, 0), "`units` must be a positive integer"),
    (lambda: FeatureAttention(CELL, U)(keras.Input((None, N))),
     "the number of steps of `inputs` must be known", "Give it to keras.Input."),
    (lambda: built()(INPUTS[:, 1:]), "built for `inputs` of 5 steps", "(2, 4, 7)"),
    (lambda: built()(INPUTS[..., 1:]), "built for `inputs` of 7 features"),
    (lambda: built()(INPUTS, mask=np.ones((B, T, N + 1), bool)),
     "`mask` must be boolean, of shape (2, 5, 7) or (2, 5)"),
)  # fmt: skip


def test_a_cell_may_compute_in_another_dtype():
    """Its states keep the precision of the cell."""
    dtypes_of_states = set()

    class Noting(keras.layers.LSTMCell):
        def call(self, inputs, states, training=False):
            dtypes_of_states.update(keras.backend.standardize_dtype(x.dtype) for x in states)
            return super().call(inputs, states, training=training)

    layer = FeatureAttention(Noting(H, dtype="float32"), U, dtype="mixed_bfloat16")
    inputs = normal(1, B, T, N)
    assert keras.backend.standardize_dtype(layer(inputs).dtype) == "bfloat16"
    assert dtypes_of_states == {"float32"}
    other = FeatureAttention(keras.layers.LSTMCell(H), U)
    other.build((None, T, N))
    other.set_weights(layer.get_weights())
    outputs, expected = (keras.ops.stop_gradient(x(inputs)) for x in (layer, other))
    assert_close(outputs, expected, "bfloat16", before=2)
