"""The attention of Luong, Pham and Manning, global and local."""

import keras
from keras import ops

from keras_attention.layers.checks import check_choice, check_positive_int
from keras_attention.layers.local import comparable, compare, focus_locally, focus_widely
from keras_attention.layers.scoring import ScoringMixin
from keras_attention.ops.windows import sentence_span

SCORES = ("dot", "general", "concat", "location")
ALIGNMENTS = ("global", "local-m", "local-p")


@keras.saving.register_keras_serializable(package="keras_attention")
class LuongAttention(ScoringMixin, keras.layers.Layer):
    """Attention by several scores, global and local (Luong, Pham and Manning, 2015).

        e[b,i,j] = q[b,i] . k[b,j]                         score="dot"
                   q[b,i] . W k[b,j]                       score="general"
                   v . tanh(W [q[b,i]; k[b,j]])            score="concat"
                   (W^T q[b,i])[j]                         score="location"
        a[b,i,:] = softmax of e[b,i,:] over the valid j    alignment="global"
        c[b,i]   = sum_j a[b,i,j] v[b,j]
        h~[b,i]  = tanh(W_c [c[b,i]; q[b,i]])              with `units`, the attentional vector

    Local alignment reads the 2D + 1 positions around floor(p[b,i]) only, and normalises there;
    S is the number of valid memory steps:

        p[b,i]   = i, at most S - 1                              alignment="local-m"
        p[b,i]   = S sigmoid(v_p . tanh(W_p q[b,i]))             alignment="local-p", and then
        a[b,i,j] = softmax(e)[b,i,j] exp(-(j - p[b,i])^2 / (2 (D/2)^2)), not normalised again

    Sizes: B samples, Tq query and Tk memory steps, Dq, Dk and Dv features, D window.

    Args:
        score: "dot" (Dq = Dk), "general", "concat", or "location", which looks at the query and
            the position alone.
        alignment: "global", "local-m" (monotonic) or "local-p" (predictive).
        window: D, half the width of the local window.
        units: of the attentional vector; None returns the context.
        max_length: the largest Tk, for score="location". Where Tk is not known before a graph
            runs, memory steps beyond max_length are not attended to.
        normalizer, dropout, seed: see `ScoringMixin`.

    Weights:
        score_kernel: W; general `(Dq, Dk)`, concat `(Dq + Dk, Dq)`, location `(Dq, max_length)`.
        score_vector: v, `(Dq,)`, for concat.
        position_kernel: W_p, `(Dq, Dq)`; position_vector: v_p, `(Dq,)`, for local-p.
        output_kernel: W_c, `(Dv + Dq, units)`, context first.

    Call arguments:
        query: `(B, Tq, Dq)`, or `(B, Dq)` for one step, which drops the axis Tq everywhere.
        value: `(B, Tk, Dv)`.
        key: `(B, Tk, Dk)`; the value if not given.
        query_mask, value_mask, attention_mask, use_causal_mask, return_attention_scores,
            training: see `ScoringMixin`.
        position: the number of the step, an integer or `(B,)`, for local-m on one step.

    Returns:
        Context `(B, Tq, Dv)`, or attentional vector `(B, Tq, units)`; with
        `return_attention_scores` also weights `(B, Tq, Tk)`, whose rows sum to less than one for
        local-p.

    Raises:
        ValueError: unknown `score` or `alignment`; `window` or `units` not positive; Dq and Dk
            differ for dot; `max_length` missing for location, given for another score, or shorter
            than the memory; `position` missing; otherwise as `ScoringMixin`.

    Example:
        >>> import numpy
        >>> from keras_attention import LuongAttention
        >>> attention = LuongAttention(score="general", alignment="local-p", window=2, units=17)
        >>> attention(numpy.ones((2, 3, 5)), numpy.ones((2, 7, 11))).shape
        TensorShape([2, 3, 17])

    Reference: https://arxiv.org/abs/1508.04025, section 3. The window and the product with the
    Gaussian follow the authors' code. With padding in front, positions count from the first valid
    memory step.
    """

    decoder_query = "current"

    def __init__(
        self,
        score="general",
        alignment="global",
        window=10,
        units=None,
        max_length=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.score_type = check_choice(self.name, "score", score, SCORES)
        self.alignment = check_choice(self.name, "alignment", alignment, ALIGNMENTS)
        self.window = check_positive_int(self.name, "window", window)
        self.units = None if units is None else check_positive_int(self.name, "units", units)
        if (max_length is None) == (self.score_type == "location"):
            raise ValueError(
                f'{self.name}: `max_length`, the longest memory, is needed for score="location" '
                f"and for no other; received max_length={max_length!r} with score={score!r}."
            )
        if max_length is not None:
            max_length = check_positive_int(self.name, "max_length", max_length)
        self.max_length = max_length

    @property
    def uses_position(self):
        return self.alignment == "local-m"

    def build(self, query_shape, value_shape=None, key_shape=None):
        super().build(query_shape, value_shape, key_shape)
        query_size, key_size = query_shape[-1], (key_shape or value_shape)[-1]
        if self.score_type == "dot" and query_size != key_size:
            raise ValueError(
                f'{self.name}: score="dot" needs a query and a key of the same width; received '
                f'query {query_size} and key {key_size}. Use score="general".'
            )
        self._check_length(value_shape)
        kernel_shape = {
            "general": (query_size, key_size),
            "concat": (query_size + key_size, query_size),
            "location": (query_size, self.max_length),
        }.get(self.score_type)
        if kernel_shape:
            self.score_kernel = self.add_weight(kernel_shape, name="score_kernel")
        if self.score_type == "concat":
            self.score_vector = self.add_weight((query_size,), name="score_vector")
        if self.alignment == "local-p":
            self.position_kernel = self.add_weight((query_size, query_size), name="position_kernel")
            self.position_vector = self.add_weight((query_size,), name="position_vector")
        if self.units is not None:
            shape = (value_shape[-1] + query_size, self.units)
            self.output_kernel = self.add_weight(shape, name="output_kernel")

    def prepare(self, value, key=None, value_mask=None):
        memory = super().prepare(value, key, value_mask)
        if self.score_type != "location":
            return memory
        # The score of a position is a dot product, with the column of W for that position as key.
        self._check_length(value.shape)
        batch, length = ops.shape(value)[0], ops.shape(value)[1]
        start, _ = sentence_span(memory.mask, batch, length, "int32")
        column = ops.arange(length, dtype="int32") - ops.expand_dims(start, -1)  # (B, Tk)
        inside = column < self.max_length
        mask = inside if memory.mask is None else ops.logical_and(inside, memory.mask)
        column = ops.clip(column, 0, self.max_length - 1)
        kernel = ops.cast(ops.transpose(self.score_kernel), self.score_dtype)
        return memory._replace(key=ops.take(kernel, column, axis=0), mask=mask)

    def project_key(self, key):
        if self.score_type == "general":
            key = self.project(key, ops.transpose(self.score_kernel))
        if self.score_type == "concat":
            key = self.project(key, self.score_kernel[self.score_vector.shape[0] :])
        # Not even a copy of the same numbers: what is read from the windows is read once.
        same = keras.backend.standardize_dtype(key.dtype) == self.score_dtype
        return key if same else ops.cast(key, self.score_dtype)

    def score(self, query, key):
        query, vector = comparable(self, query)
        return compare(query, key, vector)

    def focus(self, query, memory, masks, position, return_attention_scores, training):
        if self.alignment == "global":
            return super().focus(query, memory, masks, position, return_attention_scores, training)
        batch, length = ops.shape(memory.value)[:2]
        start, size = sentence_span(memory.mask, batch, length, self.score_dtype)
        center = self._center(query, ops.shape(query)[1], size, position)
        center = center + ops.expand_dims(start, -1)  # (B, Tq)
        hooks = ("score", "align", "read", "drop")
        given = all(getattr(type(self), x) is getattr(LuongAttention, x) for x in hooks)
        if not given:
            # A subclass may need all of the memory.
            return focus_widely(self, query, memory, masks, center, training)
        return focus_locally(self, query, memory, masks, center, return_attention_scores, training)

    def _center(self, query, steps, size, position):
        """p of every query, counted from the start of its sentence: `(B, Tq)`."""
        size = ops.expand_dims(size, -1)
        if self.alignment == "local-p":
            hidden = ops.tanh(self.project(query, self.position_kernel))
            vector = ops.cast(self.position_vector, self.score_dtype)
            logit = ops.einsum("bqu,u->bq", ops.cast(hidden, self.score_dtype), vector)
            return size * ops.sigmoid(logit)
        if position is None:
            position = ops.expand_dims(ops.arange(steps), 0)
        else:
            position = ops.reshape(ops.convert_to_tensor(position), (-1, 1))
        position = ops.cast(position, self.score_dtype)
        return ops.maximum(ops.minimum(position, size - 1), 0)

    def _check_length(self, shape):
        steps = shape[1] if isinstance(shape[1], int) else 0
        if self.score_type == "location" and steps > self.max_length:
            raise ValueError(
                f'{self.name}: score="location" has weights for max_length={self.max_length} '
                f"memory steps; received a memory of {steps}. Give a larger max_length."
            )

    def combine(self, query, context):
        if self.units is None:
            return context
        vector = ops.concatenate([context, ops.cast(query, context.dtype)], axis=-1)
        return ops.tanh(self.project(vector, self.output_kernel))

    def output_size(self, query_size, value_size):
        return value_size if self.units is None else self.units

    def get_config(self):
        return {
            **super().get_config(),
            "score": self.score_type,
            "alignment": self.alignment,
            "window": self.window,
            "units": self.units,
            "max_length": self.max_length,
        }
