"""Several heads against loops: alone, in decoders, in beams and in files."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention import (
    AttentionRNN,
    BahdanauAttention,
    CoverageAttention,
    DecoderStack,
    LocationSensitiveAttention,
    LuongAttention,
    MemoryHop,
    MonotonicAttention,
    MultiHead,
)
from tests.backends import tensor
from tests.decoder.cases import assert_beams_carry_states
from tests.helpers import (
    DK,
    DQ,
    DV,
    HEADS,
    MASKS,
    TK,
    TQ,
    B,
    Heads,
    assert_all_close,
    assert_close,
    assert_gradients,
    assert_refused,
    assert_steps_equal_the_call,
    lengths_mask,
    normal,
    numpy,
)
from tests.oracles import attend

every_mechanism = pytest.mark.parametrize("name", HEADS)


@pytest.mark.parametrize(
    "heads",
    [
        Heads(BahdanauAttention, {"units": 2}, 2),
        Heads(LuongAttention, {"alignment": "local-p", "half_width": 1, "units": 2}, 2),
        Heads(LocationSensitiveAttention, {"units": 2, "filters": 1, "kernel_size": 3}, 2),
    ],
    ids=["bahdanau", "vector", "location"],
)
def test_gradients_are_those_of_the_paper(heads):
    layer = heads.built(dq=2, dk=2, dv=5, dtype="float64")
    inputs = normal(1, B, TQ, 2), normal(2, B, TK, 5), normal(3, B, TK, 2)

    def oracle(inputs, weights):
        return attend(heads.row(layer, weights), *inputs, **MASKS)

    def call(*inputs):
        return layer(*inputs, **MASKS, return_attention_scores=True)

    assert_gradients(layer, call, inputs, oracle)


@every_mechanism
def test_the_weights_are_the_mean_of_those_of_the_heads(name):
    layer, inputs = HEADS[name].built(dtype="float64"), map(tensor, HEADS[name].tensors())
    query, value, key = inputs
    mask = tensor(MASKS["value_mask"])
    _, expected = layer(query, value, key, value_mask=mask, return_attention_scores=True)
    memory, state = layer.prepare(value, key, mask), None
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
    layer = MultiHead(BahdanauAttention(17), 3)
    layer.build((B, TQ, DQ), (B, TK, DV), (B, TK, DK))
    shapes = {"/".join(x.path.split("/")[1:]): tuple(x.shape) for x in layer.weights}
    assert shapes == {
        "value_kernel": (DV, DV),
        "output_kernel": (DV, DV),
        **{
            f"head_{n}/{name}": shape
            for n in range(3)
            for name, shape in (
                ("query_kernel", (DQ, 17)),
                ("key_kernel", (DK, 17)),
                ("score_vector", (17,)),
            )
        },
    }
    # DV = 13 features: the first head reads one more.
    memory = layer.prepare(normal(1, B, TK, DV), normal(2, B, TK, DK))
    assert [x.value.shape for x in layer._parts(memory)] == [(B, TK, n) for n in (5, 4, 4)]
    assert [x.key.shape for x in layer._parts(memory)] == [(B, TK, 17)] * 3


def test_it_follows_its_attention():
    for attention in (
        BahdanauAttention(3),
        LuongAttention("general", "local-m"),
        LocationSensitiveAttention(3),
    ):
        layer = MultiHead(attention, 2)
        for name in ("has_state", "uses_position", "decoder_query"):
            assert getattr(layer, name) == getattr(attention, name)
        assert all(head is not attention for head in layer.heads)


class Drawn(BahdanauAttention):
    """Has an initializer with a seed of its own."""

    def __init__(self, units, initializer, **kwargs):
        super().__init__(units, **kwargs)
        self.initializer = keras.initializers.get(initializer)

    def build(self, *shapes):
        super().build(*shapes)
        self.score_vector.assign(self.initializer(self.score_vector.shape))

    def get_config(self):
        return {
            **super().get_config(),
            "initializer": keras.initializers.serialize(self.initializer),
        }


def test_each_head_has_its_own_seeds():
    layer = MultiHead(Drawn(17, keras.initializers.RandomNormal(seed=3), dropout=0.5, seed=5), 3)
    again = MultiHead.from_config(
        {**layer.get_config(), "attention": Drawn.from_config(layer.attention.get_config())}
    )
    for one in (layer, again):
        assert [head.seed for head in one.heads] == [5, 6, 7]
        one.build((B, TQ, DQ), (B, TK, DV))
    vectors = [numpy(head.score_vector) for head in layer.heads]
    assert np.abs(vectors[0] - vectors[1]).max() > 1e-3
    for head, vector in zip(again.heads, vectors, strict=True):
        assert np.array_equal(numpy(head.score_vector), vector)


@pytest.mark.parametrize("inside", [False, True])
def test_each_head_drops_its_own_memory_steps(inside):
    """With unit vectors as memory and identities as kernels, the output shows what was read."""
    layer, size = MultiHead(BahdanauAttention(17, dropout=0.4, seed=3), 2), 8
    decoder = AttentionRNN(keras.layers.GRUCell(5), layer, output_mode="attention")
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


def test_the_loss_on_the_weights_is_that_of_their_mean():
    layer = MultiHead(CoverageAttention(17, loss_weight=0.5), 3)
    query, value = normal(1, B, TQ, DQ), normal(2, B, TK, DV)
    _, weights = layer(query, value, return_attention_scores=True)
    one = CoverageAttention(17, loss_weight=0.5)
    expected = one.sequence_loss(weights, None, None)
    assert len(layer.losses) == 1
    assert_close(layer.losses[0], numpy(expected), "float32")


def decoders():
    attention = LocationSensitiveAttention(17, filters=3, kernel_size=5)
    rnns = [keras.layers.GRU(n, return_sequences=True) for n in (7, 11)]
    return {
        "loop": AttentionRNN(keras.layers.GRUCell(11), MultiHead(attention, 3)),
        "stack": DecoderStack(rnns, MultiHead(attention, 3)),
    }


def arrays():
    return normal(1, B, 5, 3, dtype="float32"), normal(2, B, TK, DV, dtype="float32")


@pytest.mark.parametrize("name", decoders())
def test_in_a_decoder_the_steps_equal_the_whole(name):
    state = assert_steps_equal_the_call(decoders()[name], *arrays(), lengths_mask([5, 7], TK))
    assert len(keras.tree.flatten(state.attention)) == 3


def test_a_decoder_resumes_with_the_states_of_all_heads():
    attention = MultiHead(LocationSensitiveAttention(17, 3, 5), 3)
    decoder = AttentionRNN(keras.layers.GRUCell(11), attention, return_state=True)
    sequences, memory = arrays()
    whole, *last = decoder(sequences, memory)
    assert len(last) == 4
    _, *state = decoder(sequences[:, :2], memory)
    rest, *again = decoder(sequences[:, 2:], memory, initial_state=state)
    assert_all_close([rest, *again], [whole[:, 2:], *last], "float32")


def test_the_weights_of_each_head_in_a_decoder():
    """A GRU has the query of a step, its last state, among its outputs."""
    decoder = AttentionRNN(keras.layers.GRUCell(11), MultiHead(LocationSensitiveAttention(7), 3))
    sequences, memory = arrays()
    outputs, weights = decoder(sequences, memory, return_attention_scores=True)
    queries = np.concatenate([np.zeros((B, 1, 11)), numpy(outputs)[:, :-1]], 1).astype("float32")
    of_heads = decoder.attention.head_weights(queries, decoder.prepare(memory))
    assert_close(weights, numpy(of_heads).mean(1), "float32")


def test_each_beam_carries_the_states_of_all_heads():
    attention = MultiHead(LocationSensitiveAttention(17, 3, 5, dtype="float64"), 3)
    assert_beams_carry_states(attention, normal(2, B, TK, DV))


def test_heads_of_another_dtype():
    layer = MultiHead(MonotonicAttention(5), 2, dtype="float16")
    assert {head.base_attention.compute_dtype for head in layer.heads} == {"float16"}
    assert MultiHead(BahdanauAttention(5, dtype="float64"), 2).compute_dtype == "float64"


HEAD = BahdanauAttention(3)


@pytest.mark.parametrize(
    ("make", "fragments"),
    [
        (lambda: MultiHead(None, 2), ("`attention`", "built on ScoringMixin", "received None")),
        (lambda: MultiHead(BahdanauAttention, 2), ("`attention`", "BahdanauAttention(...)")),
        (
            lambda: MultiHead(HEAD, 2, dropout=0.1),
            ("`dropout`", "each head", "received 0.1", "BahdanauAttention(..., dropout=...)"),
        ),
        (
            lambda: MultiHead(HEAD, 2, normalizer="sparsemax"),
            ("`normalizer`", "each head", "received 'sparsemax'"),
        ),
        (lambda: MultiHead(HEAD, 2, seed=4), ("`seed`", "each head", "received 4")),
        (
            lambda: MultiHead(BahdanauAttention(3, activity_regularizer="l2"), 2),
            ("`attention`", "`activity_regularizer`", "Give it to MultiHead."),
        ),
        (
            lambda: MultiHead(HEAD, 4)(np.ones((1, 2, 5)), np.ones((1, 2, 3))),
            ("`num_heads`", "features of `value`", "num_heads=4, and 3 features"),
        ),
        (
            lambda: MultiHead(MemoryHop(), 2)(np.ones((1, 5)), np.ones((1, 2, 5))),
            ("a head reads 3 of the 5 features", "head_0: `value` must be", "has 5 features"),
        ),
    ],
)
def test_refusals(make, fragments):
    assert_refused(make, *fragments)


def test_a_state_that_does_not_fit():
    layer = MultiHead(LocationSensitiveAttention(7), 3)
    layer.build((B, DQ), (B, TK, DV))
    memory = layer.prepare(np.ones((B, TK, DV)))
    query, wrong = np.ones((B, DQ)), [ops.zeros((B, TK))] * 2
    assert_refused(lambda: layer.attend(query, memory, wrong), "`state`", "shapes")
    assert_refused(lambda: layer.head_weights(query, memory, wrong), "`state`", "shapes")
    plain = MultiHead(BahdanauAttention(7), 3)
    plain.build((B, DQ), (B, TK, DV))
    memory = plain.prepare(np.ones((B, TK, DV)))
    assert_refused(lambda: plain.head_weights(query, memory, wrong), "no state", "Leave `state`")


class Doubled(MultiHead):
    def combine(self, query, context):
        return 2 * super().combine(query, context)


class Summed(MultiHead):
    def sequence_loss(self, weights, query_mask, memory_mask):
        return ops.sum(weights)


@pytest.mark.parametrize("fed", [False, True])
def test_a_decoder_uses_the_combine_of_a_subclass(fed):
    attention = Doubled(BahdanauAttention(5), 2)
    options = {"query": "current", "input_feeding": fed}
    decoder = AttentionRNN(keras.layers.GRUCell(7), attention, **options)
    assert_steps_equal_the_call(decoder, *(normal(n, B, 3, DV, dtype="float32") for n in (1, 2)))


def test_the_loss_of_a_subclass():
    layer = Summed(BahdanauAttention(5), 2)
    layer(*(normal(n, B, 3, DV, dtype="float32") for n in (1, 2)))
    assert [float(numpy(x)) for x in layer.losses] == pytest.approx([3 * B], rel=1e-5)


@pytest.mark.parametrize("hook", ["score", "project_query", "project_key", "weigh", "window"])
def test_hooks_of_the_heads_are_refused(hook):
    function = getattr(BahdanauAttention, hook)
    with pytest.raises(TypeError, match=f"Mine: `{hook}` is a hook of the attentions inside"):
        type("Mine", (MultiHead,), {hook: function})


def test_the_seed_after_the_largest_is_zero():
    heads = MultiHead(BahdanauAttention(3, dropout=0.4, seed=2**32 - 1), 2).heads
    assert [head.seed for head in heads] == [2**32 - 1, 0]
