"""Wrong cells, attentions, arguments and calls of a decoder are refused by name."""

from functools import partial

import keras
import numpy as np
import pytest
from keras import layers

from keras_attention import AttentionRNN, BahdanauAttention, LuongAttention, MultiHead, MultiSource
from keras_attention.decoder import DecoderState
from keras_attention.layers import CoverageAttention
from tests.backends import on_tensorflow, tensor
from tests.decoder.cases import CASES, DV, FEEDING, PREVIOUS, D, H, T, tensors
from tests.helpers import TK, B, arguments, assert_refused, normal, refusals

KEEPS = "must not keep anything between steps"


class CountingAttention(BahdanauAttention):
    """Multiplies its scores by the number of the call, which it keeps in an attribute."""

    steps = 0

    def score(self, query, key):
        self.steps = self.steps + 1
        return self.steps * super().score(query, key)


class Last(BahdanauAttention):  # adds the scores of the call before, which it keeps in a list
    def __init__(self, units, **kwargs):
        super().__init__(units, **kwargs)
        self.last = []

    def score(self, query, key):
        self.last.append(super().score(query, key))
        return sum(self.last[-2:])


class Cumulating(BahdanauAttention):
    """Adds its scores up in a weight, and subtracts the sum of the score of the first step."""

    def build(self, *shapes):
        super().build(*shapes)
        self.total = self.add_weight((1, 1, TK), initializer="zeros", trainable=False, name="total")

    def score(self, query, key):
        scores = super().score(query, key)
        self.total.assign(self.total + keras.ops.mean(scores, axis=(0, 1), keepdims=True))
        return scores - keras.ops.convert_to_tensor(self.total)


@on_tensorflow
@pytest.mark.parametrize("options", [PREVIOUS, FEEDING])
@pytest.mark.parametrize("kind", [CountingAttention, Last, Cumulating])
@pytest.mark.each_value
def test_an_attention_that_keeps_something_is_refused(kind, options):
    import tensorflow as tf

    inputs = tensors("float32")
    for call in (
        lambda layer: layer(*inputs),
        lambda layer: tf.function(layer)(*[tensor(x, "float32") for x in inputs]),
        lambda layer: layer(*[keras.Input(x.shape[1:]) for x in inputs]),
    ):
        layer = AttentionRNN(layers.GRUCell(H), kind(17), **options)
        assert_refused(partial(call, layer), KEEPS)


@on_tensorflow
def test_an_attention_inside_another_that_keeps_something_is_refused():
    sequences, memory = tensors("float32")
    for attention, given in (
        (MultiSource([Last(17), BahdanauAttention(13)]), [memory] * 2),
        (MultiHead(Last(17), 2), memory),
    ):
        layer = AttentionRNN(layers.GRUCell(H), attention, **PREVIOUS)
        assert_refused(partial(layer, sequences, given), KEEPS)


CELL, ATTENTION = layers.GRUCell(H), BahdanauAttention(17)
test_bad_arguments = refusals(*(
    (lambda args=args, options=options: AttentionRNN(*args, **options), *words)
    for args, options, *words in (
        ((3, ATTENTION), {}, "`cell`", "a Keras RNN cell", "received 3"),
        (([], ATTENTION), {}, "`cell`", "received []"),
        (([layers.Dense(3)], ATTENTION), {}, "cell", "`state_size`", "Dense"),
        ((CELL, layers.Attention()), {},
         "`attention`", "built on ScoringMixin", "received <Attention"),
        ((CELL, None), {}, "`attention`", "ScoringMixin", "received None"),
        ((CELL, ATTENTION), {"query": "next"},
         "`query`", "'previous', 'current'", "received 'next'"),
        ((CELL, ATTENTION), {"output_mode": "context"},
         "`output_mode`", "'cell', 'attention', 'concat'", "received 'context'"),
        ((CELL, ATTENTION), {"query": "previous", "input_feeding": True},
         "`input_feeding=True`", 'query="current"', "query='previous'"),
        ((CELL, BahdanauAttention(17, dtype="float64")), {},
         "in one dtype", "float32 for the decoder, float64 for `attention`"),
        (([CELL, layers.GRUCell(3, dtype="mixed_float16")], ATTENTION), {},
         "in one dtype", "float32 for the decoder, float16 for `cell`"),
        (([layers.GRUCell(3), layers.GRUCell(H, activity_regularizer="l2")], ATTENTION), {},
         "`cell` must have no `activity_regularizer`", "AttentionRNN(..., activity_reg"),
        ((CELL, BahdanauAttention(17, activity_regularizer="l2")), {},
         "`attention` must have no `activity_regularizer`", "Give it to the decoder"),
    )
))  # fmt: skip
GOOD = {"sequences": (B, T, D), "memory": (B, TK, DV)}


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("built", [False, True])
@pytest.mark.parametrize("states", [[(B, H + 1)], [(3, H)], [(B, 1, H)], [(B, H), (B, H)]])
@pytest.mark.each_value
def test_initial_states_of_other_shapes(states, built, symbolic):
    layer = AttentionRNN(layers.GRUCell(H), BahdanauAttention(17))
    if built:
        layer.build((None, None, D), (None, None, DV))
    inputs = arguments({**GOOD, **{str(n): shape for n, shape in enumerate(states)}}, symbolic)
    given = [inputs.pop(str(n)) for n in range(len(states))]
    given = given if len(given) > 1 else given[0]
    # Keras makes the batch of a list of symbols unknown.
    wanted = "`initial_state` must hold 1 cell state [(", f"received {len(states)}, {states}"
    exact = [] if symbolic and len(states) > 1 else ["1 cell state [(2, 11)]"]
    assert_refused(lambda: layer(**inputs, initial_state=given), *wanted, *exact)


@pytest.mark.parametrize("symbolic", [False, True])
def test_dot_needs_a_cell_as_wide_as_the_memory(symbolic):
    layer = AttentionRNN(layers.GRUCell(H), LuongAttention("dot"), query="current")
    assert_refused(lambda: layer(**arguments(GOOD, symbolic)), "same width", "query 11 and key 13")


def test_the_dtype_is_that_of_the_cell():
    cells = [layers.GRUCell(n, dtype="mixed_float16") for n in (3, 2)]
    for cell in (cells[0], cells):
        layer = AttentionRNN(cell, BahdanauAttention(17, dtype="mixed_float16"))
        assert layer.dtype_policy == keras.DTypePolicy("mixed_float16")
        assert layer.cell.dtype_policy == layer.dtype_policy


@pytest.mark.parametrize(("change", "words"), [(change, words) for change, *words in (
    ({"memory": None}, "`memory` must be what prepare(memory, memory_mask) returns", "None"),
    ({"memory": DecoderState([], None, None, None)}, "`memory`", "received DecoderState."),
    ({"inputs": normal(1, B, 1, D)},
     "`inputs` must be", "of shape (2, 3)", "received float64 of shape (2, 1, 3)"),
    ({"inputs": normal(1, B, D + 1)}, "built for `inputs` of 3 features; received float64 of "),
    ({"state": None}, "`state` must be the DecoderState", "received None"),
    ({"state": [normal(0, 2, 7)]}, "`state` must be", "received [float64 of shape (2, 7)]."),
)])  # fmt: skip
def test_bad_arguments_of_a_step(change, words):
    layer = CASES["bahdanau"].built()
    memory = layer.prepare(normal(0, B, TK, DV))
    given = {"inputs": normal(1, B, D), "state": layer.get_initial_state(memory), "memory": memory}
    assert_refused(lambda: layer.step(**given | change), *words)


@pytest.mark.parametrize("attention", [BahdanauAttention, CoverageAttention])
def test_an_attention_that_was_built_for_other_sizes(attention):
    attention = attention(4)
    attention(np.ones((B, T, H + 1)), np.ones((B, TK, DV)))
    for name, features, units, size in (("query", 12, H, DV), ("value", 13, H + 1, DV + 1)):
        message = f"the layer was built for `{name}` of {features} features; received"
        decoder = AttentionRNN(layers.GRUCell(units), attention)
        call = partial(decoder, np.ones((B, T, D)), np.ones((B, TK, size)))
        assert_refused(call, message)


def test_decoding_before_the_weights_exist():
    layer = CASES["bahdanau"].make()
    assert_refused(lambda: layer.get_initial_state(None), "no weights yet. Call it once, or")
    assert_refused(lambda: layer.prepare(normal(0, B, TK, DV)), "no weights yet")
