"""Attention by learned queries."""

from typing import Unpack

import keras

from keras_attention._spec import Spec, check_bool, check_int, check_number
from keras_attention._typing import LayerOptions, Shape, Tensor, TensorShape
from keras_attention.attention.checked_layer import CheckedLayer
from keras_attention.attention.scoring import NORMALIZERS, set_weight_options, weighted_sum
from keras_attention.backend import ops
from keras_attention.ops.masks import mean_or_zero, zero_masked
from keras_attention.ops.matmul import cast, dot_score

__all__ = ["AttentionPooling"]


@keras.saving.register_keras_serializable(package="keras_attention")
class AttentionPooling(CheckedLayer):
    """Pools a sequence or a bag to one vector by a learned query (Yang et al., 2016).

        u[b,t] = tanh(W h[b,t] + b)
        u[b,t] = tanh(W h[b,t] + b) * sigmoid(V h[b,t] + c)     `gated` (Ilse et al., 2018)
        a[b,:] = softmax of u[b,:] . u_q / temperature over the valid t
        s[b]   = sum_t a[b,t] h[b,t]

    With several `rows` there is a query u_q for each, as in structured self-attention (Lin et al.,
    2017) and in the branches per class of CLAM (Lu et al., 2021). Then a and s have an axis of
    rows. A `penalty` keeps the rows apart:

        P = mean over b of |A[b] A[b]^T - I|^2                  |.| the Frobenius norm

    The layer adds `penalty` times P to the loss of the model, in validation too. A bag in which
    nothing is valid adds nothing. Time and memory grow linearly with T.

    Sizes: B samples, T steps or instances, D features, U units, R rows.

    Args:
        units: U, the width in which steps are compared with the query u_q.
        gated: whether to multiply by the gate.
        rows: R, the number of queries.
        temperature: divides the scores. Below one, few steps get the weight; above, many. At least
            1e-6, because scores divided by less may overflow.
        penalty: the factor of P; 0 leaves it out.
        normalizer, dropout, seed: see `ScoringMixin`.

    Weights:
        kernel: W, `(D, U)`. bias: b, `(U,)`. query_vector: u_q, `(U,)`; `(R, U)` with several
        rows. gate_kernel: V, `(D, U)`, and gate_bias: c, `(U,)`, if `gated`.

    Call arguments:
        inputs: h, `(B, T, D)`.
        mask: `(B, T)` boolean; steps where it is False are not read. Pass it: from Keras 3.16
            on, masks do not propagate through recurrent layers.
        return_attention_scores: whether to return the weights too, as they are before dropout.
        training: whether dropout is active.

    Returns:
        s `(B, D)`; with `return_attention_scores` also the weights a `(B, T)`. With several rows
        s is `(B, R, D)` and a is `(B, R, T)`. Where nothing is valid, both are exactly zero and
        gradients are finite.

    Raises:
        ValueError: `units` is missing or not a positive integer; another argument is out of its
            range; `inputs` is not of rank 3, or has another width than the layer was built for;
            the mask is not boolean or has another shape.

    Example:
        >>> import numpy
        >>> from keras_attention import AttentionPooling
        >>> sentence, weights = AttentionPooling(5)(
        ...     numpy.ones((2, 4, 3)), return_attention_scores=True
        ... )
        >>> sentence.shape, weights[0].numpy().tolist()
        (TensorShape([2, 3]), [0.25, 0.25, 0.25, 0.25])
        >>> AttentionPooling(5, gated=True, rows=7)(numpy.ones((2, 4, 3))).shape
        TensorShape([2, 7, 3])

    Reference: https://aclanthology.org/N16-1174, equations 5 to 7; https://arxiv.org/abs/1802.04712,
    equations 7 to 9; https://arxiv.org/abs/1703.03130, equations 5, 6 and 8. The last two have no
    biases.
    """

    CALL = Spec("inputs: float[B T D]", "mask: bool[B T]?")

    def __init__(
        self,
        units: int,
        gated: bool = False,
        rows: int = 1,
        temperature: float = 1.0,
        penalty: float = 0.0,
        normalizer: str = "softmax",
        dropout: float = 0.0,
        seed: int | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        set_weight_options(self, normalizer, dropout, seed)
        self.units = check_int(self.name, "units", units)
        self.gated = check_bool(self.name, "gated", gated)
        self.rows = check_int(self.name, "rows", rows)
        self.temperature = check_number(self.name, "temperature", temperature, 1e-6)
        self.penalty = check_number(self.name, "penalty", penalty, 0)

    def build(self, inputs_shape: Shape) -> None:
        self._sizes = self.CALL.check_shapes(self.name, {"inputs": inputs_shape})
        shape, units = (self._sizes["D"], self.units), (self.units,)
        zeros = {"initializer": "zeros", "autocast": False}
        self.kernel = self.add_weight(shape, name="kernel")
        self.bias = self.add_weight(units, name="bias", **zeros)
        if self.gated:
            self.gate_kernel = self.add_weight(shape, name="gate_kernel")
            self.gate_bias = self.add_weight(units, name="gate_bias", **zeros)
        queries = units if self.rows == 1 else (self.rows, self.units)
        self.query_vector = self.add_weight(queries, name="query_vector")

    def call(
        self,
        inputs: Tensor,
        mask: Tensor = None,
        return_attention_scores: bool = False,
        training: bool | None = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        inputs = zero_masked(inputs, mask)
        query = ops.cast(self.query_vector, self.score_dtype) / self.temperature
        query = ops.broadcast_to(query, (ops.shape(inputs)[0], self.rows, self.units))
        scores = dot_score(query, self.project_key(inputs))
        mask = None if mask is None else ops.expand_dims(mask, 1)
        weights = NORMALIZERS[self.normalizer](scores, mask)
        pooled = weighted_sum(self, weights, inputs, training)
        if self.penalty > 0:
            self.add_loss(self.penalty * redundancy(weights, mask))
        if self.rows == 1:
            pooled, weights = ops.squeeze(pooled, 1), ops.squeeze(weights, 1)
        if not return_attention_scores:
            return pooled
        return pooled, cast(weights, self.compute_dtype)

    def project_key(self, key: Tensor) -> Tensor:
        """Compute u, the steps as they are compared with u_q, in `score_dtype`."""
        hidden = ops.tanh(ops.add(self.project(key, self.kernel), self.bias))
        if not self.gated:
            return hidden
        return hidden * ops.sigmoid(ops.add(self.project(key, self.gate_kernel), self.gate_bias))

    def compute_mask(self, inputs: Tensor, previous_mask: Tensor = None) -> None:
        return None  # the axis of steps is gone

    def compute_output_shape(self, inputs_shape: TensorShape) -> TensorShape:
        self.CALL.check_shapes(self.name, {"inputs": inputs_shape})
        rows = () if self.rows == 1 else (self.rows,)
        return (inputs_shape[0], *rows, inputs_shape[-1])


def redundancy(weights: Tensor, mask: Tensor | None) -> Tensor:
    """Compute P of weights `(B, R, T)` and a mask `(B, 1, T)` or None."""
    overlap = ops.matmul(weights, ops.swapaxes(weights, 1, 2))
    squares = ops.square(overlap - ops.eye(weights.shape[1], dtype=weights.dtype))
    squares = ops.sum(squares, axis=(1, 2))
    if mask is not None:
        squares = ops.where(ops.any(mask[:, 0], axis=1), squares, ops.zeros_like(squares))
    return mean_or_zero(squares)
