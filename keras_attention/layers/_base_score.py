"""The additive score of attentions with a state, and their weights before the first step."""

from keras_attention._spec import check_bool, check_int
from keras_attention._typing import Tensor
from keras_attention.attention.recurrent_scoring import RecurrentScoringMixin
from keras_attention.attention.types import Memory
from keras_attention.backend import ops
from keras_attention.layers.bahdanau import BahdanauAttention
from keras_attention.ops.convolution import convolved_score
from keras_attention.ops.windows.positions import sentence_span


def set_base_attention(
    layer: RecurrentScoringMixin, units: int, use_bias: bool, weight_norm: bool = False
) -> BahdanauAttention:
    """Set `units`, `use_bias` and `base_attention`, the additive score, of a layer."""
    layer.units = check_int(layer.name, "units", units)
    layer.use_bias = check_bool(layer.name, "use_bias", use_bias)
    layer.base_attention = BahdanauAttention(
        units, use_bias, weight_norm, dtype=layer.dtype_policy, name="base_attention"
    )
    return layer.base_attention


def location_score(
    base: BahdanauAttention, query: Tensor, key: Tensor, state: Tensor, filters: Tensor
) -> Tensor:
    """Compute v . tanh(W q + V k + filters applied to the state), `(B, 1, Tk)`."""
    scores = convolved_score(ops.squeeze(query, 1), key, state, filters, base.scaled_vector())
    return ops.expand_dims(scores, 1)


def initial_weights(memory: Memory, dtype: str) -> Tensor:
    """Return the weights before the first step: all on the first valid memory step, `(B, Tk)`."""
    batch, length = ops.shape(memory.value)[:2]
    start, _ = sentence_span(memory.mask, batch, length, "int32")
    position = ops.arange(length, dtype="int32")
    return ops.cast(position == ops.expand_dims(start, 1), dtype)
