"""Weights of other packages in our layers: the same outputs, as docs/howto/migrate.md says."""

import keras
import numpy as np
import pytest

from keras_attention import AttentionRNN, BahdanauAttention, LuongAttention, MonotonicAttention
from tests.helpers import assert_all_close, assert_close, lengths_mask, normal, numpy

B, TQ, TK, DQ, DK, U = 2, 3, 5, 7, 11, 13
MASK = lengths_mask([5, 3], TK)


@pytest.fixture(autouse=True)
def float64():
    """Runs the layers in float64, as the formulas in NumPy do."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("float64")
    yield
    keras.config.set_dtype_policy(before)


def read(scores, value):
    scores = np.where(MASK[:, None], scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    return weights @ value, weights


def assert_same(layer, arrays, query, value, expected):
    """The layer with the arrays as its weights, in their order, and masked as `read` does it."""
    layer.build(query.shape, value.shape)
    named = arrays if isinstance(arrays, dict) else None
    layer.set_weights([np.asarray(named[x.name]) for x in layer.weights] if named else arrays)
    found = layer(query, value, value_mask=MASK, return_attention_scores=True)
    assert_all_close(found, expected)


@pytest.mark.parametrize("additive", [True, False])
def test_weights_of_keras(additive):
    kind = keras.layers.AdditiveAttention if additive else keras.layers.Attention
    theirs = kind(use_scale=True)
    query, value = normal(1, B, TQ, U), normal(2, B, TK, U)
    theirs.build([query.shape, value.shape])
    if not additive:
        theirs.set_weights([np.float64(0.7)])
    (scale,) = theirs.get_weights()
    expected = theirs([query, value], mask=[None, MASK], return_attention_scores=True)
    layer = BahdanauAttention(U) if additive else LuongAttention("general")
    arrays = [np.eye(U), np.eye(U), scale] if additive else [0.7 * np.eye(U)]
    assert_same(layer, arrays, query, value, [numpy(x) for x in expected])


def tfa_bahdanau(normalize):
    """Query, value, the scores of TFA's layer, and its weights by our names."""
    query, value = normal(1, B, TQ, DQ), normal(2, B, TK, DK)
    query_layer, memory_layer, v = normal(3, DQ, U), normal(4, DK, U), normal(5, U)
    g, b = (0.3, normal(6, U)) if normalize else (np.linalg.norm(v), np.zeros(U))
    pairs = (query @ query_layer)[:, :, None] + (value @ memory_layer)[:, None] + b
    named = {"query_kernel": query_layer, "key_kernel": memory_layer, "score_vector": v}
    scores = np.tanh(pairs) @ (g * v / np.linalg.norm(v))
    return query, value, scores, {**named, "bias": b, "gain": g}


@pytest.mark.parametrize("normalize", [False, True])
def test_weights_of_tfa_bahdanau(normalize):
    query, value, scores, named = tfa_bahdanau(normalize)
    layer = BahdanauAttention(U, use_bias=normalize, weight_norm=normalize)
    assert_same(layer, named, query, value, read(scores, value))


@pytest.mark.parametrize(("scale", "units"), [(0.3, None), (1.0, U)])
def test_weights_of_tfa_luong(scale, units):
    """With units, the attention layer of TFA's wrapper, of the cell's output and the context."""
    query, value = normal(1, B, TQ, DQ), normal(2, B, TK, DK)
    memory_layer, attention_layer = normal(4, DK, DQ), normal(5, DQ + DK, U)
    scores = scale * np.einsum("bqd,bkd->bqk", query, value @ memory_layer)
    context, weights = read(scores, value)
    arrays, expected = [scale * memory_layer.T], context
    if units:
        arrays.append(np.concatenate([attention_layer[DQ:], attention_layer[:DQ]]))
        expected = np.tanh(np.concatenate([query, context], -1) @ attention_layer)
    assert_same(LuongAttention("general", units=units), arrays, query, value, (expected, weights))


def test_weights_of_tfa_bahdanau_monotonic():
    query, value, scores, named = tfa_bahdanau(True)
    stops = MASK[:, None] / (1 + np.exp(-(scores - 0.7)))
    weights, last = np.zeros((B, TQ, TK)), np.eye(1, TK).repeat(B, axis=0)
    for i in range(TQ):
        reached = np.zeros(B)
        for j in range(TK):
            reached = last[:, j] + (reached * (1 - stops[:, i, j - 1]) if j else 0)
            weights[:, i, j] = stops[:, i, j] * reached
        last = weights[:, i]
    layer = MonotonicAttention(U, noise=0.0, initial_offset=0.0)
    named["offset_bias"] = -0.7
    assert_same(layer, named, query, value, (weights @ value, weights))


def test_weights_of_attention_keras():
    query, value = normal(1, B, TQ, DQ), normal(2, B, TK, DK)
    W_a, U_a, V_a = normal(3, DK, DK), normal(4, DQ, DK), normal(5, DK, 1)
    scores = np.tanh((value @ W_a)[:, None] + (query @ U_a)[:, :, None]) @ V_a[:, 0]
    named = {"query_kernel": U_a, "key_kernel": W_a, "score_vector": V_a[:, 0]}
    assert_same(BahdanauAttention(DK), named, query, value, read(scores, value))


@pytest.mark.parametrize("score_mode", ["general", "concat"])
def test_weights_of_philipperemys_attention(score_mode):
    """Its query is the last step of the sequence that it reads."""
    value, w_c = normal(1, B, TK, DK), normal(2, 2 * DK, U)
    query = value[:, -1:]
    if score_mode == "general":
        luong_w = normal(3, DK, DK)
        scores, named = query @ np.swapaxes(value @ luong_w, 1, 2), {"score_kernel": luong_w.T}
    else:
        w1, w2, v = normal(3, DK, DK), normal(4, DK, DK), normal(5, DK, 1)
        scores = (np.tanh(query @ w1 + value @ w2) @ v)[:, None, :, 0]
        named = {"score_kernel": np.concatenate([w1, w2]), "score_vector": v[:, 0]}
    context, weights = read(scores, value)
    expected = np.tanh(np.concatenate([context, query], -1) @ w_c)
    layer, named = LuongAttention(score_mode, units=U), named | {"output_kernel": w_c}
    assert_same(layer, named, query, value, (expected, weights))


def test_weights_of_the_translation_tutorial():
    W1, W2, V = (keras.layers.Dense(n, bias_initializer="random_normal") for n in (U, U, 1))
    gru = keras.layers.GRU(DQ, return_sequences=True, return_state=True)
    hidden, value, x = normal(1, B, DQ), normal(2, B, TK, DK), normal(3, B, 1, 3)
    scores = numpy(V(keras.ops.tanh(W1(hidden[:, None]) + W2(value))))
    context, _ = read(scores[:, None, :, 0], value)
    _, expected = gru(np.concatenate([context, x], axis=-1), initial_state=hidden)
    decoder = AttentionRNN(keras.layers.GRUCell(DQ), BahdanauAttention(U, use_bias=True))
    decoder(x, value)
    named = {"query_kernel": W1.kernel, "key_kernel": W2.kernel, "bias": W1.bias + W2.bias}
    named["score_vector"] = V.kernel[:, 0]
    for weight in decoder.attention.weights:
        weight.assign(named[weight.name])
    kernel, recurrent_kernel, bias = gru.get_weights()
    kernel = np.concatenate([kernel[DK:], kernel[:DK]])
    decoder.cell.set_weights([kernel, recurrent_kernel, bias])
    assert_close(decoder(x, value, initial_state=hidden, memory_mask=MASK)[:, 0], numpy(expected))
