"""What attentions with an additive score and a state have in common."""

from typing import Any

from keras import ops

from keras_attention._checks import check_bool, check_positive_int
from keras_attention._typing import Shape, Tensor
from keras_attention.layers._types import Memory
from keras_attention.layers.bahdanau import BahdanauAttention
from keras_attention.layers.recurrent_scoring import RecurrentScoringMixin
from keras_attention.ops._located import located_score
from keras_attention.ops.windows import sentence_span


class ContentAttention(RecurrentScoringMixin):
    """Compares contents with the score of a `BahdanauAttention`, the attribute `content`."""

    weight_norm = False

    def __init__(self, units: int, use_bias: bool = True, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.units = check_positive_int(self.name, "units", units)
        self.use_bias = check_bool(self.name, "use_bias", use_bias)
        self.content = BahdanauAttention(
            units, use_bias, self.weight_norm, dtype=self.dtype_policy, name="content"
        )

    def build(self, query_shape: Shape, value_shape: Shape = None, key_shape: Shape = None) -> None:
        super().build(query_shape, value_shape, key_shape)
        if not self.content.built:
            self.content.build(query_shape, value_shape, key_shape)

    def project_query(self, query: Tensor) -> Tensor:
        return self.content.project_query(query)

    def project_key(self, key: Tensor) -> Tensor:
        return self.content.project_key(key)

    def located_score(self, query: Tensor, key: Tensor, seen: Tensor, filters: Tensor) -> Tensor:
        """The score of a query that also sees, through `filters`, where it looked: `(B, 1, Tk)`."""
        query, vector = ops.squeeze(query, 1), self.content.scaled_vector()
        return ops.expand_dims(located_score(query, key, seen, filters, vector), 1)


def nowhere(memory: Memory, dtype: str) -> Tensor:
    """Weights before the first step: zeros, `(B, Tk)`."""
    return ops.zeros(ops.shape(memory.value)[:2], dtype)


def at_the_start(memory: Memory, dtype: str) -> Tensor:
    """Weights before the first step: all on the first valid memory step, `(B, Tk)`."""
    batch, length = ops.shape(memory.value)[:2]
    start, _ = sentence_span(memory.mask, batch, length, "int32")
    position = ops.arange(length, dtype="int32")
    return ops.cast(position == ops.expand_dims(start, 1), dtype)
