"""Every score and alignment of Luong attention against loops of the paper."""

import functools

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention import LuongAttention
from keras_attention.ops.windows import dispatch
from tests import fast, helpers
from tests.backends import on_tensorflow
from tests.helpers import DQ, DV, LUONG, TK, TQ, B, Mechanism, assert_close, assert_refused, numpy
from tests.layers.papers import run
from tests.oracles import attend

LOCAL = [name for name in LUONG if "local" in name]
CASES = {name: helpers.MECHANISMS[name] for name in [*LOCAL, "vector"]}
GRADIENTS = "dot-local-m", "concat-local-p", "location-local-p", "vector"
RNG = np.random.default_rng(1)
# A short sentence, and padding in front.
VALUE_MASK = np.stack([helpers.lengths_mask([5], TK)[0], np.arange(TK) >= 1])


@pytest.fixture(params=["all scores", "windows only"])
def way(request, monkeypatch):
    limit = 0 if request.param == "windows only" else 10**6
    monkeypatch.setattr(dispatch, "MIN_LENGTH_RATIO", {True: limit, False: limit})


in_both_ways = pytest.mark.usefixtures("way")


@in_both_ways
@pytest.mark.parametrize("dtype", helpers.DTYPES)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.each_value
def test_equals_the_paper(name, dtype):
    # The attentional vector is one more product.
    helpers.assert_equals_the_paper(CASES[name], dtype, before=1 if name == "vector" else 0.5)


@in_both_ways
@pytest.mark.parametrize("name", fast(CASES, GRADIENTS, slow=2))
@pytest.mark.each_value
def test_gradients_are_those_of_the_paper(name):
    layer, inputs = CASES[name].built(dtype="float64"), CASES[name].tensors()

    def oracle(inputs, weights):
        return attend(CASES[name].row(layer, weights), *inputs, value_mask=VALUE_MASK)

    call = functools.partial(run, layer, value_mask=VALUE_MASK)
    helpers.assert_gradients(layer, call, inputs, oracle)


@in_both_ways
def test_a_window_reaches_the_last_word_behind_holes():
    """Every second of 40 steps is masked: the sentence spans 0 to 38, and p is at most 39."""
    layer = LuongAttention("dot", "local-p", half_width=2)
    layer.build((None, None, DQ), (None, None, DQ))
    layer.position_kernel.assign(np.eye(DQ))
    layer.position_vector.assign(np.full(DQ, 1e3))
    query, value, mask = np.ones((1, 1, DQ)), np.zeros((1, 40, DQ)), np.arange(40)[None] % 2 == 0
    _, weights = run(layer, query, value, value_mask=mask)
    assert np.flatnonzero(numpy(weights)).tolist() == [38]


@in_both_ways
@pytest.mark.parametrize("valid", [np.arange(TK) >= 2, np.arange(TK) % 3 != 1, np.arange(TK) < 4,
                                   [1, 4, 5], [4]], ids=str)  # fmt: skip
@pytest.mark.parametrize(("half_width", "masks"), [
    (1, {}), (10, {"use_causal_mask": True}),
    *((n, {"attention_mask": RNG.random(shape) < 0.6})
      for n, shape in ((2, (TQ, TK)), (3, (B, TQ, TK)))),
])  # fmt: skip
@pytest.mark.parametrize("name", LOCAL)
@pytest.mark.each_value
def test_windows_over_masks_with_holes(name, masks, valid, half_width):
    mechanism = Mechanism(LuongAttention, {**LUONG[name].options, "half_width": half_width})
    layer, mask = mechanism.built(dtype="float64"), np.zeros((B, TK), bool)
    mask[0, valid] = mask[1] = True
    masks = {"value_mask": mask, **masks}
    found = run(layer, *mechanism.tensors(), **masks)
    expected = attend(mechanism.row(layer), *mechanism.tensors(), **masks)
    helpers.assert_all_close(found, expected)


@in_both_ways
@pytest.mark.parametrize("score", ["general", "location"])
def test_each_sample_of_a_step_has_its_position(score):
    mechanism = LUONG[f"{score}-local-m"]
    layer, (query, value, key) = mechanism.built(dtype="float64"), mechanism.tensors()
    weights, memory = numpy(run(layer, query, value, key)[1]), layer.prepare(value, key)
    step, rows = query[[0, 1], [2, 0]], weights[[0, 1], [2, 0]]
    for position in (np.array([2, 0]), keras.ops.convert_to_tensor([2, 0])):
        assert_close(layer.attend(step, memory, position=position).weights, rows)
        assert_close(run(layer, step, value, key, position=position)[1], rows)
    far = layer.attend(query[:, 0], memory, position=1000).weights
    assert_close(far, numpy(layer.attend(query[:, 0], memory, position=TK - 1).weights))


@on_tensorflow
def test_location_reads_no_further_than_max_length():
    """In a graph of unknown sizes; positions count from the first valid memory step."""
    import tensorflow as tf

    layer = LuongAttention("location", max_length=4, dtype="float64")
    layer.build((None, None, DQ), (None, None, DV))
    row = Mechanism(LuongAttention, {"score_mode": "location"}).row(helpers.randomize(layer))
    query, value, _ = LUONG["location-global"].tensors()
    mask, reach = np.tile(np.arange(TK) >= 1, (B, 1)), slice(1, 5)
    sizes = [tf.TensorSpec((None, None, n), "float64") for n in (DQ, DV)]
    signature = [*sizes, tf.TensorSpec((None, None), "bool")]
    graph = tf.function(lambda q, v, m: run(layer, q, v, value_mask=m), signature)
    output, weights = graph(query, value, mask)
    helpers.assert_all_close([output, weights[:, :, reach]], attend(row, query, value[:, reach]))
    assert_close(ops.sum(weights, -1), np.ones((B, TQ)))


def test_location_in_a_model_of_unknown_lengths():
    """Keras builds it on PyTorch by running it with an invented length, longer than max_length."""

    class Wrapped(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.attention = LuongAttention("location", max_length=TK)

        def call(self, query, value):
            return self.attention(query, value)

    query, value = keras.Input((DQ,)), keras.Input((None, DV))
    for layer in (LuongAttention("location", max_length=TK), Wrapped()):
        model = keras.Model([query, value], layer(query, value))
        assert model([np.ones((B, DQ)), np.ones((B, TK, DV))]).shape == (B, DV)
        assert model.output_shape == (None, DV)


@pytest.mark.parametrize("symbolic", [False, True])
def test_sizes_that_do_not_fit_a_score(symbolic):
    layer, shapes = LuongAttention("location", max_length=TK - 1), {"query": (B, TQ, DQ)}
    inputs = helpers.arguments(shapes | {"value": (B, TK, DV)}, symbolic)
    message = "at most max_length=6 memory steps", "received 7"
    assert_refused(lambda: layer(**inputs), *message)
    message = 'score_mode="dot"', "same width", "query 5"
    assert_refused(lambda: LuongAttention("dot")(**inputs), *message, f"key {DV}")
    shapes |= {"value": (B, TK, DQ), "key": (B, TK, helpers.DK)}
    inputs = helpers.arguments(shapes, symbolic)
    assert_refused(lambda: LuongAttention("dot")(**inputs), *message, f"key {helpers.DK}")
