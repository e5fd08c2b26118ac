"""Attention with coverage."""

from typing import Unpack

import keras

from keras_attention._spec import check_number
from keras_attention._typing import Nested, RecurrentScoringOptions, Shape, Tensor
from keras_attention.attention.recurrent_scoring import RecurrentScoringMixin
from keras_attention.attention.types import Memory
from keras_attention.backend import ops
from keras_attention.layers._base_score import location_score, set_base_attention
from keras_attention.ops.masks import mean_or_zero

__all__ = ["CoverageAttention"]


@keras.saving.register_keras_serializable(package="keras_attention")
class CoverageAttention(RecurrentScoringMixin):
    """Additive attention that avoids repeated reads (See, Liu and Manning, 2017).

        z[b,i,j] = sum over l < i of a[b,l,j]                       the coverage
        e[b,i,j] = v . tanh(W q[b,i] + V k[b,j] + w z[b,i,j] + b)
        a[b,i,:] = softmax of e[b,i,:] over the valid j
        c[b,i]   = sum_j a[b,i,j] v[b,j]
        loss     = mean over b and valid i of sum_j min(a[b,i,j], z[b,i,j])

    The layer adds `loss_weight` times the loss to the loss of the model, in validation too.

    Sizes: B samples, Tq query and Tk memory steps, Dq, Dk and Dv features.

    Args:
        units: the width in which query, key and coverage are compared.
        loss_weight: the factor of the loss; 0 leaves it out.
        use_bias: whether to add the bias b.
        half_width: see `RecurrentScoringMixin`. normalizer, dropout, seed: see `ScoringMixin`.

    Weights:
        base_attention: query_kernel W, key_kernel V, score_vector v, bias b of `BahdanauAttention`.
        coverage_vector: w, `(units,)`.

    Call arguments, returns, raises: see `ScoringMixin`.

    Example:
        >>> import numpy
        >>> from keras_attention import CoverageAttention
        >>> query, value = numpy.ones((2, 3, 5)), numpy.ones((2, 7, 11))
        >>> attention = CoverageAttention(13)
        >>> attention(query, value).shape, len(attention.losses)
        (TensorShape([2, 3, 11]), 1)

    Reference: https://arxiv.org/abs/1704.04368, section 2.3. There the loss of a sample is the mean
    over its steps too.
    """

    decoder_query = "current"

    def __init__(
        self,
        units: int,
        loss_weight: float = 1.0,
        use_bias: bool = True,
        **kwargs: Unpack[RecurrentScoringOptions],
    ) -> None:
        super().__init__(**kwargs)
        set_base_attention(self, units, use_bias)
        self.loss_weight = check_number(self.name, "loss_weight", loss_weight, 0)

    def build(self, query_shape: Shape, value_shape: Shape = None, key_shape: Shape = None) -> None:
        super().build(query_shape, value_shape, key_shape)
        shape = (self.units,)
        self.coverage_vector = self.add_weight(shape, name="coverage_vector", autocast=False)

    def initial_state(self, memory: Memory) -> Nested:
        return ops.zeros(ops.shape(memory.value)[:2], self.score_dtype)

    def score(self, query: Tensor, key: Tensor, state: Nested) -> Tensor:
        filters = ops.expand_dims(ops.cast(self.coverage_vector, self.score_dtype), 0)
        return location_score(self.base_attention, query, key, state, filters)

    def next_state(self, state: Nested, weights: Tensor) -> Nested:
        return state + weights

    def sequence_loss(
        self, weights: Tensor, query_mask: Tensor | None, memory_mask: Tensor | None
    ) -> Tensor | None:
        if self.loss_weight == 0:
            return None
        coverage = ops.cumsum(weights, axis=1) - weights
        loss = ops.sum(ops.minimum(weights, coverage), axis=2)  # zero at masked steps
        count = ops.ones_like(loss) if query_mask is None else ops.cast(query_mask, loss.dtype)
        steps = ops.maximum(ops.sum(count, axis=1), 1.0)
        return self.loss_weight * mean_or_zero(ops.sum(loss, axis=1) / steps)
