"""Attention flow between a context and a query, in both directions."""

from typing import Unpack

import keras

from keras_attention._spec import Description, Spec, check_bool, raise_value_error
from keras_attention._typing import LayerOptions, Shape, Tensor, TensorShape
from keras_attention.attention.checked_layer import CheckedLayer
from keras_attention.attention.scoring import NORMALIZERS, set_weight_options, weighted_sum
from keras_attention.backend import ops
from keras_attention.ops.masks import Masks, zero_masked
from keras_attention.ops.normalize import FLOOR
from keras_attention.ops.trilinear import trilinear_score

__all__ = ["BiDAFAttentionFlow"]


@keras.saving.register_keras_serializable(package="keras_attention")
class BiDAFAttentionFlow(CheckedLayer):
    """Bi-directional attention flow (Seo, Kembhavi, Farhadi and Hajishirzi, 2017).

        S[b,t,j] = w . [h[b,t]; u[b,j]; h[b,t] * u[b,j]]
        a[b,t,:] = softmax of S[b,t,:] over the valid j           context to query
        u~[b,t]  = sum_j a[b,t,j] u[b,j]
        b[b,:]   = softmax over the valid t of max_j S[b,t,j]     query to context
        h~[b]    = sum_t b[b,t] h[b,t]
        G[b,t]   = [h[b,t]; u~[b,t]; h[b,t] * u~[b,t]; h[b,t] * h~[b]]

    Sizes: B samples, T context and J query steps, D features of both (2d in the paper).

    Both masks are applied before the maximum over j, so that padding never wins it.

    Args:
        query_to_context: whether to attend in that direction; without it, G has its first three
            parts only.
        context_to_query: whether to attend in that direction; without it, u~ is the average of the
            valid u, as in the paper's ablation.
        normalizer, dropout, seed: see `ScoringMixin`; used in both directions.

    Weights:
        context_vector, query_vector, product_vector: the thirds of w, each `(D,)`. The first exists
            with `query_to_context` only, because the other direction does not depend on it. The
            last starts at ones, so that S starts near the dot product and finds equal words.

    Call arguments:
        context: h, `(B, T, D)`.
        query: u, `(B, J, D)`.
        context_mask: `(B, T)` boolean; G is zero where it is False.
        query_mask: `(B, J)` boolean; steps where it is False are not read. Pass both masks:
            from Keras 3.16 on, masks do not propagate through recurrent layers.
        return_attention_scores: whether to return the weights too, as they are before dropout.
        training: whether dropout is active.

    Returns:
        G `(B, T, 4D)`, or `(B, T, 3D)` without `query_to_context`. With `return_attention_scores`
        `(G, (a, b))`, a `(B, T, J)` and b `(B, T)`, or `(G, (a,))` without `query_to_context`. A
        row of a or b where nothing is valid is zero, and it reads zeros.

    Raises:
        ValueError: both directions are False; context and query are not of rank 3, or differ in
            batch size or width; a mask is not boolean or has another shape; otherwise as
            `ScoringMixin`.

    Example:
        >>> import numpy
        >>> from keras_attention import BiDAFAttentionFlow
        >>> context, query = numpy.ones((2, 7, 5)), numpy.ones((2, 3, 5))
        >>> merged, (a, b) = BiDAFAttentionFlow()(context, query, return_attention_scores=True)
        >>> merged.shape, a.shape, b.shape
        (TensorShape([2, 7, 20]), TensorShape([2, 7, 3]), TensorShape([2, 7]))

    Reference: https://arxiv.org/abs/1611.01603, section 2, the attention flow layer.
    """

    CALL = Spec(
        *("context: float[B T D]", "query: float[B J D]"),
        *("context_mask: bool[B T]?", "query_mask: bool[B J]?"),
    )

    def __init__(
        self,
        query_to_context: bool = True,
        context_to_query: bool = True,
        normalizer: str = "softmax",
        dropout: float = 0.0,
        seed: int | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        set_weight_options(self, normalizer, dropout, seed)
        self.query_to_context = check_bool(self.name, "query_to_context", query_to_context)
        self.context_to_query = check_bool(self.name, "context_to_query", context_to_query)
        if not (query_to_context or context_to_query):
            expected = "`query_to_context` or `context_to_query` must be True"
            raise_value_error(self.name, expected, Description("False for both"))

    def build(self, context_shape: Shape, query_shape: Shape = None) -> None:
        shapes = {"context": context_shape, "query": query_shape}
        self._sizes = self.CALL.check_shapes(self.name, shapes)
        shape = (self._sizes["D"],)
        # Context to query does not depend on w_h, which adds the same to all scores of a row.
        self.context_vector = None
        if self.query_to_context:
            self.context_vector = self.add_weight(shape, name="context_vector", autocast=False)
        self.query_vector = self.add_weight(shape, name="query_vector", autocast=False)
        self.product_vector = self.add_weight(shape, "ones", name="product_vector", autocast=False)

    def call(
        self,
        context: Tensor,
        query: Tensor = None,
        context_mask: Tensor = None,
        query_mask: Tensor = None,
        return_attention_scores: bool = False,
        training: bool | None = None,
    ) -> Tensor | tuple[Tensor, tuple[Tensor, ...]]:
        # Keras casts the inputs of a call, but not of a direct `compute_output_spec`.
        context, query = (ops.cast(x, self.compute_dtype) for x in (context, query))
        context, query = zero_masked(context, context_mask), zero_masked(query, query_mask)
        scores = self.score(*(ops.cast(x, self.score_dtype) for x in (context, query)))
        mask = Masks(memory=query_mask, query=context_mask).joined(context, query)
        normalize = NORMALIZERS[self.normalizer]
        # Equal scores give the average.
        weights = normalize(scores if self.context_to_query else ops.zeros_like(scores), mask)
        attended = weighted_sum(self, weights, query, training)
        merged, returned = [context, attended, context * attended], [weights]
        if self.query_to_context:
            weights = normalize(*self._best(scores, mask))
            merged.append(context * weighted_sum(self, weights, context, training))
            returned.append(ops.squeeze(weights, 1))
        merged = ops.concatenate(merged, axis=-1)
        if not return_attention_scores:
            return merged
        return merged, tuple(ops.cast(weights, self.compute_dtype) for weights in returned)

    def score(self, context: Tensor, query: Tensor) -> Tensor:
        """Return S, `(B, T, J)`, in `score_dtype`."""
        vectors = {"query_vector": self.query_vector, "product_vector": self.product_vector}
        if self.query_to_context:
            vectors["context_vector"] = self.context_vector
        vectors = {name: ops.cast(x, self.score_dtype) for name, x in vectors.items()}
        return trilinear_score(context, query, **vectors)

    def _best(self, scores: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Return max_j S, `(B, 1, T)`, and True where it is valid."""
        floor = ops.cast(FLOOR, scores.dtype)
        if mask is not None:
            scores = ops.where(mask, scores, floor)
        # The initial value also serves a query of zero steps. On PyTorch, Keras returns the maximum
        # of an empty tensor in a wrong shape.
        if 0 in scores.shape:
            best = ops.full(ops.shape(scores)[:2], FLOOR, scores.dtype)
        else:
            best = ops.max(scores, axis=2, initial=FLOOR)
        best = ops.expand_dims(best, 1)
        # NaN is valid, and propagates.
        return best, ops.logical_not(best <= floor)

    def compute_output_shape(
        self, context_shape: TensorShape, query_shape: Shape = None
    ) -> TensorShape:
        shapes = {"context": context_shape, "query": query_shape}
        size = self.CALL.check_shapes(self.name, shapes)["D"]
        return (*context_shape[:-1], (4 if self.query_to_context else 3) * size)
