"""One hop of a memory network."""

from typing import Unpack

import keras

from keras_attention._spec import check_bool, check_choice
from keras_attention._typing import ScoringOptions, Shape, Tensor
from keras_attention.attention.scoring import ScoringMixin
from keras_attention.backend import ops
from keras_attention.ops.matmul import dot_score

__all__ = ["MemoryHop"]


@keras.saving.register_keras_serializable(package="keras_attention")
class MemoryHop(ScoringMixin):
    """One hop of an end-to-end memory network (Sukhbaatar, Szlam, Weston and Fergus, 2015).

        p[b,:]  = softmax of u[b] . m[b,i] over the valid i     p = u . m itself while `linear`
        o[b]    = sum_i p[b,i] c[b,i]
        u'[b]   = u[b] + o[b]                                   update="add"
        u'[b]   = H u[b] + o[b]                                 update="linear"

    Sizes: B samples, Tk memories, D features of all three.

    Args:
        update: "add" or "linear", as above.
        normalizer, dropout, seed: see `ScoringMixin`.

    Attributes:
        linear: whether to leave out the softmax, so that the weights are the scores, and zero at
            masked memories. Unbounded weights may overflow in half precision. Set it at any time,
            even between the epochs of a compiled `fit`: nothing is compiled again. It is saved with
            the weights.

    Weights:
        update_kernel: H, `(D, D)`, with update="linear"; applied as u H.

    Call arguments:
        query: u, `(B, D)`, or `(B, Tq, D)` for several.
        value: c, `(B, Tk, D)`. key: m, `(B, Tk, D)`; defaults to the value.
        value_mask: `(B, Tk)` boolean; memories where it is False are not read.
        All others: see `ScoringMixin`.

    Returns:
        u' `(B, D)`; with `return_attention_scores` also the weights p `(B, Tk)`. If all memories
        are masked, o is zero.

    Raises:
        ValueError: `update` is unknown; widths of query, key and value differ; otherwise as
            `ScoringMixin`.

    Example:
        >>> import numpy
        >>> from keras_attention import MemoryHop
        >>> question, memories = numpy.ones((2, 5)), numpy.ones((2, 4, 5))
        >>> state, weights = MemoryHop()(question, memories, return_attention_scores=True)
        >>> state[0].numpy().tolist(), weights[0].numpy().tolist()
        ([2.0, 2.0, 2.0, 2.0, 2.0], [0.25, 0.25, 0.25, 0.25])

    Reference: https://arxiv.org/abs/1503.08895, sections 2.1 and 2.2.
    """

    # All are compared and added.
    CALL = ScoringMixin.CALL.replace(
        "query: float[B Tq D] | float[B D]", "value: float[B Tk D]", "key: float[B Tk D]?"
    )
    STEP = CALL.replace("query_mask: bool[B]?", "attention_mask: bool[B Tk]?")

    def __init__(self, update: str = "add", **kwargs: Unpack[ScoringOptions]) -> None:
        super().__init__(**kwargs)
        self.update = check_choice(self.name, "update", update, ("add", "linear"))
        self._linear = False

    def build(self, query_shape: Shape, value_shape: Shape = None, key_shape: Shape = None) -> None:
        super().build(query_shape, value_shape, key_shape)
        if self.update == "linear":
            shape = (self._sizes["D"], self._sizes["D"])
            self.update_kernel = self.add_weight(shape, name="update_kernel")
        start = "ones" if self._linear else "zeros"
        self._switch = self.add_weight((), start, dtype="bool", trainable=False, name="linear")

    @property
    def linear(self) -> bool:
        """True if the softmax is left out. Setting it never recompiles."""
        return bool(ops.convert_to_numpy(self._switch)) if self.built else self._linear

    @linear.setter
    def linear(self, value: bool) -> None:
        """Switch the softmax, in compiled programs too."""
        self._linear = check_bool(self.name, "linear", value)
        if self.built:
            self._switch.assign(value)

    def score(self, query: Tensor, key: Tensor) -> Tensor:
        return dot_score(query, key)

    def weigh(self, scores: Tensor, mask: Tensor) -> Tensor:
        weights = super().weigh(scores, mask)
        if mask is not None:
            scores = ops.where(mask, scores, ops.zeros_like(scores))
        return ops.where(ops.convert_to_tensor(self._switch), scores, weights)

    def combine(self, query: Tensor, context: Tensor) -> Tensor:
        if self.update == "linear":
            query = self.project(query, self.update_kernel)
        return ops.cast(query, context.dtype) + context
