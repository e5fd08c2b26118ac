"""Layers warn if a recurrent layer dropped the mask of their memory, as in Keras 3.16."""

import warnings

import keras
import pytest
from keras import layers

import keras_attention as ka

CALLS = {
    "value": lambda x, y, mask: ka.BahdanauAttention(3)(x, y, value_mask=mask),
    "value, and key": lambda x, y, mask: ka.LuongAttention()(x, y, y, value_mask=mask),
    "memory": lambda x, y, mask: ka.AttentionRNN(
        layers.GRUCell(3), ka.BahdanauAttention(3))(x, y, memory_mask=mask),
    "context": lambda x, y, mask: ka.BiDAFAttentionFlow()(y, x, context_mask=mask),
    "query, of a flow": lambda x, y, mask: ka.BiDAFAttentionFlow()(x, y, query_mask=mask),
    "inputs": lambda x, y, mask: ka.AttentionPooling(3)(y, mask=mask),
}  # fmt: skip


def gru(drops):
    layer = layers.GRU(6, return_sequences=True, name="encoder")
    layer.supports_masking = not drops
    return layer


def encoded(embedding, drops=True):
    ids = keras.Input((None,), dtype="int32")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*does not support masking")
        return ids, layers.Dropout(0.1)(gru(drops)(embedding(ids)))


def query():
    return keras.Input((None, 6))


def masked_encoding():
    return encoded(layers.Embedding(5, 4, mask_zero=True))[1]


@pytest.mark.parametrize("name", CALLS)
def test_a_dropped_mask_is_noticed(name):
    """A mask that arrives, is passed, or never was is no reason to warn."""
    call, argument = CALLS[name], name.split(",")[0]
    embedding = layers.Embedding(5, 4, mask_zero=True, name="words")
    ids, memory = encoded(embedding)
    mask = "mask" if argument == "inputs" else f"{argument}_mask"
    message = f"`{argument}` has no mask, .* such as 'encoder' do not .* of 'words'.* as {mask}=[.]"
    with pytest.warns(UserWarning, match=message):
        call(query(), memory, None)
    call(query(), memory, embedding.compute_mask(ids))
    for marks in (True, False):
        _, memory = encoded(layers.Embedding(5, 4, mask_zero=marks), drops=not marks)
        call(query(), memory, None)


def test_a_masking_layer_marks_too_and_an_encoder_may_be_a_model():
    inputs = keras.Input((None, 4))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*does not support masking")
        memory = gru(drops=True)(layers.Masking(name="missing")(inputs))
    encoder = keras.Model(inputs, memory, name="reader")
    for encoded in (memory, encoder(keras.Input((None, 4)))):
        with pytest.warns(UserWarning, match="such as 'encoder' do not .* of 'missing'"):
            CALLS["value"](query(), encoded, None)


def test_default_names_are_not_used_up():
    keras.backend.clear_session()
    memory = masked_encoding()
    with pytest.warns(UserWarning, match="has no mask"):
        outputs = CALLS["value"](query(), memory, None)
    sources = keras.utils.get_source_inputs(outputs)
    assert keras.Model(sources, outputs).name == "functional"


def steps_of(make):
    """The steps of a recurrent layer behind others, which are not those of the embedding."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*does not support masking")
        words = layers.Embedding(5, 4, mask_zero=True)(keras.Input((None,), dtype="int32"))
        return ka.AttentionPooling(3)(make(words, gru(drops=True)))


def mask(*shape):
    return keras.Input(shape, dtype="bool")


@pytest.mark.parametrize("call", {
    "the query of an attention": lambda: ka.BahdanauAttention(3)(masked_encoding(), query()),
    "an attention mask": lambda: ka.BahdanauAttention(3)(
        query(), masked_encoding(), attention_mask=mask(None, None)),
    "two layers of one name": lambda: ka.AttentionPooling(3)(
        layers.Dense(4, name="encoder")(masked_encoding())),
    "a tensor from nowhere": lambda: ka.BahdanauAttention(3)(
        *[keras.KerasTensor((None, None, 6))] * 2),
    "the output of an attention": lambda: steps_of(
        lambda words, rnn: ka.BahdanauAttention(3)(query(), rnn(words), value_mask=mask(None))),
    "a last state": lambda: steps_of(
        lambda words, rnn: rnn(layers.RepeatVector(4)(layers.LSTM(6)(words)))),
    "a category": lambda: steps_of(lambda words, rnn: layers.Concatenate()(
        [rnn(keras.Input((3, 4))), layers.RepeatVector(3)(layers.GlobalMaxPooling1D()(words))])),
    "a convolution": lambda: steps_of(
        lambda words, rnn: rnn(layers.Conv1D(3, 3, strides=2)(words))),
}.values())  # fmt: skip
def test_no_reason_to_warn(call):
    """Padding may be there, is hidden in another way, or has a mask that would not fit."""
    call()
