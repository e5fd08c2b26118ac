"""The protocol of an attention: the hooks that a layer is made of."""

from collections.abc import Callable
from typing import Any

from keras import ops

from keras_attention._typing import Tensor
from keras_attention.layers._attention import NORMALIZERS, Attention
from keras_attention.layers._hooks import check_hook
from keras_attention.layers._types import Attended, Memory, Window
from keras_attention.ops._stored import stored
from keras_attention.ops.products import project

HOOKS = (
    *("score", "project_query", "project_key", "weigh", "window", "combine"),
    "output_size",
)

__all__ = ["Attended", "Memory", "ScoringMixin", "Window"]


class ScoringMixin(Attention):
    """Makes an attention layer out of a score.

        e[b,i,j] = score(q[b,i], k[b,j])                    the one method to write
        a[b,i,:] = softmax of e[b,i,:] over the valid j     or another normalizer
        c[b,i]   = sum_j a[b,i,j] v[b,j]

    Sizes: B samples, Tq query and Tk memory steps, Dq, Dk and Dv features.

    Derive from the mixin and write `score`. A score with weights also needs `build`, which begins
    with `super().build(...)`.

        >>> import keras, numpy
        >>> from keras_attention import ScoringMixin
        >>> class CosineAttention(ScoringMixin):
        ...     def score(self, query, key):
        ...         return keras.ops.einsum("bqd,bkd->bqk", unit(query), unit(key))
        >>> def unit(x):
        ...     return x * keras.ops.rsqrt(keras.ops.sum(x**2, axis=-1, keepdims=True) + 1e-9)
        >>> x = numpy.eye(3, dtype="float32")[None]
        >>> context, weights = CosineAttention()(x, x, return_attention_scores=True)
        >>> [round(float(w), 4) for w in weights[0, 0]]
        [0.5761, 0.2119, 0.2119]

    The hooks are, in the order in which people need them: `score`, `project_query`,
    `project_key`, `weigh`,
    `window`, `combine` with `output_size`, and `score_window`. The mixin masks, drops weights and
    casts. It also saves the layer: store every constructor argument in an attribute of the same
    name.

    Args:
        normalizer: "softmax"; "sparsemax" or "entmax15", which give low scores a weight of exactly
            zero; or "hardmax", which reads one memory step (see `ops.masked_hardmax`).
        dropout: fraction of the weights dropped in training, in [0, 1).
        seed: an integer that makes dropout reproducible.

    Call arguments:
        query: `(B, Tq, Dq)`, or `(B, Dq)` for one step, which drops the axis Tq everywhere.
        value: `(B, Tk, Dv)`.
        key: `(B, Tk, Dk)`; defaults to the value.
        query_mask: `(B, Tq)` boolean; the output is zero where it is False.
        value_mask: `(B, Tk)` boolean; memory steps where it is False are not attended to. Pass it:
            from Keras 3.16 on, masks do not propagate through recurrent layers.
        attention_mask: `(Tq, Tk)` or `(B, Tq, Tk)` boolean, `(B, Tk)` for one step.
        use_causal_mask: query step i attends to memory steps 0 .. i only.
        return_attention_scores: whether to return the weights too, as they are before dropout.
        position: the number of a single step, `()` or `(B,)`, for layers that count steps; or the
            numbers of all steps, `(B, Tq)`, which otherwise count from 0.
        training: whether dropout is active.

    Returns:
        Context `(B, Tq, Dv)`; with `return_attention_scores` also weights `(B, Tq, Tk)`. A row
        where nothing is valid has weights and context of exactly zero, and finite gradients.

    Raises:
        ValueError: ranks, batch sizes or lengths do not agree; a mask is not boolean or has
            another shape; no value is given; a tensor does not hold floating-point numbers; an
            argument is out of its range.
        TypeError: an argument of the call is unknown; a hook of a subclass takes too few arguments.
    """

    # Which output of the cell is the query in an `AttentionRNN`: "previous" or "current".
    decoder_query: str = "previous"
    # Whether a query of one step must come with its `position`.
    uses_position: bool = False
    # Whether the attention has a state, as a `RecurrentScoringMixin` has.
    has_state: bool = False
    # A score for windows, `score_window(query, key, position)`: keys `(B, Tk, Dp)` at positions
    # `(B, Tq, W)` to scores `(B, Tq, W)`. Without one, windows mask the scores of the whole memory.
    score_window: Callable[..., Tensor] | None = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name in HOOKS:
            check_hook(cls, name, getattr(ScoringMixin, name))
        if cls.call is Attention.call:  # otherwise it is built with other shapes
            check_hook(cls, "build", ScoringMixin.build)
        if "score" in vars(cls) and "score_window" not in vars(cls):
            cls.score_window = None  # the inherited one belongs to another score

    def score(self, query: Tensor, key: Tensor) -> Tensor:
        """Compares every query with every key: the equation of the layer.

        Args:
            query: `(B, Tq, Dp)` in `score_dtype`, as `project_query` returned it.
            key: `(B, Tk, Dp)` in `score_dtype`, as `project_key` returned it.

        Returns:
            Scores `(B, Tq, Tk)`.
        """
        raise NotImplementedError(
            f"{type(self).__name__} must define score(query, key) -> (batch, query steps, "
            "memory steps)."
        )

    def project_query(self, query: Tensor) -> Tensor:
        """Computes the part of the score that depends on the query alone, such as W q + b."""
        return query

    def project_key(self, key: Tensor) -> Tensor:
        """Computes the part of the score that depends on the keys alone, once per memory."""
        return key

    def weigh(self, scores: Tensor, mask: Tensor) -> Tensor:
        """Turns scores into weights, over the last axis.

        Args:
            scores: `(B, Tq, Tk)`, or `(B, Tq, W)` in a window.
            mask: boolean, broadcasts to the scores, or None. The weights must be zero where it is
                False; nothing masks them afterwards.

        Returns:
            Weights of the shape of the scores.
        """
        return NORMALIZERS[self.normalizer](scores, mask)

    def window(self, query: Tensor, memory: Memory, position: int | Tensor | None) -> Window | None:
        """Returns the `Window` that each query reads, or None to read the whole memory.

        Args:
            query: `(B, Tq, Dq)`. memory: `Memory`.
            position: the numbers of the steps, in a class with `uses_position = True`: `()` or
                `(B,)` for a single step, otherwise `(B, Tq)`. None stands for 0, 1, 2 and so on.
        """
        return None

    def combine(self, query: Tensor, context: Tensor) -> Tensor:
        """Turns the context into the output of the layer."""
        return context

    def output_size(self, query_size: int, value_size: int) -> int:
        """The features of the output, that is, of what `combine` returns."""
        return value_size

    def project(self, sequence: Tensor, kernel: Tensor) -> Tensor:
        """Multiplies `(B, T, D)` by `(D, U)` in the compute dtype; returns `score_dtype`."""
        sequence, kernel = (ops.cast(x, self.compute_dtype) for x in (sequence, kernel))
        return stored(ops.cast(project(sequence, kernel), self.score_dtype))
