"""Attention by a mixture of Gaussians."""

import math
from typing import Unpack

import keras
import numpy as np

from keras_attention._spec import (
    Description,
    check_choice,
    check_int,
    check_number,
    raise_value_error,
)
from keras_attention._typing import Nested, RecurrentScoringOptions, Shape, Tensor
from keras_attention.attention.recurrent_scoring import RecurrentScoringMixin
from keras_attention.attention.types import Memory, Step
from keras_attention.backend import ops
from keras_attention.ops.masks import last_valid
from keras_attention.ops.normalize import masked_softmax
from keras_attention.ops.windows.positions import sentence_span

__all__ = ["GMMAttention"]

VERSIONS = ("V0", "V2", "V2b")
NARROWEST = 0.01  # standard deviation of V2 and V2b, in memory steps


@keras.saving.register_keras_serializable(package="keras_attention")
class GMMAttention(RecurrentScoringMixin):
    """Attention by K Gaussians that move forward over the memory (Graves, 2013).

        (w^, d^, s^)[b,i] = H tanh(W q[b,i] + b) + h     K values each
        m[b,i,k] = m[b,i-1,k] + d[b,i,k],    m[b,0,k] = 0
        a[b,i,j] = sum_k w[b,i,k] / Z[b,i,k] exp(-(j - f[b] - m[b,i,k])^2 / (2 s[b,i,k]^2))
        c[b,i]   = sum_j a[b,i,j] v[b,j]

    Positions count from the first valid memory step f[b]. The versions differ in

        V0         w = exp(w^), d = exp(d^), s = sqrt(exp(-s^) / 2), Z = 1
        V2, V2b    w = softmax of w^ over k, d = softplus(d^), s = softplus(s^) + 0.01,
                   Z = sqrt(2 pi) s

    The keys play no part. The bias h starts at zero. In V2b it starts so that d is about
    `initial_step` and s about `initial_width`.

    The weights are not normalised over j. In V0 a row sums to any value, to about 1.8 K at the
    start; the logits w^, d^ and s^ count as at most 5. In V2 and V2b a row sums to about one. A
    Gaussian much narrower than a memory step gives up to 40, one beyond the end of the memory gives
    less than one.

    Sizes: B samples, Tq query and Tk memory steps, Dq and Dv features, U units.

    Args:
        units: U, the width of the hidden layer.
        components: K.
        version: "V0", "V2" or "V2b".
        initial_step: d where the bias of V2b starts, in memory steps. A good one is the length of a
            memory divided by the number of queries.
        initial_width: s where the bias of V2b starts, in memory steps.
        half_width: see `RecurrentScoringMixin`. A Gaussian does not leave the window.
        dropout, seed: see `ScoringMixin`.

    Weights:
        query_kernel: W, `(Dq, U)`. bias: b, `(U,)`. mixture_kernel: H, `(U, 3 K)`.
        mixture_bias: h, `(3 K,)`; the order is w^, d^, s^.

    Call arguments, returns, raises: see `ScoringMixin`.

    Example:
        >>> import numpy
        >>> from keras_attention import GMMAttention
        >>> query, value = numpy.ones((2, 3, 5)), numpy.ones((2, 7, 11))
        >>> GMMAttention(13)(query, value).shape
        TensorShape([2, 3, 11])

    References: https://arxiv.org/abs/1308.0850, section 5.1 (V0, whose d^, s^ and w^ come from one
    linear layer); https://arxiv.org/abs/1910.10288, section 2.2 (V0, V2 and V2b as
    here, with the defaults of V2b).
    """

    decoder_query = "current"
    moves_forward = True

    def __init__(
        self,
        units: int,
        components: int = 5,
        version: str = "V2b",
        initial_step: float = 1.0,
        initial_width: float = 10.0,
        **kwargs: Unpack[RecurrentScoringOptions],
    ) -> None:
        super().__init__(**kwargs)
        check_choice(self.name, "normalizer", self.normalizer, ("softmax",))
        self.units = check_int(self.name, "units", units)
        self.components = check_int(self.name, "components", components)
        self.version = check_choice(self.name, "version", version, VERSIONS)
        self.initial_step = check_number(self.name, "initial_step", initial_step, 1e-3)
        self.initial_width = check_number(self.name, "initial_width", initial_width, 0.1)
        if version != "V2b" and (initial_step, initial_width) != (1.0, 10.0):
            expected = "`initial_step` and `initial_width` go with version V2b"
            raise_value_error(self.name, expected, Description(f"version {version}"))

    def build(self, query_shape: Shape, value_shape: Shape = None, key_shape: Shape = None) -> None:
        super().build(query_shape, value_shape, key_shape)
        count = 3 * self.components
        self.query_kernel = self.add_weight((self._sizes["Dq"], self.units), name="query_kernel")
        self.bias = self.add_weight((self.units,), initializer="zeros", name="bias", autocast=False)
        self.mixture_kernel = self.add_weight((self.units, count), name="mixture_kernel")
        biases = [0.0, 0.0, 0.0]
        if self.version == "V2b":
            biases[1:] = map(_softplus_inverse, (self.initial_step, self.initial_width - NARROWEST))

        def start(shape, dtype):
            return ops.convert_to_tensor(np.repeat(biases, self.components), dtype)

        self.mixture_bias = self.add_weight((count,), start, name="mixture_bias", autocast=False)

    def initial_state(self, memory: Memory) -> Nested:
        batch, length = ops.shape(memory.value)[:2]
        start, _ = sentence_span(memory.mask, batch, length, self.score_dtype)
        return ops.repeat(ops.expand_dims(start, 1), self.components, axis=1)

    def project_query(self, query: Tensor) -> Tensor:
        hidden = ops.tanh(ops.add(self.project(query, self.query_kernel), self.bias))
        return ops.add(self.project(hidden, self.mixture_kernel), self.mixture_bias)

    def advance(self, step: Step, state: Nested) -> tuple[Tensor, Nested]:
        mask = step.mask
        mixture = ops.squeeze(step.projected, 1)
        weight, move, width = ops.split(mixture, 3, axis=-1)  # (B, K) each
        if self.version == "V0":
            # Half precision holds no larger weights.
            weight, move, width = (ops.minimum(x, 5.0) for x in (weight, move, width))
            factor, move = ops.exp(weight), ops.exp(move)
            inverse = ops.exp(width)  # 1 / (2 s^2)
        else:
            move, width = ops.softplus(move), ops.softplus(width) + NARROWEST
            factor = masked_softmax(weight) / (math.sqrt(2 * math.pi) * width)
            inverse = 0.5 / ops.square(width)
        center = state + move
        if self.half_width is not None and not step.training and mask is not None:
            center = ops.minimum(center, ops.cast(last_valid(mask), center.dtype))
        position = ops.arange(ops.shape(step.memory.value)[1], dtype=self.score_dtype)
        offset = ops.expand_dims(position, 1) - ops.expand_dims(center, 1)  # (B, Tk, K)
        density = ops.exp(-ops.square(offset) * ops.expand_dims(inverse, 1))
        weights = ops.expand_dims(ops.sum(ops.expand_dims(factor, 1) * density, axis=-1), 1)
        if mask is not None:
            weights = ops.where(mask, weights, ops.zeros_like(weights))
        return weights, center


def _softplus_inverse(x):
    return x + math.log(-math.expm1(-x))
