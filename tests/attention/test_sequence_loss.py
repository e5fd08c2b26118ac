"""The hook `sequence_loss`, in a call and in every decoder."""

import keras
import numpy as np
import pytest

import keras_attention as ka
from keras_attention.alignment import guided_attention_loss
from tests.backends import tensor
from tests.helpers import DQ, DV, TK, TQ, AnyCell, B, assert_all_close, gradients, normal, numpy

MASKS = np.array([[1, 0, 1], [1, 1, 0]], bool), np.arange(TK) < [[TK], [TK - 2]]
WIDTH = 5  # of the cells


def guided(attention):
    class Guided(attention):
        def sequence_loss(self, weights, query_mask, memory_mask):
            return 3 * guided_attention_loss(weights, query_mask, memory_mask)

    return Guided


ATTENTIONS = {
    "additive": lambda kind, **options: kind(ka.BahdanauAttention)(7, **options),
    "window": lambda kind, **options: kind(ka.LuongAttention)(
        "general", "local-p", units=7, **options),
    "state": lambda kind, **options: kind(ka.LocationSensitiveAttention)(7, 2, 3, **options),
    "heads": lambda kind, **options: ka.MultiHead(kind(ka.BahdanauAttention)(7, **options), 2),
}  # fmt: skip


def rnn(cell=keras.layers.GRUCell, **options):
    return lambda attention, dtype: ka.AttentionRNN(
        cell(WIDTH, dtype=dtype), attention, dtype=dtype, **options
    )


def stack(attention, dtype):
    rnns = [keras.layers.GRU(WIDTH, return_sequences=True, dtype=dtype) for _ in range(2)]
    return ka.DecoderStack(rnns, attention, dtype=dtype)


DECODERS = {
    "none": lambda attention, dtype: attention,
    "previous": rnn(query="previous"),
    "current": rnn(query="current"),
    "fed": rnn(input_feeding=True),
    "any cell": rnn(AnyCell, query="previous"),
    "stack": stack,
}


def built(name, decoder, kind, dtype):
    layer = DECODERS[decoder](ATTENTIONS[name](kind, dtype=dtype), dtype)
    layer.build((B, TQ, DQ), (B, TK, DV))
    return layer


@pytest.mark.parametrize(("name", "decoder"), [
    *(("additive", decoder) for decoder in DECODERS),
    *((name, decoder) for name in ("window", "state", "heads") for decoder in ("none", "fed")),
])  # fmt: skip
def test_the_loss_is_that_of_the_weights(name, decoder):
    """It equals the loss of the weights that a layer without the hook returns, gradients too."""
    dtype, inputs = "float64", [normal(1, B, TQ, DQ), normal(2, B, TK, DV)]
    layer = built(name, decoder, guided, dtype)
    twin = built(name, decoder, lambda attention: attention, dtype)
    twin.set_weights(layer.get_weights())
    names = ("query_mask", "value_mask") if decoder == "none" else ("sequences_mask", "memory_mask")
    masks = dict(zip(names, map(tensor, MASKS), strict=True))

    def losses(*inputs):
        outputs = layer(*inputs, **masks, training=True)
        assert not isinstance(outputs, (list, tuple))
        assert len(layer.losses) == 1
        return layer.losses

    def by_hand(*inputs):
        _, weights = twin(*inputs, **masks, training=True, return_attention_scores=True)
        assert not twin.losses
        return [3 * guided_attention_loss(weights, *masks.values())]

    outputs, found = gradients(layer, losses, inputs)
    expected, wanted = gradients(twin, by_hand, inputs)
    assert numpy(*outputs) > 1e-3
    assert_all_close([*outputs, *found], [*expected, *wanted])
    assert any(np.abs(numpy(x)).max() > 1e-4 for x in found[2:])


def test_steps_have_no_loss():
    layer = built("additive", "previous", guided, "float32")
    memory = layer.prepare(normal(2, B, TK, DV, dtype="float32"))
    state = layer.get_initial_state(memory)
    layer.step(normal(1, B, DQ, dtype="float32"), state, memory)
    layer.attention.attend(normal(1, B, TQ, WIDTH, dtype="float32"), memory)
    layer.attention(normal(1, B, WIDTH, dtype="float32"), memory.value)
    assert layer.losses == []
