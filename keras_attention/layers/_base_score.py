"""What attentions with an additive score and a state have in common."""

from keras_attention._spec import check_bool, check_int
from keras_attention._typing import Tensor
from keras_attention.attention.recurrent_scoring import RecurrentScoringMixin
from keras_attention.attention.types import Memory
from keras_attention.backend import ops
from keras_attention.layers.bahdanau import BahdanauAttention
from keras_attention.ops.convolution import located_score
from keras_attention.ops.windows.positions import sentence_span


def set_content(
    layer: RecurrentScoringMixin, units: int, use_bias: bool, weight_norm: bool = False
) -> None:
    """Gives a layer an additive score: `units`, `use_bias` and `base_attention`."""
    layer.units = check_int(layer.name, "units", units)
    layer.use_bias = check_bool(layer.name, "use_bias", use_bias)
    layer.base_attention = BahdanauAttention(
        units, use_bias, weight_norm, dtype=layer.dtype_policy, name="base_attention"
    )


def score_with_locations(
    layer: RecurrentScoringMixin, query: Tensor, key: Tensor, seen: Tensor, filters: Tensor
) -> Tensor:
    """The additive score of a query that also sees where it looked, `(B, 1, Tk)`."""
    query, vector = ops.squeeze(query, 1), layer.base_attention.scaled_vector()
    return ops.expand_dims(located_score(query, key, seen, filters, vector), 1)


def at_the_start(memory: Memory, dtype: str) -> Tensor:
    """Weights before the first step: all on the first valid memory step, `(B, Tk)`."""
    batch, length = ops.shape(memory.value)[:2]
    start, _ = sentence_span(memory.mask, batch, length, "int32")
    position = ops.arange(length, dtype="int32")
    return ops.cast(position == ops.expand_dims(start, 1), dtype)
