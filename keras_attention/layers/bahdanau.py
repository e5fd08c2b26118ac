"""Additive attention."""

import keras
from keras import ops

from keras_attention.layers.checks import check_positive_int
from keras_attention.layers.scoring import ScoringMixin
from keras_attention.ops.additive import additive_score


@keras.saving.register_keras_serializable(package="keras_attention")
class BahdanauAttention(ScoringMixin, keras.layers.Layer):
    """Additive attention (Bahdanau, Cho and Bengio, 2015).

        e[b,i,j] = v . tanh(W q[b,i] + U k[b,j] + b)       b with `use_bias` only
        a[b,i,:] = softmax of e[b,i,:] over the valid j
        c[b,i]   = sum_j a[b,i,j] v[b,j]

    With `normalize` the vector v is replaced by g v / |v|, g a learned number.

    Sizes: B samples, Tq query and Tk memory steps, Dq, Dk and Dv features, U units.

    Args:
        units: U, the width in which query and key are compared.
        use_bias: whether there is a bias b inside the tanh.
        normalize: whether v is normalised in its length.
        normalizer, dropout, seed: see `ScoringMixin`.

    Weights:
        query_kernel: W, `(Dq, U)`. key_kernel: U, `(Dk, U)`. score_vector: v, `(U,)`.
        bias: b, `(U,)`, with `use_bias`. gain: g, `()`, with `normalize`.

    Call arguments:
        query: `(B, Tq, Dq)`, or `(B, Dq)` for one step, which drops the axis Tq everywhere.
        value: `(B, Tk, Dv)`.
        key: `(B, Tk, Dk)`; the value if not given.
        query_mask, value_mask, attention_mask, use_causal_mask, return_attention_scores,
            training: see `ScoringMixin`.

    Returns:
        Context `(B, Tq, Dv)`; with `return_attention_scores` also weights `(B, Tq, Tk)`.

    Raises:
        ValueError: `units` is not a positive integer; otherwise as `ScoringMixin`.

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

    def __init__(self, units, use_bias=False, normalize=False, **kwargs):
        super().__init__(**kwargs)
        self.units = check_positive_int(self.name, "units", units)
        self.use_bias = use_bias
        self.normalize = normalize

    def build(self, query_shape, value_shape=None, key_shape=None):
        super().build(query_shape, value_shape, key_shape)
        key_size = (key_shape or value_shape)[-1]
        self.query_kernel = self.add_weight((query_shape[-1], self.units), name="query_kernel")
        self.key_kernel = self.add_weight((key_size, self.units), name="key_kernel")
        self.score_vector = self.add_weight((self.units,), name="score_vector")
        if self.use_bias:
            self.bias = self.add_weight((self.units,), initializer="zeros", name="bias")
        if self.normalize:
            length = keras.initializers.Constant(self.units**-0.5)
            self.gain = self.add_weight((), initializer=length, name="gain")

    def project_key(self, key):
        return ops.cast(self.project(key, self.key_kernel), self.score_dtype)

    def score(self, query, key):
        query = self.project(query, self.query_kernel)
        if self.use_bias:
            query = query + ops.cast(self.bias, query.dtype)
        vector = ops.cast(self.score_vector, self.score_dtype)
        if self.normalize:
            # The floor leaves a vector of zeros, where some start from, at zero.
            square = ops.maximum(ops.sum(ops.square(vector)), 1e-30)
            vector = ops.cast(self.gain, self.score_dtype) * vector * ops.rsqrt(square)
        return additive_score(ops.cast(query, self.score_dtype), key, vector)

    def get_config(self):
        return {
            **super().get_config(),
            "units": self.units,
            "use_bias": self.use_bias,
            "normalize": self.normalize,
        }
