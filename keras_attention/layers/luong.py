"""The attention of Luong, Pham and Manning, global and local."""

from collections.abc import Callable
from typing import Unpack

import keras

from keras_attention._spec import MAX_STEPS, Description, check_choice, check_int, raise_value_error
from keras_attention._typing import ScoringOptions, Shape, Tensor
from keras_attention.attention.scoring import ScoringMixin
from keras_attention.attention.types import Memory, Window
from keras_attention.backend import ops, uses_placeholder_sizes, value_of
from keras_attention.ops.additive.dispatch import additive_score
from keras_attention.ops.matmul import cast, dot_score
from keras_attention.ops.windows import window_dot, window_tanh
from keras_attention.ops.windows.positions import sentence_span

__all__ = ["LuongAttention"]


SCORES = ("dot", "general", "concat", "location")
ALIGNMENTS = ("global", "local-m", "local-p")


@keras.saving.register_keras_serializable(package="keras_attention")
class LuongAttention(ScoringMixin):
    """Attention by several scores, global and local (Luong, Pham and Manning, 2015).

        e[b,i,j] = q[b,i] . k[b,j]                         score_mode="dot"
                   q[b,i] . W k[b,j]                       score_mode="general"
                   v . tanh(W [q[b,i]; k[b,j]])            score_mode="concat"
                   (W^T q[b,i])[j]                         score_mode="location"
        a[b,i,:] = softmax of e[b,i,:] over the valid j    alignment="global"
        c[b,i]   = sum_j a[b,i,j] v[b,j]
        h~[b,i]  = tanh(W_c [c[b,i]; q[b,i]])              with `units`, the attentional vector

    Local alignment reads and normalises only the 2D + 1 positions around floor(p[b,i]).
    The sentence spans the positions from the first valid step f[b] to the last valid step l[b];
    masked steps between them count as positions, but are not read:

        S[b]     = l[b] - f[b] + 1
        p[b,i]   = f[b] + min(i, S[b] - 1)                       alignment="local-m"
        p[b,i]   = f[b] + S[b] sigmoid(v_p . tanh(W_p q[b,i]))   alignment="local-p", and then
        a[b,i,j] = softmax(e)[b,i,j] exp(-(j - p[b,i])^2 / (2 (D/2)^2)), not normalised again

    Sizes: B samples, Tq query and Tk memory steps, Dq, Dk and Dv features, D half-width.

    Args:
        score_mode: "dot" (Dq = Dk), "general", "concat", or "location", which ignores the keys.
        alignment: "global", "local-m" (monotonic) or "local-p" (predictive). half_width: D.
        units: width of the attentional vector; None returns the context.
        max_length: the largest Tk, for score_mode="location"; a graph of unknown Tk reads no more.
        normalizer, dropout, seed: see `ScoringMixin`.

    Weights:
        score_kernel: W; general `(Dq, Dk)`, concat `(Dq + Dk, Dq)`, location `(Dq, max_length)`.
        score_vector: v, `(Dq,)`, for concat.
        position_kernel: W_p, `(Dq, Dq)`; position_vector: v_p, `(Dq,)`, for local-p.
        output_kernel: W_c, `(Dv + Dq, units)`, context first.

    Call arguments:
        query: `(B, Tq, Dq)`, or `(B, Dq)` for one step. value: `(B, Tk, Dv)`. key: `(B, Tk, Dk)`.
        position: the index of the step, an integer or `(B,)`, for local-m on one step.
        All others: see `ScoringMixin`.

    Returns:
        Context `(B, Tq, Dv)` or attentional vector `(B, Tq, units)`; with `return_attention_scores`
        also weights `(B, Tq, Tk)`. Rows sum to at most one for local-p.

    Raises:
        ValueError: an argument is out of range; Dq and Dk differ for dot; the memory is longer than
            `max_length`; `position` is missing; otherwise as `ScoringMixin`.

    Example:
        >>> import numpy
        >>> from keras_attention import LuongAttention
        >>> attention = LuongAttention("general", "local-p", half_width=2, units=17)
        >>> attention(numpy.ones((2, 3, 5)), numpy.ones((2, 7, 11))).shape
        TensorShape([2, 3, 17])

    Reference: https://arxiv.org/abs/1508.04025, section 3. The window and the product with the
    Gaussian follow the authors' code. There f = 0: sentences start at the first memory step.
    """

    decoder_query = "current"

    def __init__(
        self,
        score_mode: str = "general",
        alignment: str = "global",
        half_width: int = 10,
        units: int | None = None,
        max_length: int | None = None,
        **kwargs: Unpack[ScoringOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.score_mode = check_choice(self.name, "score_mode", score_mode, SCORES)
        self.alignment = check_choice(self.name, "alignment", alignment, ALIGNMENTS)
        self.uses_position = self.uses_position or alignment == "local-m"
        self.half_width = check_int(self.name, "half_width", half_width, most=MAX_STEPS)
        self.units = None if units is None else check_int(self.name, "units", units)
        self.max_length = max_length
        if score_mode == "location":
            self.max_length = check_int(self.name, "max_length", max_length, most=MAX_STEPS)
        elif max_length is not None:
            expected = '`max_length` is for score_mode="location" only'
            raise_value_error(self.name, expected, max_length, "Leave it out.")

    def build(self, query_shape: Shape, value_shape: Shape = None, key_shape: Shape = None) -> None:
        super().build(query_shape, value_shape, key_shape)
        query_size, key_size = self._sizes["Dq"], self._sizes["Dk"]
        self._check_length(value_shape)
        if self.score_mode == "dot" and query_size != key_size:
            expected = 'score_mode="dot" needs a query and a key of the same width'
            received = Description(f"query {query_size} and key {key_size}")
            raise_value_error(self.name, expected, received, 'Use score_mode="general".')
        shapes = {
            "general": (query_size, key_size),
            "concat": (query_size + key_size, query_size),
            "location": (query_size, self.max_length),
        }
        if self.score_mode in shapes:
            self.score_kernel = self.add_weight(shapes[self.score_mode], name="score_kernel")
        if self.score_mode == "concat":
            self.score_vector = self.add_weight((query_size,), name="score_vector", autocast=False)
        if self.alignment == "local-p":
            square, vector = (query_size, query_size), (query_size,)
            self.position_kernel = self.add_weight(square, name="position_kernel")
            self.position_vector = self.add_weight(vector, name="position_vector", autocast=False)
        if self.units is not None:
            shape = (self._sizes["Dv"] + query_size, self.units)
            self.output_kernel = self.add_weight(shape, name="output_kernel")

    def compute_output_spec(
        self, query: Tensor, value: Tensor = None, *args: Tensor, **kwargs: Tensor
    ) -> Tensor:
        spec = super().compute_output_spec(query, value, *args, **kwargs)
        self._check_length(value.shape)
        return spec

    def project_query(self, query: Tensor) -> Tensor:
        if self.score_mode != "concat":
            return query
        return self.project(query, self.score_kernel[: self.score_vector.shape[0]])

    def project_key(self, key: Tensor) -> Tensor:
        if self.score_mode == "general":
            return self.project(key, ops.transpose(self.score_kernel))
        if self.score_mode == "concat":
            return self.project(key, self.score_kernel[self.score_vector.shape[0] :])
        return key

    def score(self, query: Tensor, key: Tensor) -> Tensor:
        if self.score_mode == "concat":
            return additive_score(query, key, cast(self.score_vector, self.score_dtype))
        return dot_score(query, key)

    def score_window(self, query: Tensor, key: Tensor, position: Tensor) -> Tensor:
        """Compute the scores of the keys at the positions of windows, `(B, Tq, W)`."""
        if self.score_mode == "concat":
            vector = cast(self.score_vector, self.score_dtype)
            return window_tanh(query, key, vector, position)
        return window_dot(query, key, position)

    def _prepare(self, value: Tensor, key: Tensor = None, value_mask: Tensor = None) -> Memory:
        memory = super()._prepare(value, key, value_mask)
        if self.max_length is None:
            return memory
        self._check_length(value.shape)
        batch, length = ops.shape(value)[:2]
        start, _ = sentence_span(memory.mask, batch, length, "int32")
        column = ops.arange(length, dtype="int32") - ops.expand_dims(start, -1)  # (B, Tk)
        inside = column < self.max_length
        mask = inside if memory.mask is None else ops.logical_and(inside, memory.mask)
        kernel = ops.cast(ops.transpose(self.score_kernel), self.score_dtype)
        key = ops.take(kernel, ops.clip(column, 0, self.max_length - 1), axis=0)
        return memory._replace(key=key, mask=mask)

    def window(self, query: Tensor, memory: Memory, position: int | Tensor | None) -> Window | None:
        if self.alignment == "global":
            return None
        batch, length = ops.shape(memory.value)[:2]
        start, size = sentence_span(memory.mask, batch, length, self.score_dtype)
        start, size = ops.expand_dims(start, -1), ops.expand_dims(size, -1)
        if self.alignment == "local-p":
            hidden = ops.tanh(self.project(query, self.position_kernel))
            # Not a product: in a loop, TensorFlow would store the reshaped vector for every step.
            logit = ops.sum(hidden * self.position_vector, axis=-1)
            return Window(start + size * ops.sigmoid(logit), self.half_width, gaussian=True)
        if position is None:
            position = ops.expand_dims(ops.arange(ops.shape(query)[1]), 0)  # (1, Tq)
        elif query.shape[1] == 1:
            position = ops.reshape(ops.convert_to_tensor(position), (-1, 1))  # (B, 1)
        center = ops.minimum(ops.cast(position, self.score_dtype), size - 1)
        return Window(start + ops.maximum(center, 0), self.half_width)

    def combine(self, query: Tensor, context: Tensor) -> Tensor:
        if self.units is None:
            return context
        both = ops.concatenate([context, ops.cast(query, context.dtype)], axis=-1)
        return ops.cast(ops.tanh(self.project(both, self.output_kernel)), self.compute_dtype)

    def _output_product(self) -> tuple[list[Tensor], Callable[[Tensor], Tensor]] | None:
        if type(self).combine is not LuongAttention.combine or self.units is None:
            return None
        kernel = ops.cast(value_of(self.output_kernel), self.compute_dtype)
        size = self._sizes["Dv"]

        def activation(total):
            return ops.cast(ops.tanh(ops.cast(total, self.score_dtype)), self.compute_dtype)

        return [kernel[size:], kernel[:size]], activation

    def output_size(self, query_size: int, value_size: int) -> int:
        return value_size if self.units is None else self.units

    def _check_length(self, shape: Shape) -> None:
        length = shape[1] if shape is not None else None
        if self.max_length is None or length is None or not isinstance(length, int):
            return
        if length > self.max_length and not uses_placeholder_sizes():
            expected = f"`value` must have at most max_length={self.max_length} memory steps"
            raise_value_error(self.name, expected, length, "Give a larger max_length.")
