"""Several heads against loops: alone, in decoders, in beams and in files."""

import keras
import numpy as np
import pytest
from keras import ops

import keras_attention as ka
from tests import helpers, oracles
from tests.helpers import DK, DQ, DV, HEADS, MASKS, TK, TQ, B, Heads, assert_close, normal, numpy
from tests.layers.papers import run

SEQUENCES, MEMORY = (normal(n, B, *x, dtype="float32") for n, x in ((1, (5, 3)), (2, (TK, DV))))
every_mechanism = pytest.mark.parametrize("name", HEADS)


@pytest.mark.parametrize("heads", [
    Heads(ka.BahdanauAttention, {"units": 2}, 2),
    Heads(ka.LuongAttention, {"alignment": "local-p", "half_width": 1, "units": 2}, 2),
    Heads(ka.LocationSensitiveAttention, {"units": 2, "filters": 1, "kernel_size": 3}, 2),
])  # fmt: skip
def test_gradients_are_those_of_the_paper(heads):
    layer = heads.built(dq=2, dk=2, dv=5, dtype="float64")
    inputs = normal(1, B, TQ, 2), normal(2, B, TK, 5), normal(3, B, TK, 2)

    def oracle(inputs, weights):
        return oracles.attend(heads.row(layer, weights), *inputs, **MASKS)

    helpers.assert_gradients(layer, lambda *x: run(layer, *x, **MASKS), inputs, oracle)


@every_mechanism
def test_the_weights_are_the_mean_of_those_of_the_heads(name):
    layer, (query, value, key) = HEADS[name].built(dtype="float64"), HEADS[name].tensors()
    _, expected = run(layer, query, value, key, value_mask=MASKS["value_mask"])
    memory, state = layer.prepare(value, key, MASKS["value_mask"]), None
    for i in range(TQ):
        options = {"position": i} if layer.uses_position else {}
        of_heads = layer.head_weights(query[:, i], memory, state, **options)
        _, state, weights = layer.attend(query[:, i], memory, state, **options)
        assert_close(weights, numpy(of_heads).mean(1))
    assert isinstance(state, list) == layer.has_state
    of_heads = numpy(layer.head_weights(query, memory))
    assert of_heads.shape == (B, layer.num_heads, TQ, TK)
    assert_close(expected, of_heads.mean(1))
    assert (np.ptp(of_heads, axis=1).max() > 1e-3) == (layer.num_heads > 1)


def test_weights_and_names():
    layer = ka.MultiHead(ka.BahdanauAttention(17), 3)
    layer.build((B, TQ, DQ), (B, TK, DV), (B, TK, DK))
    shapes = {"query_kernel": (DQ, 17), "key_kernel": (DK, 17), "score_vector": (17,)}
    expected = {f"head_{n}/{name}": shape for n in range(3) for name, shape in shapes.items()}
    expected |= {"value_kernel": (DV, DV), "output_kernel": (DV, DV)}
    assert {x.path.partition("/")[2]: tuple(x.shape) for x in layer.weights} == expected
    # DV = 13 features: the first head reads one more.
    memory = layer.prepare(normal(1, B, TK, DV), normal(2, B, TK, DK))
    assert [x.value.shape for x in layer._parts(memory)] == [(B, TK, n) for n in (5, 4, 4)]
    assert [x.key.shape for x in layer._parts(memory)] == [(B, TK, 17)] * 3


@pytest.mark.parametrize("attention", [
    ka.BahdanauAttention(3),
    ka.LuongAttention("general", "local-m"),
    ka.LocationSensitiveAttention(3),
])  # fmt: skip
def test_it_follows_its_attention(attention):
    layer = ka.MultiHead(attention, 2)
    for name in ("has_state", "uses_position", "decoder_query"):
        assert getattr(layer, name) == getattr(attention, name)
    assert all(head is not attention for head in layer.heads)
    assert ka.MultiHead(ka.BahdanauAttention(5, dtype="float64"), 2).compute_dtype == "float64"
    base = ka.MultiHead(ka.MonotonicAttention(5), 2, dtype="float16").heads[0].base_attention
    assert base.compute_dtype == "float16"


class Drawn(ka.BahdanauAttention):  # has an initializer with a seed of its own
    def __init__(self, units, initializer, **kwargs):
        super().__init__(units, **kwargs)
        self.initializer = keras.initializers.get(initializer)

    def build(self, *shapes):
        super().build(*shapes)
        self.score_vector.assign(self.initializer(self.score_vector.shape))

    def get_config(self):
        initializer = keras.initializers.serialize(self.initializer)
        return super().get_config() | {"initializer": initializer}


def test_each_head_has_its_own_seeds():
    layer = ka.MultiHead(Drawn(17, keras.initializers.RandomNormal(seed=3), dropout=0.5, seed=5), 3)
    inner = Drawn.from_config(layer.attention.get_config())
    again = ka.MultiHead.from_config(layer.get_config() | {"attention": inner})
    for one in (layer, again):
        assert [head.seed for head in one.heads] == [5, 6, 7]
        one.build((B, TQ, DQ), (B, TK, DV))
    vectors, others = ([numpy(x.score_vector) for x in one.heads] for one in (layer, again))
    assert np.abs(vectors[0] - vectors[1]).max() > 1e-3
    assert np.array_equal(vectors, others)
    heads = ka.MultiHead(ka.BahdanauAttention(3, seed=2**32 - 1), 2).heads
    assert [head.seed for head in heads] == [2**32 - 1, 0]


@pytest.mark.parametrize("inside", [False, True])
def test_each_head_drops_its_own_memory_steps(inside):
    """With unit vectors as memory and identities as kernels, the output shows what was read."""
    layer, size = ka.MultiHead(ka.BahdanauAttention(17, dropout=0.4, seed=3), 2), 8
    decoder = ka.AttentionRNN(keras.layers.GRUCell(5), layer, output_mode="attention")
    query, memory = normal(1, 101, 3, 5), np.tile(np.eye(size), (101, 1, 1))
    called = decoder if inside else layer
    called.build(query.shape, memory.shape)
    layer.value_kernel.assign(np.tile(np.eye(4), (2, 2)) * np.eye(size))
    layer.output_kernel.assign(np.eye(size))
    read = numpy(called(query, memory, training=True)) == 0
    for part in (read[..., :4], read[..., 4:]):
        assert 0.3 < part.mean() < 0.5
    assert np.array_equal(read, np.repeat(read[:, :1], 3, axis=1)) == inside
    assert np.abs(numpy(called(query, memory))).min() > 0


class Altered(ka.MultiHead):
    def combine(self, query, context):
        return 2 * super().combine(query, context)

    def sequence_loss(self, weights, query_mask, memory_mask):
        return ops.sum(weights)


def test_the_loss_on_the_weights_is_that_of_their_mean():
    one = ka.CoverageAttention(17, loss_weight=0.5)
    for kind in (ka.MultiHead, Altered):
        layer = kind(ka.CoverageAttention(17, loss_weight=0.5), 3)
        _, weights = run(layer, SEQUENCES, MEMORY)
        expected = ops.sum(weights) if kind is Altered else one.sequence_loss(weights, None, None)
        helpers.assert_all_close(layer.losses, [expected], "float32")


@pytest.mark.parametrize("options", [{"query": "previous"}, {"input_feeding": True}])
def test_a_decoder_uses_the_combine_of_a_subclass(options):
    heads = Altered(ka.LocationSensitiveAttention(17, filters=3, kernel_size=5), 3)
    decoder = ka.AttentionRNN(keras.layers.GRUCell(11), heads, **options)
    mask = helpers.lengths_mask([5, 7], TK)
    state = helpers.assert_steps_equal_the_call(decoder, SEQUENCES, MEMORY, mask)
    assert len(keras.tree.flatten(state.attention)) == 3


QUERY, VALUE = np.ones((B, DQ)), np.ones((B, TK, DV))


def with_state(method, attention):
    def call():
        layer = ka.MultiHead(attention, 3)
        layer(QUERY, VALUE)
        getattr(layer, method)(QUERY, layer.prepare(VALUE), [np.zeros((B, TK), "float32")] * 2)

    return call


test_refusals = helpers.refusals(
    (lambda: ka.MultiHead(None, 2), "`attention`", "built on ScoringMixin", "received None"),
    (lambda: ka.MultiHead(ka.BahdanauAttention, 2), "`attention`", "BahdanauAttention(...)"),
    *((lambda name=name, value=value: ka.MultiHead(ka.BahdanauAttention(3), 2, **{name: value}),
       f"`{name}`", "each head", f"received {value!r}", f"BahdanauAttention(..., {name}=...)")
      for name, value in (("dropout", 0.1), ("normalizer", "sparsemax"), ("seed", 4))),
    (lambda: ka.MultiHead(ka.BahdanauAttention(3, activity_regularizer="l2"), 2),
     "`attention`", "`activity_regularizer`", "Give it to MultiHead."),
    (lambda: ka.MultiHead(ka.MultiSource([ka.BahdanauAttention(3), ka.LuongAttention()]), 2),
     "`attention` must read one memory", "MultiSource([MultiHead(...), ...])"),
    (lambda: ka.MultiHead(ka.BahdanauAttention(3), 4)(QUERY, VALUE[..., :3]),
     "`num_heads`", "features of `value`", "num_heads=4, and 3 features"),
    (lambda: ka.MultiHead(ka.MemoryHop(), 2)(QUERY, VALUE[..., :5]),
     "a head reads 3 of the 5 features", "head_0: `value` must be", "has 5 features"),
    (with_state("attend", ka.LocationSensitiveAttention(7)), "`state`", "shapes"),
    (with_state("head_weights", ka.LocationSensitiveAttention(7)), "`state`", "shapes"),
    (with_state("head_weights", ka.BahdanauAttention(7)), "no state", "Leave `state`"),
)  # fmt: skip


@pytest.mark.parametrize("hook", ["score", "project_query", "project_key", "weigh", "window"])
def test_hooks_of_the_heads_are_refused(hook):
    function = getattr(ka.BahdanauAttention, hook)
    with pytest.raises(TypeError, match=f"Mine: `{hook}` is a hook of the attentions inside"):
        type("Mine", (ka.MultiHead,), {hook: function})
