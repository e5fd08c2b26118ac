"""Location-sensitive attention."""

from typing import Unpack

import keras

from keras_attention._spec import check_bool, check_int
from keras_attention._typing import Nested, RecurrentScoringOptions, Shape, Tensor
from keras_attention.attention.recurrent_scoring import RecurrentScoringMixin
from keras_attention.attention.types import Memory
from keras_attention.backend import ops
from keras_attention.layers._base_score import location_score, set_base_attention

__all__ = ["LocationSensitiveAttention"]


@keras.saving.register_keras_serializable(package="keras_attention")
class LocationSensitiveAttention(RecurrentScoringMixin):
    """Additive attention that sees its past weights (Chorowski et al., 2015).

        f[b,i,j,:] = sum_w F[w,:] z[b,i-1, j + w - (R - 1) // 2]
        e[b,i,j]   = v . tanh(W q[b,i] + V k[b,j] + U f[b,i,j,:] + b)
        a[b,i,:]   = softmax of e[b,i,:] over the valid j
        z[b,i,:]   = z[b,i-1,:] + a[b,i,:]     with `cumulative`, otherwise a[b,i,:]
        c[b,i]     = sum_j a[b,i,j] v[b,j]

    z is zero before the first step. It is the state of the layer.

    Sizes: B samples, Tq query and Tk memory steps, Dq, Dk and Dv features, R width of the filters.

    Args:
        units: the width in which query, key and location are compared.
        filters: how many filters F has.
        kernel_size: R, in memory steps.
        cumulative: whether the filters see the sum of all weights (Shen et al., 2018) or only the
            last ones (Chorowski et al., 2015).
        use_bias: whether to add the bias b.
        half_width: see `RecurrentScoringMixin`. normalizer, dropout, seed: see `ScoringMixin`.

    Weights:
        base_attention: query_kernel W, key_kernel V, score_vector v, bias b of `BahdanauAttention`.
        filter_kernel: F, `(R, filters)`. location_kernel: U, `(filters, units)`.

    Call arguments, returns, raises: see `ScoringMixin`.

    Example:
        >>> import numpy
        >>> from keras_attention import LocationSensitiveAttention
        >>> query, value = numpy.ones((2, 3, 5)), numpy.ones((2, 7, 11))
        >>> LocationSensitiveAttention(13)(query, value).shape
        TensorShape([2, 3, 11])

    References: https://arxiv.org/abs/1506.07503, section 2.2; https://arxiv.org/abs/1712.05884,
    whose sizes are the defaults.
    """

    def __init__(
        self,
        units: int,
        filters: int = 32,
        kernel_size: int = 31,
        cumulative: bool = True,
        use_bias: bool = True,
        **kwargs: Unpack[RecurrentScoringOptions],
    ) -> None:
        super().__init__(**kwargs)
        set_base_attention(self, units, use_bias)
        self.filters = check_int(self.name, "filters", filters)
        self.kernel_size = check_int(self.name, "kernel_size", kernel_size)
        self.cumulative = check_bool(self.name, "cumulative", cumulative)

    def build(self, query_shape: Shape, value_shape: Shape = None, key_shape: Shape = None) -> None:
        super().build(query_shape, value_shape, key_shape)
        shape = (self.kernel_size, self.filters)
        self.filter_kernel = self.add_weight(shape, name="filter_kernel", autocast=False)
        shape = (self.filters, self.units)
        self.location_kernel = self.add_weight(shape, name="location_kernel", autocast=False)

    def initial_state(self, memory: Memory) -> Nested:
        return ops.zeros(ops.shape(memory.value)[:2], self.score_dtype)

    def score(self, query: Tensor, key: Tensor, state: Nested) -> Tensor:
        # A filter and its projection are one kernel.
        kernels = self.filter_kernel, self.location_kernel
        kernel = ops.matmul(*(ops.cast(x, self.score_dtype) for x in kernels))
        return location_score(self.base_attention, query, key, state, kernel)

    def next_state(self, state: Nested, weights: Tensor) -> Nested:
        return state + weights if self.cumulative else weights
