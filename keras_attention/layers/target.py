"""Target attention: relevance of history items to a candidate."""

from collections.abc import Callable
from typing import Unpack

import keras

from keras_attention._spec import check_choice, check_int
from keras_attention._typing import DropoutOptions, Shape, Tensor
from keras_attention.attention.scoring import NORMALIZERS, ScoringMixin
from keras_attention.backend import ops, project
from keras_attention.ops.matmul import cast

__all__ = ["TargetAttention"]

# Weights that are not normalised: functions of the scores. The others are in NORMALIZERS.
ALONE: dict[str, Callable[[Tensor], Tensor]] = {
    "none": lambda scores: scores,
    "sigmoid": ops.sigmoid,
}


@keras.saving.register_keras_serializable(package="keras_attention")
class TargetAttention(ScoringMixin):
    """Target attention of the deep interest network, DIN (Zhou et al., 2018).

        e[b,i,j] = v . sigmoid(W [q; k; q - k; q * k] + b) + d      q = q[b,i], k = k[b,j]
        a[b,i,j] = e[b,i,j]                                         not normalised
        c[b,i]   = sum_j a[b,i,j] v[b,j]

    The query is a candidate, and the memory is the history of a user. The weights do not sum to
    one: their sum says how strongly the whole history speaks for the candidate.

    Sizes: B samples, Tq query and Tk memory steps, D features of query and key, Dv of the value, U
    units.

    Args:
        units: U, the hidden units of the small network.
        normalizer: "none", the scores themselves, as in the paper; "sigmoid", which keeps each
            weight between zero and one; or a normalizer of `ScoringMixin`, such as "softmax".
        dropout, seed: see `ScoringMixin`.

    Weights:
        kernel: W, `(4 D, U)`. bias: b, `(U,)`. score_vector: v, `(U,)`.
        score_bias: d, `()`, with "none" and "sigmoid"; the others do not depend on it.

    Call arguments:
        query: `(B, Tq, D)`, or `(B, D)` for one candidate, which drops the axis Tq everywhere.
        value: `(B, Tk, Dv)`. key: `(B, Tk, D)`; defaults to the value.
        All others: see `ScoringMixin`.

    Returns:
        Context `(B, Tq, Dv)`; with `return_attention_scores` also weights `(B, Tq, Tk)`.

    Raises:
        ValueError: `units` is missing or not a positive integer; the normalizer is unknown; query
            and key differ in width; otherwise as `ScoringMixin`.

    Example:
        >>> import numpy
        >>> from keras_attention import TargetAttention
        >>> item, clicked = numpy.ones((2, 5)), numpy.ones((2, 7, 5))
        >>> interest, weights = TargetAttention(36)(item, clicked, return_attention_scores=True)
        >>> interest.shape, weights.shape
        (TensorShape([2, 5]), TensorShape([2, 7]))

    Reference: https://arxiv.org/abs/1706.06978, section 4.3. The network is the authors' code with
    one hidden layer, where the paper has PReLU or Dice in place of the sigmoid.
    """

    # Queries and keys are subtracted.
    CALL = ScoringMixin.CALL.replace("query: float[B Tq D] | float[B D]", "key: float[B Tk D]?")
    STEP = CALL.replace("query_mask: bool[B]?", "attention_mask: bool[B Tk]?")

    def __init__(
        self, units: int, normalizer: str = "none", **kwargs: Unpack[DropoutOptions]
    ) -> None:
        super().__init__(**kwargs)
        self.units = check_int(self.name, "units", units)
        choices = (*ALONE, *NORMALIZERS)
        self.normalizer = check_choice(self.name, "normalizer", normalizer, choices)

    def build(self, query_shape: Shape, value_shape: Shape = None, key_shape: Shape = None) -> None:
        super().build(query_shape, value_shape, key_shape)
        self.kernel = self.add_weight((4 * self._sizes["D"], self.units), name="kernel")
        self.bias = self.add_weight((self.units,), "zeros", name="bias", autocast=False)
        self.score_vector = self.add_weight((self.units,), name="score_vector", autocast=False)
        self.score_bias = None
        if self.normalizer in ALONE:
            self.score_bias = self.add_weight((), "zeros", name="score_bias", autocast=False)

    def project_query(self, query: Tensor) -> Tensor:
        query_part, _, difference_part, _ = ops.split(self.kernel, 4)
        projected = self.project(query, query_part + difference_part)
        return ops.concatenate([query, ops.add(projected, self.bias)], axis=-1)

    def project_key(self, key: Tensor) -> Tensor:
        _, key_part, difference_part, _ = ops.split(self.kernel, 4)
        key = cast(key, self.score_dtype)
        return ops.concatenate([key, self.project(key, key_part - difference_part)], axis=-1)

    def score(self, query: Tensor, key: Tensor) -> Tensor:
        # Only the product depends on both query and key.
        size = self.kernel.shape[0] // 4
        query, key = ops.expand_dims(query, 2), ops.expand_dims(key, 1)
        products = query[..., :size] * key[..., :size]
        grad_product = cast(self.kernel[3 * size :], self.score_dtype)
        hidden = project(products, grad_product) + query[..., size:] + key[..., size:]
        scores = ops.sum(ops.multiply(ops.sigmoid(hidden), self.score_vector), axis=-1)
        return scores if self.score_bias is None else ops.add(scores, self.score_bias)

    def weigh(self, scores: Tensor, mask: Tensor) -> Tensor:
        if self.normalizer not in ALONE:
            return super().weigh(scores, mask)
        weights = ALONE[self.normalizer](scores)
        return weights if mask is None else ops.where(mask, weights, ops.zeros_like(weights))
