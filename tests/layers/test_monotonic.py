"""Worked examples and limits of monotonic attention."""

import numpy as np
import pytest
from keras import layers, ops

from keras_attention import AttentionRNN, MonotonicAttention, StepwiseMonotonicAttention
from tests import fast
from tests.backends import on_tensorflow, tensor
from tests.helpers import assert_close, assert_refused, gradients, normal, numpy


def by_probability(mode="parallel", **options):
    """A layer whose p is the sigmoid of the query times the key, both numbers."""

    class Given(MonotonicAttention):
        def project_query(self, query):
            return query

        def project_key(self, key):
            return key

        def score(self, query, key, state):
            return query * ops.transpose(key, (0, 2, 1))

    return Given(1, mode, **{"dtype": "float64", "noise": 0, **options})


@pytest.mark.parametrize("mode", ["parallel", "recursive"])
def test_the_worked_example(mode):
    """p = [.5, .5, .5] after [1, 0, 0] gives [.5, .25, .125]."""
    layer, zeros = by_probability(mode), np.zeros((1, 1, 1))
    _, weights = layer(zeros, np.zeros((1, 3, 1)), return_attention_scores=True)
    assert numpy(weights).tolist() == [[[0.5, 0.25, 0.125]]]


@pytest.mark.parametrize("chunk", [None, 3])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.each_value
def test_recursive_equals_parallel(chunk, dtype):
    query, value = normal(1, 3, 9, 5, dtype=dtype), normal(2, 3, 40, 7, dtype=dtype)
    mask = np.arange(40) % 7 > 0
    found = []
    for mode in ("parallel", "recursive"):
        layer = MonotonicAttention(11, mode, chunk_size=chunk, initial_offset=-1.0, dtype=dtype)
        layer.build(query.shape, value.shape)
        for n, weight in enumerate(layer.trainable_weights):
            weight.assign(normal(n, *weight.shape))

        def call(query, value, layer=layer):
            masks = {"value_mask": tensor(np.tile(mask, (3, 1)))}
            return layer(query, value, return_attention_scores=True, **masks)

        outputs, of_inputs = gradients(layer, call, [query, value])
        found.append([*outputs, *of_inputs])
    for x, y in zip(*found, strict=True):
        tolerance = 1e-10 if dtype == "float64" else 1e-5
        np.testing.assert_allclose(numpy(x), numpy(y), rtol=0, atol=tolerance)


def test_hard_is_the_limit_of_soft():
    query, value = np.ones((4, 6, 1)), np.sign(normal(2, 4, 30, 1)) * 200
    value[3] = -200  # nothing is ever read
    # Steps beyond the first move on only where p is zero at the last place.
    query = query * np.sign(normal(3, 4, 6, 1))
    found = [
        by_probability(mode)(query, value, return_attention_scores=True)
        for mode in ("parallel", "hard")
    ]
    for x, y in zip(*found, strict=True):
        assert_close(x, numpy(y))
    weights = numpy(found[1][1])
    assert set(np.unique(weights)) == {0.0, 1.0}
    assert not weights[3, query[3, :, 0] > 0].any()
    places = [row.argmax(-1)[row.any(-1)] for row in weights]
    assert all((np.diff(x) >= 0).all() for x in places)
    assert max(x.max(initial=0) for x in places) > 3


def test_hard_trains_like_parallel():
    query, value = normal(1, 2, 3, 1), normal(2, 2, 9, 1)
    found = [by_probability(mode)(query, value, training=True) for mode in ("hard", "parallel")]
    assert_close(found[0], numpy(found[1]))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("jit", fast([False, True], [False]))
@pytest.mark.parametrize("spread", [1.0, 300.0])
@pytest.mark.each_value
def test_a_memory_of_ten_thousand_steps(dtype, jit, spread):
    query = ops.cast(spread * normal(1, 1, 3, 5), dtype)
    value = ops.cast(normal(2, 1, 10_000, 7), dtype)
    layer = MonotonicAttention(11, chunk_size=4, dtype=dtype)
    layer.build(query.shape, value.shape)

    def call(query, value):
        return layer(query, value, return_attention_scores=True)

    outputs, found = gradients(layer, call, [query, value], jit)
    for x in (*outputs, *found):
        assert np.isfinite(numpy(x)).all()
    weights = numpy(outputs[1])
    assert weights.sum(-1).max() <= 1 + 1e-2
    assert weights.sum(-1).min() > 0.1


def test_noise_is_drawn_in_training_only():
    query, value = normal(1, 2, 3, 5, dtype="float32"), normal(2, 2, 9, 7, dtype="float32")
    layer = MonotonicAttention(11, seed=3, initial_offset=0.0)
    first, again = layer(query, value, training=True), layer(query, value, training=True)
    assert np.abs(numpy(first) - numpy(again)).max() > 1e-3
    assert_close(layer(query, value), numpy(layer(query, value)))
    twin = MonotonicAttention(11, seed=3, initial_offset=0.0)
    twin.build(query.shape, value.shape)
    twin.set_weights(layer.get_weights())
    assert_close(twin(query, value, training=True), numpy(first), "float32")
    quiet = MonotonicAttention(11, noise=0)
    assert_close(quiet(query, value, training=True), numpy(quiet(query, value)), "float32")


def test_initial_values():
    layer = MonotonicAttention(11)
    layer.build((1, 2, 3), (1, 5, 7))
    assert numpy(layer.offset_bias) == -4
    assert numpy(layer.base_attention.gain) == pytest.approx(11**-0.5)
    steeper = MonotonicAttention(11, initial_gain=4.0)
    steeper.build((1, 2, 3), (1, 5, 7))
    assert numpy(steeper.base_attention.gain) == 4


@pytest.mark.parametrize("decoding", [False, True])
def test_a_mask_that_is_true_everywhere_changes_nothing(decoding):
    """A step that could read but stopped nowhere has read nothing for good."""
    layer = by_probability("hard")
    query, value = np.array([[[9.0], [-9.0], [9.0]]]), np.ones((1, 2, 1))
    masks = [{}, {"query_mask": np.ones((1, 3), bool)}, {"attention_mask": np.ones((3, 2), bool)}]
    masks += [{"value_mask": np.ones((1, 2), bool)}, {"use_causal_mask": False}]
    layer.build(query.shape, value.shape)
    for options in masks:
        if not decoding:
            weights = layer(query, value, return_attention_scores=True, **options)[1]
        else:
            memory = layer.prepare(tensor(value), value_mask=options.pop("value_mask", None))
            weights = layer.attend(tensor(query), memory, **options).weights
        assert numpy(weights).tolist() == [[[1, 0], [0, 0], [0, 0]]], options


def test_a_step_that_can_read_nothing_keeps_its_place():
    layer = by_probability("hard")
    query, value = np.array([[[9.0], [9.0], [9.0]]]), np.ones((1, 2, 1))
    for mask in (
        {"query_mask": [[True, False, True]]},
        {"attention_mask": [[True] * 2, [False] * 2, [True] * 2]},
    ):
        mask = {name: np.array(x) for name, x in mask.items()}
        _, weights = layer(query, value, return_attention_scores=True, **mask)
        assert numpy(weights).tolist() == [[[1, 0], [0, 0], [1, 0]]]


@on_tensorflow
@pytest.mark.parametrize("jit", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("known", fast(["memory", "mask"], ["mask"]))
@pytest.mark.each_value
def test_only_the_mask_or_the_memory_knows_its_batch_size(known, jit):
    import tensorflow as tf

    cell = layers.GRUCell(5, dtype="float64")
    attention = MonotonicAttention(3, "hard", noise=0, dtype="float64")
    layer = AttentionRNN(cell, attention, query="current", input_feeding=True)
    layer.build((None, None, 2), (None, None, 7))
    inputs = [tensor(normal(n, 1, 4, size)) for n, size in enumerate((2, 7))]
    mask = tensor(np.array([[True, True, False, True]]))
    batch = {"memory": None, "mask": None, known: 1}
    specs = [
        tf.TensorSpec((None, None, 2), "float64"),
        tf.TensorSpec((batch["memory"], None, 7), "float64"),
        tf.TensorSpec((batch["mask"], None), "bool"),
    ]

    def call(sequences, memory, mask):
        return layer(sequences, memory, memory_mask=mask, training=True)

    found = tf.function(call, specs, autograph=False, jit_compile=jit)(*inputs, mask)
    assert_close(found, numpy(call(*inputs, mask)))


@on_tensorflow
@pytest.mark.parametrize(
    "layer",
    [
        MonotonicAttention(3, "hard"),
        StepwiseMonotonicAttention(3, half_width=2),
    ],
    ids=["hard", "stepwise"],
)
def test_no_memory_in_a_graph_that_knows_no_size(layer):
    import tensorflow as tf

    specs = [tf.TensorSpec((None, None, 2)), tf.TensorSpec((None, None, 4))]
    run = tf.function(layer.__call__, specs, autograph=False)
    output = run(np.ones((2, 3, 2), "float32"), np.ones((2, 0, 4), "float32"))
    assert numpy(output).tolist() == np.zeros((2, 3, 4)).tolist()


def test_hard_mode_does_not_hide_nan():
    layer = MonotonicAttention(3, "hard")
    layer.build((None, None, 2), (None, None, 4))
    key = np.ones((1, 4, 4), "float32")
    key[0, 2] = np.nan
    layer.offset_bias.assign(-9.0)  # nothing stops before
    value = np.ones((1, 4, 4), "float32")
    output = numpy(layer(np.ones((1, 1, 2), "float32"), value, key))
    assert np.isnan(output).all()


@pytest.mark.parametrize(
    ("options", "fragments"),
    [
        ({"units": None}, ("`units`", "a positive integer", "received None")),
        (
            {"normalizer": "sparsemax"},
            ("`normalizer`", "received 'sparsemax'", "must be one of 'softmax'"),
        ),
        ({"mode": "soft"}, ("`mode`", "'parallel', 'recursive', 'hard'", "'soft'")),
        ({"noise": -1}, ("`noise`", "a number of at least 0", "received -1")),
        ({"noise": np.nan}, ("`noise`", "a number of at least 0", "received nan")),
        ({"chunk_size": 0}, ("`chunk_size`", "a positive integer", "received 0")),
        ({"initial_offset": "4"}, ("`initial_offset`", "a number", "received '4'")),
        ({"initial_gain": -1}, ("`initial_gain`", "a number of at least 0", "received -1")),
    ],
)
def test_bad_arguments(options, fragments):
    assert_refused(lambda: MonotonicAttention(**{"units": 3, **options}), *fragments)
