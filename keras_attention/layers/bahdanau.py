"""Additive attention."""

from typing import Unpack

import keras

from keras_attention._spec import check_bool, check_int
from keras_attention._typing import ScoringOptions, Shape, Tensor
from keras_attention.attention.scoring import ScoringMixin
from keras_attention.backend import ops
from keras_attention.ops.additive.dispatch import additive_score
from keras_attention.ops.matmul import cast

__all__ = ["BahdanauAttention"]


@keras.saving.register_keras_serializable(package="keras_attention")
class BahdanauAttention(ScoringMixin):
    """Additive attention (Bahdanau, Cho and Bengio, 2015).

        e[b,i,j] = v . tanh(W q[b,i] + U k[b,j] + b)
        a[b,i,:] = softmax of e[b,i,:] over the valid j
        c[b,i]   = sum_j a[b,i,j] v[b,j]

    The bias b exists with `use_bias` only. With `weight_norm`, g v / |v| takes the place of v,
    where g is a learned number.

    Sizes: B samples, Tq query and Tk memory steps, Dq, Dk and Dv features, U units.

    Args:
        units: U, the width in which query and key are compared.
        use_bias: whether to add a bias inside the tanh.
        weight_norm: whether to normalise v and learn its length.
        normalizer, dropout, seed: see `ScoringMixin`.

    Weights:
        query_kernel: W, `(Dq, U)`. key_kernel: U, `(Dk, U)`. score_vector: v, `(U,)`.
        bias: b, `(U,)`, with `use_bias`. gain: g, `()`, with `weight_norm`.

    Call arguments:
        query: `(B, Tq, Dq)`, or `(B, Dq)` for one step, which drops the axis Tq everywhere.
        value: `(B, Tk, Dv)`. key: `(B, Tk, Dk)`; defaults to the value.
        All others: see `ScoringMixin`.

    Returns:
        Context `(B, Tq, Dv)`; with `return_attention_scores` also weights `(B, Tq, Tk)`.

    Raises:
        ValueError: `units` is missing or not a positive integer; otherwise as `ScoringMixin`.

    Example:
        >>> import numpy
        >>> from keras_attention import BahdanauAttention
        >>> query, value = numpy.ones((2, 3, 5)), numpy.ones((2, 7, 11))
        >>> context, weights = BahdanauAttention(13)(query, value, return_attention_scores=True)
        >>> context.shape, weights.shape
        (TensorShape([2, 3, 11]), TensorShape([2, 3, 7]))

    Reference: https://arxiv.org/abs/1409.0473, section 3.1. Unlike there, the query may be any
    sequence; for the paper's decoder put the layer into an `AttentionRNN`.
    """

    def __init__(
        self,
        units: int,
        use_bias: bool = False,
        weight_norm: bool = False,
        **kwargs: Unpack[ScoringOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.units = check_int(self.name, "units", units)
        self.use_bias = check_bool(self.name, "use_bias", use_bias)
        self.weight_norm = check_bool(self.name, "weight_norm", weight_norm)
        self.bias = self.gain = None
        self._initial_gain = self.units**-0.5

    def build(self, query_shape: Shape, value_shape: Shape = None, key_shape: Shape = None) -> None:
        super().build(query_shape, value_shape, key_shape)
        sizes, units = self._sizes, self.units
        self.query_kernel = self.add_weight((sizes["Dq"], units), name="query_kernel")
        self.key_kernel = self.add_weight((sizes["Dk"], units), name="key_kernel")
        self.score_vector = self.add_weight((units,), name="score_vector", autocast=False)
        if self.use_bias:
            self.bias = self.add_weight((units,), "zeros", name="bias", autocast=False)
        if self.weight_norm:
            length = keras.initializers.Constant(self._initial_gain)
            self.gain = self.add_weight((), initializer=length, name="gain", autocast=False)

    def project_query(self, query: Tensor) -> Tensor:
        return self.project(query, self.query_kernel)

    def project_key(self, key: Tensor) -> Tensor:
        # The bias is added to the keys: a decoder projects them once, but a query at every step.
        key = self.project(key, self.key_kernel)
        return key if self.bias is None else ops.add(key, self.bias)

    def score(self, query: Tensor, key: Tensor) -> Tensor:
        return additive_score(query, key, self.scaled_vector())

    def scaled_vector(self) -> Tensor:
        """Return v, or g v / |v| with `weight_norm`."""
        vector = cast(self.score_vector, self.score_dtype)
        if self.gain is None:
            return vector
        # The floor keeps a vector of zeros, with which some models start, at zero.
        square = ops.maximum(ops.sum(ops.square(vector)), 1e-30)
        return ops.multiply(self.gain, vector) * ops.rsqrt(square)
