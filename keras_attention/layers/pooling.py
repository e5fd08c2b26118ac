"""Attention by one learned query."""

from typing import Any

import keras
from keras import ops

from keras_attention._spec import Spec, check_int
from keras_attention._typing import Shape, Tensor
from keras_attention.layers.base import CheckedLayer
from keras_attention.layers.scoring import NORMALIZERS, read_values, set_weighing
from keras_attention.ops.masks import blanked
from keras_attention.ops.products import dot_score

__all__ = ["AttentionPooling"]


@keras.saving.register_keras_serializable(package="keras_attention")
class AttentionPooling(CheckedLayer):
    """One vector for a sequence: the attention of Yang et al. (2016) on words, or on sentences.

        u[b,t] = tanh(W h[b,t] + b)
        a[b,:] = softmax of u[b,:] . u_q over the valid t
        s[b]   = sum_t a[b,t] h[b,t]

    Sizes: B samples, T steps, D features, U units.

    Args:
        units: U, the width in which steps are compared with the query u_q.
        normalizer, dropout, seed: see `ScoringMixin`.

    Weights:
        kernel: W, `(D, U)`. bias: b, `(U,)`. query_vector: u_q, `(U,)`.

    Call arguments:
        inputs: h, `(B, T, D)`.
        mask: `(B, T)` boolean; steps where it is False are not read. Pass it: from Keras 3.16
            on, masks do not propagate through recurrent layers.
        return_attention_scores: whether to return the weights too, as they are before dropout.
        training: whether dropout is active.

    Returns:
        s `(B, D)`; with `return_attention_scores` also the weights a `(B, T)`. Where nothing is
        valid, both are exactly zero and gradients are finite.

    Raises:
        ValueError: `units` is missing or not a positive integer; `inputs` is not of rank 3, or has
            another width than the layer was built for; the mask is not boolean or has another
            shape.

    Example:
        >>> import numpy
        >>> from keras_attention import AttentionPooling
        >>> sentence, weights = AttentionPooling(5)(
        ...     numpy.ones((2, 4, 3)), return_attention_scores=True
        ... )
        >>> sentence.shape, weights[0].numpy().tolist()
        (TensorShape([2, 3]), [0.25, 0.25, 0.25, 0.25])

    Reference: https://aclanthology.org/N16-1174, equations 5 to 7.
    """

    CALL = Spec("inputs: float[B T D]", "mask: bool[B T]?")

    def __init__(
        self,
        units: int,
        normalizer: str = "softmax",
        dropout: float = 0.0,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        set_weighing(self, normalizer, dropout, seed)
        self.units = check_int(self.name, "units", units)

    def build(self, inputs_shape: Shape) -> None:
        self._sizes = self.CALL.check_shapes(self.name, {"inputs": inputs_shape})
        self.kernel = self.add_weight((inputs_shape[-1], self.units), name="kernel")
        self.bias = self.add_weight((self.units,), initializer="zeros", name="bias", autocast=False)
        self.query_vector = self.add_weight((self.units,), name="query_vector")

    def call(
        self,
        inputs: Tensor,
        mask: Tensor = None,
        return_attention_scores: bool = False,
        training: bool | None = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        inputs = blanked(inputs, mask)
        query = ops.cast(self.query_vector, self.score_dtype)
        query = ops.broadcast_to(query, (ops.shape(inputs)[0], 1, self.units))
        scores = dot_score(query, self.project_key(inputs))
        mask = None if mask is None else ops.expand_dims(mask, 1)
        weights = NORMALIZERS[self.normalizer](scores, mask)
        pooled = ops.squeeze(read_values(self, weights, inputs, training), 1)
        if not return_attention_scores:
            return pooled
        return pooled, ops.cast(ops.squeeze(weights, 1), self.compute_dtype)

    def project_key(self, key: Tensor) -> Tensor:
        """u, the steps as they are compared with u_q, in `score_dtype`."""
        return ops.tanh(ops.add(self.project(key, self.kernel), self.bias))

    def compute_mask(self, inputs: Tensor, mask: Tensor = None) -> None:
        return None  # the axis of steps is gone

    def compute_output_shape(self, inputs_shape: Shape) -> Shape:
        self.CALL.check_shapes(self.name, {"inputs": inputs_shape})
        return (inputs_shape[0], inputs_shape[-1])
