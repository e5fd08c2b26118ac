"""Mistakes of newcomers: the message says what was given, what was expected, what to write."""

import functools

import numpy as np
import pytest
import tensorflow as tf
from keras import layers, ops

import keras_attention as ka
from keras_attention.attention import Memory
from keras_attention.ops import compiling
from tests.helpers import assert_refused, refusals

B, TQ, TK, D = 2, 3, 7, 5
QUERY, VALUE, WIDER = (np.ones(shape, "float32") for shape in ((B, TQ, D), (B, TK, D), (B, TK, 11)))
STEP, WORDS = QUERY[:, 0], VALUE[:, None]
MASK = np.ones((B, TK), bool)
STORY, ASKED = np.ones((B, 3, 4), "int32"), np.ones((B, 4), "int32")
RAGGED = tf.ragged.constant([[[1.0, 2.0], [3.0, 4.0]], [[5.0, 6.0]]], ragged_rank=1)


def network(**options):
    return ka.MemoryNetwork(**{"vocabulary_size": 9, "units": 4, **options})


def additive(*inputs, **options):
    return ka.BahdanauAttention(4)(*inputs, **options)


def local(**options):
    return ka.LuongAttention(alignment="local-m")(STEP, VALUE, **options)


def decoder(cell=None, attention=None, **options):
    cell, attention = cell or layers.GRUCell(4), attention or ka.BahdanauAttention(3)
    return ka.AttentionRNN(cell, attention, **options)


def start(state, cell=None):
    return decoder(cell)(QUERY, VALUE, initial_state=state)


def called(layer, *inputs):
    layer(*inputs)
    return layer


def read():
    return called(ka.BahdanauAttention(4), QUERY, VALUE)


def started():
    layer = called(decoder(), QUERY, VALUE)
    memory = layer.prepare(VALUE)
    return layer, layer.get_initial_state(memory), memory


def step(inputs=STEP, state=None, memory=None):
    layer, first, prepared = started()
    return layer.step(inputs, first if state is None else state, memory or prepared)


# A function that makes the layer, and the inputs of a call.
LAYERS = {
    "bahdanau": (lambda: ka.BahdanauAttention(4), (QUERY, VALUE)),
    "luong": (ka.LuongAttention, (QUERY, VALUE)),
    "flow": (ka.BiDAFAttentionFlow, (QUERY, VALUE)),
    "pooling": (lambda: ka.AttentionPooling(4), (VALUE,)),
    "hierarchical": (lambda: ka.HierarchicalAttention(4), (WORDS,)),
    "hop": (ka.MemoryHop, (STEP, VALUE)),
    "network": (network, (STORY, ASKED)),
    "decoder": (decoder, (QUERY, VALUE)),
}
every_layer = pytest.mark.parametrize(("make", "inputs"), LAYERS.values(), ids=LAYERS)

# Every boolean argument of a constructor, and a function that takes it.
BOOLEANS = {
    **dict.fromkeys(["use_bias", "weight_norm"], functools.partial(ka.BahdanauAttention, 4)),
    **dict.fromkeys(["query_to_context", "context_to_query"], ka.BiDAFAttentionFlow),
    "input_feeding": lambda **x: decoder(None, ka.LuongAttention(), **x),
    **dict.fromkeys(["return_state", "unroll"], decoder),
    "null_memories": network,
}


@pytest.mark.parametrize(("name", "make"), BOOLEANS.items(), ids=BOOLEANS)
def test_booleans_must_be_true_or_false(name, make):
    for given in ("no", "", 0, 1, None, []):
        fragments = f"`{name}` must be True or False", repr(given)
        assert_refused(lambda given=given: make(**{name: given}), *fragments)
    assert make(**{name: np.True_}).get_config()[name] is True


@every_layer
def test_flags_of_a_call(make, inputs):
    layer, name = make(), "return_attention_scores"
    for given in ("False", 1, None, tf.constant(True)):
        words = f"`{name}` must be True or False"
        assert_refused(lambda given=given: layer(*inputs, **{name: given}), words)
    assert_refused(lambda: layer(*inputs, training="no"), "`training` must be None, True or False")
    assert len(layer(*inputs, **{name: np.True_})) == len(layer(*inputs, **{name: True})) == 2
    for training in (None, True, 0, np.True_, tf.constant(False)):
        layer(*inputs, training=training)


@pytest.mark.parametrize("make", [lambda: ka.BahdanauAttention(4), ka.LuongAttention, ka.MemoryHop])
def test_use_causal_mask_must_be_a_boolean(make):
    layer = called(make(), QUERY, VALUE)
    assert_refused(lambda: layer(QUERY, VALUE, use_causal_mask="no"), "`use_causal_mask` must be ")
    for name in ("use_causal_mask", "return_attention_scores", "training"):
        attend = functools.partial(layer.attend, QUERY, layer.prepare(VALUE), **{name: "no"})
        assert_refused(attend, f"`{name}` must be ")


def repeat(tokens, state, memory):
    return ops.one_hot(tokens, 5), state, None


def search(kind, step=repeat, memory=STEP, **x):
    return kind(step, None, memory, **{"start_token": 1, "end_token": 2, "max_length": 4, **x})


# The name of a number, its largest allowed value, and a function that takes it.
NUMBERS = [
    ("units", 2**20, ka.BahdanauAttention),
    ("units", 2**20, lambda n: ka.LuongAttention(units=n)),
    ("half_width", 2**24, lambda n: ka.LuongAttention(alignment="local-p", half_width=n)),
    ("max_length", 2**24, lambda n: ka.LuongAttention("location", max_length=n)),
    *((name, most, lambda n, name=name: network(**{name: n})) for name, most in (
        ("vocabulary_size", 2**24), ("memory_size", 2**24), ("position_encoding", 2**24),
        ("hops", 100))),
    ("seed", 2**32 - 1, lambda n: ka.HierarchicalAttention(4, dropout=0.1, seed=n)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "most", "make"), NUMBERS)
def test_numbers_that_are_too_large(name, most, make):
    assert make(most).get_config()[name] == most
    for given in (most + 1, 2**62, 2**70):
        assert_refused(lambda given=given: make(given), f"`{name}`", str(most), f"received {given}")


@pytest.mark.parametrize("kind", [ka.greedy_search, ka.beam_search])
def test_searches_with_numbers_that_are_too_large(kind):
    limits = {"max_length": 2**20, "start_token": 2**31 - 1, "end_token": 2**31 - 1}
    limits |= {"beam_width": 2**12, "length_penalty": 5} if kind is ka.beam_search else {}
    for name, most in limits.items():
        words = f"`{name}` must be", f"{most}", f"received {2**31}"
        assert_refused(lambda name=name: search(kind, **{name: 2**31}), *words)


def test_too_many_steps_to_unroll():
    words = "It needs a known number of steps, at most 1000; received (2, 1001, 5). Give the number"
    for layer in (decoder(unroll=True), called(decoder(unroll=True), QUERY, VALUE)):
        call = functools.partial(layer, np.ones((B, 1001, D), "float32"), VALUE)
        assert_refused(call, "`unroll=True` copies the loop for every step. " + words)


def test_seeds():
    assert_refused(lambda: ka.BahdanauAttention(4, seed=-1), "`seed`", "received -1")
    called(ka.BahdanauAttention(4, dropout=0.5, seed=np.int64(3)), QUERY, VALUE)
    called(ka.HierarchicalAttention(4, dropout=0.5, seed=2**32 - 1), WORDS)


UNITS = "`units` must be a positive integer, at most 1048576; received "
BY_NAME = "Pass a mask by its name: `query_mask` or `value_mask` or `attention_mask`."
PREPARED = "received Memory. A prepared memory goes to attend() or step()."

test_constructors = refusals(
    (lambda: ka.LuongAttention(max_length=9),
     '`max_length` is for score_mode="location" only; received 9. Leave it out.'),
    (lambda: ka.BahdanauAttention("64"), UNITS + "'64' of type str. Write units=64."),
    (lambda: ka.BahdanauAttention(4, scores="dot"),
     "Unrecognized keyword arguments passed to BahdanauAttention: {'scores': 'dot'}"),
    (lambda: ka.BahdanauAttention(4, dropout=50), "received 50. 50 % is 0.5."),
    (lambda: ka.HierarchicalAttention(4, word_encoder=layers.GRUCell(3)),
     "`word_encoder` must be None, or a layer that returns a vector for every step",
     "received <GRUCell", "A cell makes one step: pass keras.layers.RNN(cell, return_sequences=T"),
    *((compiling(x).__enter__, "`choice` must be True, False or None", repr(x))
      for x in ("False", 0, 1)),
    # Decoders.
    (lambda: decoder(layers.GRU(4)), "received <GRU",
     "It runs over whole sequences; pass a cell, such as keras.layers.GRUCell(units)."),
    (lambda: decoder(layers.GRUCell), "received the class GRUCell. Make one: GRUCell(...)."),
    (lambda: decoder(ka.BahdanauAttention(3), layers.GRUCell(4)),
     "received <BahdanauAttention", "Call AttentionRNN(cell, attention), the cell first."),
)  # fmt: skip

test_calls = refusals(
    (lambda: additive(QUERY.tolist(), VALUE), "`query` must be floating-point", "[[[1.0, 1.0,"),
    (lambda: additive(RAGGED, RAGGED),
     "received ragged float32 of shape (2, None, 2). Pad it: query.to_tensor(), and pass its"),
    (lambda: additive(QUERY, tf.sparse.from_dense(VALUE)), "`value` must be floating-point",
     "received sparse float32 of shape (2, 7, 5). Convert it: tf.sparse.to_dense(value)."),
    # Positions.
    (local,
     "`position`, the numbers of the steps of the query, must be an integer from 0, or integers "
     "of shape (2,); received None.",
     "Pass position=i, with i = 0, 1, 2 and so on, to the call or to attend()."),
    (lambda: ka.LuongAttention(alignment="local-m")(QUERY, VALUE, position=3),
     "must be integers of shape (2, 3); received 3. Leave it out to count from 0."),
    (lambda: ka.LuongAttention()(STEP, VALUE, position=3),
     "`position` is for attentions that count steps, such as local-m; received 3. Leave it out."),
    (lambda: local(position=-1), "must be an integer from 0, or integers of shape (2,)"),
    (lambda: local(position=np.arange(3)),
     "or integers of shape (2,); received int64 of shape (3,)."),
)  # fmt: skip

test_masks = refusals(
    (lambda: additive(QUERY, VALUE, value_mask=tf.ragged.constant([[True], [True, False]])),
     "`value_mask` must be boolean, of shape (2, 7); received ragged bool of shape (2, None). "
     "Pad it: value_mask.to_tensor()"),
    (lambda: decoder()(QUERY, VALUE, MASK), "`initial_state`",
     "received dtype bool. Pass a mask by its name: `sequences_mask` or `memory_mask`."),
    (lambda: read().prepare(VALUE, MASK), "`key` must be ", BY_NAME + " Call layer.prepare("),
)  # fmt: skip

test_memories_and_states = refusals(
    *((lambda name=name: setattr(called(LAYERS[name][0](), *LAYERS[name][1]), "linear", "False"),
       "`linear` must be True or False") for name in ("hop", "network")),
    (lambda: read().attend(QUERY, VALUE),
     "`memory` must come from prepare(value, value_mask=mask); received float32 of shape (2, "
     "7, 5). Call it once, before the first query. Or call layer(query, value)."),
    (lambda: ka.BahdanauAttention(4).attend(QUERY, Memory(VALUE, VALUE)), "has no weights yet"),
    (lambda: additive(QUERY, Memory(VALUE, VALUE)),
     "`value` must be floating-point, of shape (2, memory steps, features); " + PREPARED),
    (lambda: read().prepare(Memory(VALUE, VALUE)), PREPARED + " Call layer.prepare(value)."),
    (lambda: start({"h": STEP, "c": STEP}, layers.LSTMCell(4)),
     "`initial_state` must be a tensor or a list", "[h, c]; received a dictionary of 'h', 'c'."),
    (lambda: start(np.zeros((B, 4), int)),
     "must hold vectors of floating-point numbers, as of an encoder; received dtype int64."),
    (lambda: started()[0](QUERY, started()[2]), "`memory` must be floating-point", PREPARED),
    (lambda: started()[0].prepare(WIDER), "attention_rnn", "was built for `memory` of 5 features",
     "Call prepare(memory, memory_mask=mas"),
    (lambda: start(True), "`initial_state` must hold tensors; received True. Pass the cell states"),
    (lambda: start([np.zeros((B, n), "float32") for n in (6, 4)], [*map(layers.GRUCell, (4, 6))]),
     "cell states [(2, 4), (2, 6)]; received 2, [(2, 6), (2, 4)]."),
    (lambda: decoder().step(STEP, None, Memory(VALUE, VALUE)),
     "has no weights yet. Call it once, or its build(), before decoding."),
    (lambda: step(np.repeat(STEP, 5, axis=0)),
     "because `memory` has batch size 2", ". In a search, use the memory that it passes to `st"),
    (lambda: step(state=started()[1]._replace(cells=[np.zeros((B, 9), "float32")])),
     "`state` must hold 1 cell state [(2, 4)]; received 1, [(2, 9)]."),
    (lambda: started()[0].get_initial_state(B),
     "`memory` must be what prepare(memory, memory_mask) returns, made once before the first step"),
)  # fmt: skip


@pytest.mark.parametrize(("name", "given", "known"), [
    ("bahdanau", "mask", "`query_mask` or `value_mask` or `attention_mask`"),
    ("flow", "value_mask", "`context_mask` or `query_mask`"),
    ("pooling", "value_mask", "`mask`"),
    ("decoder", "value_mask", "`sequences_mask` or `memory_mask`"),
])  # fmt: skip
def test_masks_by_an_unknown_name(name, given, known):
    make, inputs = LAYERS[name]
    words = f"the call takes no `{given}`.*Pass a mask by its name: {known}\\."
    with pytest.raises(TypeError, match=words):
        make()(*inputs, **{given: MASK})
    with pytest.raises(TypeError, match=r"the call takes no `values`; it takes query, value, key"):
        additive(QUERY, values=VALUE)


def test_the_mixin_is_a_layer_and_goes_before_others():
    both = type("Both", (ka.ScoringMixin, layers.Layer), {"score": lambda self, q, k: q @ k})
    assert isinstance(both(), layers.Layer)
    with pytest.raises(TypeError, match="consistent method resolution"):
        type("Late", (layers.Layer, ka.ScoringMixin), {})


def test_masks_by_position():
    """Keras would pass masks that are None twice."""
    layer, mask = ka.BahdanauAttention(4), np.arange(TK) < [[3], [3]]
    found = layer(QUERY, VALUE, None, None, mask)
    assert np.array_equal(found, layer(QUERY, VALUE, value_mask=mask))


test_searches = refusals(
    (lambda: search(ka.beam_search, start_token=tf.constant(1)),
     "`start_token` must be an integer from 0 to 2147483647", "Write start_token=1."),
    (lambda: search(ka.greedy_search, step=None),
     "`step` must be a function step(tokens, state, memory)", "None"),
    (lambda: search(ka.beam_search, memory=RAGGED),
     "`memory` must be a dense tensor; received ragged float32 of shape (2, None, 2). Pad it"),
)  # fmt: skip
