"""Layers warn if a recurrent layer dropped the mask of their memory, as in Keras 3.16."""

import warnings

import keras
import pytest
from keras import layers

from keras_attention import (
    AttentionPooling,
    AttentionRNN,
    BahdanauAttention,
    BiDAFAttentionFlow,
    LuongAttention,
)

CALLS = {
    "value": lambda x, y, mask: BahdanauAttention(3)(x, y, value_mask=mask),
    "key": lambda x, y, mask: LuongAttention()(x, y, y, value_mask=mask),
    "memory": lambda x, y, mask: AttentionRNN(layers.GRUCell(3), BahdanauAttention(3))(
        x, y, memory_mask=mask
    ),
    "context": lambda x, y, mask: BiDAFAttentionFlow()(y, x, context_mask=mask),
    "query of a flow": lambda x, y, mask: BiDAFAttentionFlow()(x, y, query_mask=mask),
    "inputs": lambda x, y, mask: AttentionPooling(3)(y, mask=mask),
}
every_call = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)


def gru(drops):
    """A GRU that drops masks, whatever the version of Keras is, or one that passes them."""
    layer = layers.GRU(6, return_sequences=True, name="encoder")
    layer.supports_masking = not drops
    return layer


def encoded(embedding, drops=True):
    """Ids, and their vectors behind a GRU and a layer that passes masks."""
    ids = keras.Input((None,), dtype="int32")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*does not support masking")
        return ids, layers.Dropout(0.1)(gru(drops)(embedding(ids)))


def query():
    return keras.Input((None, 6))


@every_call
def test_a_dropped_mask_is_noticed(call):
    _, memory = encoded(layers.Embedding(5, 4, mask_zero=True, name="words"))
    message = r"has no mask, .* such as 'encoder' do not propagate masks.* of 'words'"
    with pytest.warns(UserWarning, match=message):
        call(query(), memory, None)


@every_call
def test_a_mask_that_is_passed_is_enough(call):
    embedding = layers.Embedding(5, 4, mask_zero=True)
    ids, memory = encoded(embedding)
    call(query(), memory, embedding.compute_mask(ids))


@every_call
@pytest.mark.parametrize("marks", [True, False])
def test_a_mask_that_arrives_or_never_was_is_no_reason_to_warn(call, marks):
    _, memory = encoded(layers.Embedding(5, 4, mask_zero=marks), drops=not marks)
    call(query(), memory, None)


def test_the_warning_names_the_argument():
    _, memory = encoded(layers.Embedding(5, 4, mask_zero=True))
    with pytest.warns(UserWarning, match=r"`memory` has no mask.*pass it as memory_mask=\.\.\."):
        CALLS["memory"](query(), memory, None)
    with pytest.warns(UserWarning, match=r"`query` has no mask.*pass it as query_mask=\.\.\."):
        CALLS["query of a flow"](query(), memory, None)


def test_a_masking_layer_marks_too():
    inputs = keras.Input((None, 4))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*does not support masking")
        memory = gru(drops=True)(layers.Masking(name="missing")(inputs))
    with pytest.warns(UserWarning, match="of 'missing'"):
        CALLS["value"](query(), memory, None)


def test_default_names_are_not_used_up():
    keras.backend.clear_session()
    _, memory = encoded(layers.Embedding(5, 4, mask_zero=True))
    with pytest.warns(UserWarning, match="has no mask"):
        outputs = CALLS["value"](query(), memory, None)
    sources = keras.utils.get_source_inputs(outputs)
    assert keras.Model(sources, outputs).name == "functional"


def masked_encoding():
    return encoded(layers.Embedding(5, 4, mask_zero=True))[1]


def steps_of(make):
    """The steps of a recurrent layer behind others, which are not those of the embedding."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*does not support masking")
        words = layers.Embedding(5, 4, mask_zero=True)(keras.Input((None,), dtype="int32"))
        return AttentionPooling(3)(make(words, gru(drops=True)))


NO_REASON = {
    "the query of an attention": lambda: BahdanauAttention(3)(masked_encoding(), query()),
    "an attention mask": lambda: BahdanauAttention(3)(
        query(), masked_encoding(), attention_mask=keras.Input((None, None), dtype="bool")
    ),
    "two layers of one name": lambda: AttentionPooling(3)(
        layers.Dense(4, name="encoder")(masked_encoding())
    ),
    "a tensor from nowhere": lambda: BahdanauAttention(3)(
        *[keras.KerasTensor((None, None, 6))] * 2
    ),
    "the output of an attention": lambda: steps_of(
        lambda words, rnn: BahdanauAttention(3)(
            query(), rnn(words), value_mask=keras.Input((None,), dtype="bool")
        )
    ),
    "a last state": lambda: steps_of(
        lambda words, rnn: rnn(layers.RepeatVector(4)(layers.LSTM(6)(words)))
    ),
    "a category": lambda: steps_of(
        lambda words, rnn: layers.Concatenate()(
            [rnn(keras.Input((3, 4))), layers.RepeatVector(3)(layers.GlobalMaxPooling1D()(words))]
        )
    ),
    "a convolution": lambda: steps_of(
        lambda words, rnn: rnn(layers.Conv1D(3, 3, strides=2)(words))
    ),
}


@pytest.mark.parametrize("name", NO_REASON)
def test_no_reason_to_warn(name):
    """Padding may be there, is hidden in another way, or has a mask that would not fit."""
    NO_REASON[name]()


def test_an_encoder_may_be_a_model():
    encoder = keras.Model(*encoded(layers.Embedding(5, 4, mask_zero=True)), name="reader")
    with pytest.warns(UserWarning, match="such as 'encoder' do not propagate"):
        AttentionPooling(3)(encoder(keras.Input((None,), dtype="int32")))
