"""Dynamic convolution attention."""

from functools import partial
from typing import Unpack

import keras
import numpy as np

from keras_attention._spec import check_int, check_number
from keras_attention._typing import Nested, RecurrentScoringOptions, Shape, Tensor
from keras_attention.attention.recurrent_scoring import RecurrentScoringMixin
from keras_attention.attention.types import Memory
from keras_attention.backend import ops, project
from keras_attention.layers._base_score import initial_weights
from keras_attention.ops.convolution import convolved_score
from keras_attention.ops.shift import unfold

__all__ = ["DynamicConvolutionAttention"]

FLOOR = -1e6  # the logarithm of a prior of zero


@keras.saving.register_keras_serializable(package="keras_attention")
class DynamicConvolutionAttention(RecurrentScoringMixin):
    """Attention that moves by convolutions of its last weights (Battenberg et al., 2020).

        f[b,i,j,:] = sum_w F[w,:] a[b,i-1, j + w - h]           static filters, h = (R - 1) // 2
        g[b,i,j,:] = sum_w G[b,i,w,:] a[b,i-1, j + w - h]       dynamic filters
        G[b,i]     = Y tanh(X q[b,i] + x)
        p[b,i,j]   = log sum_l P[l] a[b,i-1, j - l], at least -1e6
        e[b,i,j]   = v . tanh(U f[b,i,j,:] + T g[b,i,j,:] + b) + p[b,i,j]
        a[b,i,:]   = softmax of e[b,i,:] over the valid j
        c[b,i]     = sum_j a[b,i,j] v[b,j]

    Before the first step all weight is on the first valid memory step. The keys play no part. The
    prior P allows moves of 0 to L - 1 memory steps: it is the beta-binomial distribution.

    Sizes: B samples, Tq query and Tk memory steps, Dq and Dv features, R width of the filters, L
    length of the prior.

    Args:
        units: the width in which the filtered weights are compared.
        filters: how many static filters, and how many dynamic ones.
        kernel_size: R, in memory steps.
        prior_length: L, in memory steps.
        alpha, beta: the parameters of the prior. Its mean is (L - 1) alpha / (alpha + beta).
        half_width: see `RecurrentScoringMixin`. normalizer, dropout, seed: see `ScoringMixin`.

    Weights:
        filter_kernel: F, `(R, filters)`. static_kernel: U, `(filters, units)`.
        query_kernel: X, `(Dq, units)`. query_bias: x, `(units,)`.
        dynamic_filter_kernel: Y, `(units, R filters)`. dynamic_kernel: T, `(filters, units)`.
        score_vector: v, `(units,)`. bias: b, `(units,)`.

    Call arguments, returns, raises: see `ScoringMixin`.

    Example:
        >>> import numpy
        >>> from keras_attention import DynamicConvolutionAttention
        >>> query, value = numpy.ones((2, 3, 5)), numpy.ones((2, 7, 11))
        >>> DynamicConvolutionAttention(13)(query, value).shape
        TensorShape([2, 3, 11])

    Reference: https://arxiv.org/abs/1910.10288, section 2.3, whose sizes are the defaults.
    """

    decoder_query = "current"
    moves_forward = True

    def __init__(
        self,
        units: int,
        filters: int = 8,
        kernel_size: int = 21,
        prior_length: int = 11,
        alpha: float = 0.1,
        beta: float = 0.9,
        **kwargs: Unpack[RecurrentScoringOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.units = check_int(self.name, "units", units)
        self.filters = check_int(self.name, "filters", filters)
        self.kernel_size = check_int(self.name, "kernel_size", kernel_size)
        self.prior_length = check_int(self.name, "prior_length", prior_length)
        self.alpha = check_number(self.name, "alpha", alpha, 1e-3)
        self.beta = check_number(self.name, "beta", beta, 1e-3)
        self._prior = _beta_binomial(self.prior_length, self.alpha, self.beta)

    def build(self, query_shape: Shape, value_shape: Shape = None, key_shape: Shape = None) -> None:
        super().build(query_shape, value_shape, key_shape)
        units, filters = self.units, self.filters
        self.query_kernel = self.add_weight((self._sizes["Dq"], units), name="query_kernel")
        self.dynamic_filter_kernel = self.add_weight(
            (units, self.kernel_size * filters), name="dynamic_filter_kernel"
        )
        add_weight = partial(self.add_weight, autocast=False)
        self.query_bias = add_weight((units,), "zeros", name="query_bias")
        self.filter_kernel = add_weight((self.kernel_size, filters), name="filter_kernel")
        self.static_kernel = add_weight((filters, units), name="static_kernel")
        self.dynamic_kernel = add_weight((filters, units), name="dynamic_kernel")
        self.score_vector = add_weight((units,), name="score_vector")
        self.bias = add_weight((units,), "zeros", name="bias")

    def initial_state(self, memory: Memory) -> Nested:
        return initial_weights(memory, self.score_dtype)

    def project_query(self, query: Tensor) -> Tensor:
        return ops.tanh(ops.add(self.project(query, self.query_kernel), self.query_bias))

    def score(self, query: Tensor, key: Tensor, state: Nested) -> Tensor:
        cast = partial(ops.cast, dtype=self.score_dtype)
        dynamic = self.project(query, self.dynamic_filter_kernel)
        dynamic = ops.reshape(dynamic, (-1, self.kernel_size, self.filters))
        # A filter and its projection are one kernel.
        kernels = project(dynamic, cast(self.dynamic_kernel))
        kernels += ops.matmul(cast(self.filter_kernel), cast(self.static_kernel))
        bias = ops.add(ops.zeros_like(ops.squeeze(query, 1)), cast(self.bias))
        scores = convolved_score(bias, None, state, kernels, cast(self.score_vector))
        return ops.expand_dims(scores + self._log_prior(state), 1)

    def _log_prior(self, state):
        moved = unfold(state, self.prior_length - 1, self.prior_length)  # (B, Tk, L)
        prior = ops.convert_to_tensor(self._prior[::-1], self.score_dtype)
        total = ops.sum(moved * prior, axis=-1)
        possible = total > 0
        return ops.where(possible, ops.log(ops.where(possible, total, 1.0)), FLOOR)

    def next_state(self, state: Nested, weights: Tensor) -> Nested:
        return weights


def _beta_binomial(length, alpha, beta):
    """Return P[0] to P[n], from the ratios P[k + 1] / P[k]; n = length - 1."""
    n, k = length - 1, np.arange(length - 1)
    ratios = (n - k) * (k + alpha) / ((k + 1) * (n - k - 1 + beta))
    logs = np.cumsum([0.0, *np.log(ratios)])
    probabilities = np.exp(logs - logs.max())
    return probabilities / probabilities.sum()
