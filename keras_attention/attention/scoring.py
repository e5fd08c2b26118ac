"""The protocol of an attention: the hooks of a layer, and the code that runs them."""

import contextlib
import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Unpack

import keras
import numpy as np

from keras_attention._spec import (
    Description,
    Spec,
    check_bool,
    check_choice,
    check_rate,
    check_result,
    check_seed,
    check_training,
    describe,
    instance_hint,
    is_integer,
    is_tensor,
    map_shapes,
    raise_value_error,
)
from keras_attention._typing import LayerOptions, Nested, Shape, Size, Tensor
from keras_attention.attention.checked_layer import (
    CheckedLayer,
    as_in_a_call,
    float_weights,
    raise_not_initialized,
    updates_weights,
    with_weights,
)
from keras_attention.attention.types import (
    Attended,
    AttendOptions,
    DecoderAttention,
    Memory,
    Residuals,
    Window,
)
from keras_attention.backend import (
    batched_matmul,
    compiling,
    cond,
    eagerly,
    execution_context,
    jit,
    leaves,
    ops,
    tree_map,
)
from keras_attention.ops.gradients import restored
from keras_attention.ops.masks import Masks, all_of, zero_masked
from keras_attention.ops.matmul import cast
from keras_attention.ops.normalize import (
    masked_entmax15,
    masked_hardmax,
    masked_sigmoid,
    masked_softmax,
    masked_sparsemax,
)
from keras_attention.ops.random import generator_states
from keras_attention.ops.windows import window_sum
from keras_attention.ops.windows.dispatch import max_dense_length
from keras_attention.ops.windows.positions import (
    gaussian,
    scatter_windows,
    window_mask,
    window_positions,
)

__all__ = [
    "NORMALIZERS",
    "ScoringMixin",
    "add_sequence_loss",
    "as_sequence",
    "attend_masked",
    "build_attention",
    "check_attention",
    "check_hook",
    "finish",
    "set_weight_options",
    "weighted_sum",
]

HOOKS = [
    *("score", "project_query", "project_key", "weigh", "window", "combine", "output_size"),
    "sequence_loss",
]
NORMALIZERS = {
    "softmax": masked_softmax,
    "sparsemax": masked_sparsemax,
    "entmax15": masked_entmax15,
    "hardmax": masked_hardmax,
    "normalized_sigmoid": masked_sigmoid,
}


# Errors of attentions that a decoder cannot repeat, step by step.
OTHER_RESULTS = (
    "the attention returned other results in its second call. An attention in a decoder must not "
    "keep anything between steps: the loop traces one step and repeats it. Derive from "
    "RecurrentScoringMixin, and return from `next_state` what must last."
)
NO_POSITIONS = (
    "the hooks give a query alone another result than among other queries. A decoder passes one "
    "query at a time, so a hook must not use the index of a query on its axis. For the index of "
    "the decoding step, add an argument: score(self, query, key, position)."
)


class ScoringMixin(CheckedLayer):
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

    The hooks are, in the order in which people need them: `score`, `project_query`, `project_key`,
    `weigh`, `window`, `combine` with `output_size`, and `sequence_loss`. A layer with windows may
    also have a `score_window`. A hook of a step must treat each query independently: a decoder
    passes one query at a time in its loop and all queries at once for gradients. For a score that
    depends on the index of the step, write `score(self, query, key, position)`. If only the window
    depends on it, set `uses_position = True`. The mixin masks, drops weights and casts. It also
    saves the layer: store every constructor argument in an attribute of the same name.

    Args:
        normalizer: "softmax"; "sparsemax" or "entmax15", which give low scores a weight of exactly
            zero; "hardmax", which reads one memory step (see `ops.masked_hardmax`); or
            "normalized_sigmoid", which spreads the weight over all high scores
            (`ops.masked_sigmoid`).
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

    CALL = Spec(
        "query: float[B Tq Dq] | float[B Dq]",
        "value: float[B Tk Dv]",
        "key: float[B Tk Dk]?",
        "query_mask: bool[B Tq]?",
        "value_mask: bool[B Tk]?",
        "attention_mask: bool[Tq Tk] | bool[B Tq Tk]?",
    )
    # The masks beside a query of one step.
    STEP = CALL.replace("query_mask: bool[B]?", "attention_mask: bool[B Tk]?")
    # Which output of the cell is the query in an `AttentionRNN`: "previous" or "current".
    decoder_query: str = "previous"
    # Whether a query of one step must come with its `position`.
    uses_position: bool = False
    # Whether the attention has a state, as a `RecurrentScoringMixin` has.
    has_state: bool = False
    # Number of memories of a call, in lists. None: one memory, not in a list.
    memory_count: int | None = None
    # A score for windows, `score_window(query, key, position)`: keys `(B, Tk, Dp)` at positions
    # `(B, Tq, W)` to scores `(B, Tq, W)`. Without one, windows mask the scores of the whole memory.
    score_window: Callable[..., Tensor] | None = None

    # The hooks that do not come from this package. What they return is checked.
    _own: ClassVar[frozenset[str]] = frozenset()
    _score_takes_position: ClassVar[bool] = False
    _has_window: ClassVar[bool] = False

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        for name in HOOKS:
            check_hook(cls, name, getattr(ScoringMixin, name))
        modules = {x: getattr(getattr(cls, x), "__module__", "") for x in HOOKS}
        cls._own = frozenset(x for x in HOOKS if not modules[x].startswith("keras_attention."))
        for name in {"prepare", "attend"} & vars(cls).keys():
            raise TypeError(
                f"{cls.__name__}: `{name}` is no hook, and calls and decoders would not use it. "
                f"Override one of {', '.join(HOOKS)}."
            )
        if cls.call is ScoringMixin.call:  # otherwise it is built with other shapes
            check_hook(cls, "build", ScoringMixin.build)
        cls._score_takes_position = "position" in inspect.signature(cls.score).parameters
        cls._has_window = cls.window is not ScoringMixin.window
        if cls._score_takes_position and cls.has_state:
            raise TypeError(
                f"{cls.__name__}: `score` of an attention with a state takes no `position`. Count "
                "the steps in the state: return `state + 1` from `next_state`."
            )
        if cls._score_takes_position:
            cls.uses_position = True
        if "score" in vars(cls) and "score_window" not in vars(cls):
            cls.score_window = None  # the inherited one belongs to another score

    def __init__(
        self,
        normalizer: str = "softmax",
        dropout: float = 0.0,
        seed: int | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        set_weight_options(self, normalizer, dropout, seed)

    def build(self, query_shape: Shape, value_shape: Shape = None, key_shape: Shape = None) -> None:
        key_shape = key_shape or value_shape
        shapes = {"query": query_shape, "value": value_shape, "key": key_shape}
        self._sizes = self.CALL.check_shapes(self.name, shapes)

    def score(self, query: Tensor, key: Tensor) -> Tensor:
        """Compare every query with every key: the equation of the layer.

        Args:
            query: `(B, Tq, Dp)` in `score_dtype`, as `project_query` returned it.
            key: `(B, Tk, Dp)` in `score_dtype`, as `project_key` returned it.

        A subclass may add the argument `position`, the index of the decoding step of each query:
        int32, `(B, Tq)` or `(1, Tq)`. An attention with a state may not: it counts in its state.

        Returns:
            Scores `(B, Tq, Tk)`.
        """
        raise NotImplementedError(f"{type(self).__name__} must define score(query, key).")

    def project_query(self, query: Tensor) -> Tensor:
        """Compute the part of the score that depends on the query alone, such as W q + b.

        A subclass that overrides `score` inherits it.

        Args:
            query: `(B, Tq, Dq)` in `score_dtype`.

        Returns:
            `(B, Tq, Dp)`, any number of features; it is cast to `score_dtype`.
        """
        return query

    def project_key(self, key: Tensor) -> Tensor:
        """Compute the part of the score that depends on the keys alone, once per memory.

        Args:
            key: `(B, Tk, Dk)`.

        Returns:
            `(B, Tk, Dp)`, any number of features; it is cast to `score_dtype`.
        """
        return key

    def weigh(self, scores: Tensor, mask: Tensor) -> Tensor:
        """Turn scores into weights, over the last axis.

        Args:
            scores: `(B, Tq, Tk)`, or `(B, Tq, W)` in a window.
            mask: boolean, broadcasts to the scores, or None. The weights must be zero where it is
                False; nothing masks them afterwards.

        Returns:
            Weights of the shape of the scores.
        """
        return NORMALIZERS[self.normalizer](scores, mask)

    def window(self, query: Tensor, memory: Memory, position: int | Tensor | None) -> Window | None:
        """Return the `Window` that each query reads, or None to read the whole memory.

        Args:
            query: `(B, Tq, Dq)`. memory: `Memory`.
            position: the numbers of the steps, in a class with `uses_position = True`: `()` or
                `(B,)` for a single step, otherwise `(B, Tq)`. None stands for 0, 1, 2 and so on.
        """
        return None

    def combine(self, query: Tensor, context: Tensor) -> Tensor:
        """Turn the context into the output of the layer."""
        return context

    def output_size(self, query_size: int, value_size: int) -> int:
        """Return the number of features of the output of `combine`."""
        return value_size

    def sequence_loss(
        self, weights: Tensor, query_mask: Tensor | None, memory_mask: Tensor | None
    ) -> Tensor | None:
        """Return a scalar to add to the loss of the model, in validation too, or None.

        `keras_attention.alignment` has losses of alignments. The hook is called once per call of
        the layer or of its decoder, and never by `attend` or `step`.

        Args:
            weights: `(B, Tq, Tk)`, as the call returns them, in `score_dtype`.
            query_mask, memory_mask: `(B, Tq)` and `(B, Tk)` boolean, or None.
        """
        return None

    def call(
        self,
        query: Tensor,
        value: Tensor = None,
        key: Tensor = None,
        query_mask: Tensor = None,
        value_mask: Tensor = None,
        attention_mask: Tensor = None,
        use_causal_mask: bool = False,
        return_attention_scores: bool = False,
        position: int | Tensor | None = None,
        training: bool | None = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        has_loss = self._has_loss and len(query.shape) == 3
        attended = attend_masked(
            self,
            query,
            self._prepare(value, key, value_mask),
            masks=Masks(None, query_mask, attention_mask, use_causal_mask),
            position=position,
            return_attention_scores=return_attention_scores or has_loss,
            training=training,
        )
        if has_loss:
            add_sequence_loss(self, self, attended.weights, query_mask, value_mask)
        return (attended.output, attended.weights) if return_attention_scores else attended.output

    @property
    def _has_loss(self) -> bool:
        return type(self).sequence_loss is not ScoringMixin.sequence_loss

    def prepare(self, value: Tensor, key: Tensor = None, value_mask: Tensor = None) -> Memory:
        """Compute, once per memory, everything that does not depend on the query.

        For decoding: `memory = layer.prepare(encoded, value_mask=mask)` before the loop, and
        `layer.attend(query, memory)` in it. The layer must have been built.

        Args:
            value, key, value_mask: as in a call. Pass the mask: it does not propagate here.

        Returns:
            A `Memory`.
        """
        self._check_built("prepare() and attend()")
        tensors = {"value": value, "key": value if key is None else key, "value_mask": value_mask}
        self.CALL.check(self.name, tensors, self._sizes, "layer.prepare(value)")
        return self._prepare(value, key, value_mask)

    def _prepare(self, value: Nested, key: Nested = None, value_mask: Nested = None) -> Memory:
        value = zero_masked(value, value_mask)
        key = self.project_key(value if key is None else zero_masked(key, value_mask))
        if "project_key" in self._own:
            check_result(self.name, "project_key", key, *value.shape[:2])
        return Memory(cast(key, self.score_dtype), value, value_mask)

    def attend(
        self,
        query: Tensor,
        memory: Memory,
        state: Nested = None,
        query_mask: Tensor = None,
        attention_mask: Tensor = None,
        use_causal_mask: bool = False,
        position: int | Tensor | None = None,
        return_attention_scores: bool = True,
        training: bool | None = None,
        noise: Nested = None,
    ) -> Attended:
        """Attend to a prepared memory.

        Args:
            query, query_mask, attention_mask, use_causal_mask, position, training: as in a call.
            memory: a `Memory`, from `prepare`.
            state: the state returned by the previous step; None on the first step, or if the
                attention has no state.
            return_attention_scores: pass False where the weights are not needed. Then they are
                None, and the layer may save the work of making them.
            noise: the result of the hook `sample_noise` of a `RecurrentScoringMixin`; for a single
                step, its row. By default the layer samples it, which JAX refuses in a loop of your
                own.

        Returns:
            `Attended(output, state, weights)`.
        """
        check_bool(self.name, "return_attention_scores", return_attention_scores)
        check_bool(self.name, "use_causal_mask", use_causal_mask)
        check_training(self.name, training)
        self._check_memory(memory)
        tensors = {"query": query, "value": memory.value, "query_mask": query_mask}
        tensors |= {"attention_mask": attention_mask, "use_causal_mask": use_causal_mask}
        self._check_tensors({**tensors, "position": position})
        for name, x in (("state", state), ("noise", noise)):
            if x is not None and not self.has_state:
                expected = "this attention has no state"
                raise_value_error(self.name, expected, x, f"Leave `{name}` out.")
        return attend_masked(
            self,
            query,
            memory,
            None if state is None else self._state(memory, state),
            Masks(None, query_mask, attention_mask, use_causal_mask),
            position=position,
            return_attention_scores=return_attention_scores,
            training=training,
            noise=noise,
        )

    def _state(self, memory: Memory, received: Nested = None) -> Nested:
        return None

    def _begin_training(self, memory: Memory, steps: Size) -> tuple[Memory, Nested]:
        if self.dropout == 0:
            return memory, None
        # Dropping a weight at every step drops a value, so one mask for all steps is enough.
        mask = ops.ones_like(memory.value[:, :, :1])
        mask = keras.random.dropout(mask, self.dropout, seed=self._seed_generator)
        return memory._replace(value=memory.value * mask), None

    def _attend(
        self, query: Tensor, memory: Memory, state: Nested, options: AttendOptions
    ) -> tuple[Nested, Nested, Nested, Nested]:
        stored = options.stored or Residuals()
        window = self._window(query, memory, options.position) if self._has_window else None
        query = self._projected(query, stored.query)
        takes_position = self._score_takes_position
        more = {"position": step_index(query, options.position)} if takes_position else {}
        uses_windows = window is not None and self.score_window is not None
        if uses_windows:
            results = self._attend_windows(query, memory, window, options, more)
            if results is not None:
                return results[0], results[1], state, Residuals(query)
        scores = self.score(query, memory.key, **more)
        if "score" in self._own:
            check_result(self.name, "score", scores, *query.shape[:2], memory.value.shape[1])
        # One query may read the whole memory where many gather windows, so no scores are stored.
        if stored.scores is not None:
            scores = restored(scores, stored.scores)
        context, weights = self._read_whole(query, scores, memory, window, options)
        return context, weights, state, Residuals(query, None if uses_windows else scores)

    def _read_whole(self, query, scores, memory, window, options):
        """Return the context and the weights for scores of the whole memory."""
        mask, position = options.masks.joined(query, memory.value), None
        if window is not None:
            position = ops.arange(ops.shape(memory.value)[1], dtype="int32")
            mask = all_of(window_mask(window.center, position, window.half_width), mask)
        weights = self._weigh(scores, mask, window, position)
        drop = options.drop and options.training
        return weighted_sum(self, weights, memory.value, drop), weights

    def _attend_windows(self, query, memory, window, options, more):
        """Return the context and the weights of windows, or None to read the whole memory.

        The whole memory is read under a mask; otherwise the 2D + 1 positions of each window are
        gathered. Both give the same results. Gathering copies rows, so it is faster for long
        memories only.
        """
        drop, weights_wanted = options.drop and options.training, options.return_attention_scores
        score_window: Any = self.score_window

        def whole(query=query, memory=memory, window=window):
            scores = self.score(query, memory.key, **more)
            return self._read_whole(query, scores, memory, window, options)

        def gathered(query=query, memory=memory, window=window):
            length = ops.shape(memory.value)[1]
            position, inside = window_positions(window.center, window.half_width, length)
            scores = score_window(query, memory.key, position)
            mask = all_of(inside, options.masks.at(position))
            weights = self._weigh(scores, mask, window, position)
            context = weighted_sum(self, weights, memory.value, drop, position)
            scattered = scatter_windows(weights, window.center, length) if weights_wanted else None
            return context, scattered

        length = ops.shape(memory.value)[1]
        execution = execution_context(query, memory.value)
        longest = max_dense_length(execution, 2 * window.half_width + 1, memory.value.shape[-1])
        may_assign = drop and (bool(generator_states(self)) or updates_weights(self))
        if isinstance(length, int):
            if length <= longest:
                return None
            # A compiled part cannot assign variables, and is not worth it for one query.
            if query.shape[1] == 1 or may_assign:
                return gathered()
            return jit(gathered)() if execution.nests_jit else gathered()
        # The branches run again for the gradient, so they cannot assign variables.
        if not execution.graph or query.shape[1] == 1 or may_assign:
            return None

        # A TensorFlow graph does not know the length before it runs. Gradients flow to the
        # arguments of a branch alone, so the weights of the layer are arguments too.
        def moved(center):
            return window._replace(center=center)

        def branch(read):
            def run(query, key, value, center, *weights):
                with with_weights(self, weights):
                    inputs = query, memory._replace(key=key, value=value), moved(center)
                    results = as_in_a_call(self, lambda: read(*inputs), options.training)
                return results[: 1 + weights_wanted]

            return run

        tensors = query, memory.key, memory.value, window.center
        tensors += tuple(ops.convert_to_tensor(x) for x in float_weights(self))
        context, *weights = cond(length > longest, branch(gathered), branch(whole), *tensors)
        # `ops.cond` loses static sizes.
        context = ops.reshape(context, (*ops.shape(query)[:2], memory.value.shape[-1]))
        return context, weights[0] if weights else None

    def _weigh(self, scores, mask, window, position):
        weights = self.weigh(scores, mask)
        if "weigh" in self._own:
            check_result(self.name, "weigh", weights, *scores.shape)
        if window is None or not window.gaussian:
            return weights
        return weights * gaussian(window.center, position, window.half_width)

    def _window(self, query, memory, position):
        """Return the result of the hook `window`, with the center in `score_dtype`."""
        # Only a class that counts steps gets their position.
        window = self.window(query, memory, position if self.uses_position else None)
        if window is None:
            return None
        check_window(self.name, window, query.shape)
        # Half precision cannot count the positions of a long memory.
        return window._replace(center=cast(window.center, self.score_dtype))

    def _projected(self, query, stored):
        """Return the result of `project_query` in `score_dtype`, or its stored result."""
        projected = self.project_query(cast(query, self.score_dtype))
        if "project_query" in self._own:
            check_result(self.name, "project_query", projected, *query.shape[:2])
        projected = cast(projected, self.score_dtype)
        return projected if stored is None else restored(projected, stored)

    def _check_tensors(self, tensors):
        """Check the tensors of a call or of `attend`, by name, and what goes with the query."""
        if "key" in tensors and tensors["key"] is None:
            tensors["key"] = tensors["value"]
        one_step = len(getattr(tensors["query"], "shape", ())) == 2
        (self.STEP if one_step else self.CALL).check(self.name, tensors, self._sizes)
        if one_step and tensors.get("use_causal_mask"):
            expected = "`use_causal_mask=True` needs a query of rank 3, (batch, steps, features)"
            received = Description(f"one step, {tuple(tensors['query'].shape)}")
            raise_value_error(self.name, expected, received)
        if self.uses_position or tensors.get("position") is not None:
            check_position(self, tensors.get("position"), tuple(tensors["query"].shape))

    def _check_memory(self, memory):
        if not isinstance(memory, Memory):
            expected = "`memory` must come from prepare(value, value_mask=mask)"
            remedy = "Call it once, before the first query. Or call layer(query, value)."
            raise_value_error(self.name, expected, memory, remedy)
        self._check_built("prepare() and attend()")

    def _output_product(self) -> tuple[list[Tensor], Callable[[Tensor], Tensor]] | None:
        return None

    def _members(self) -> Sequence["ScoringMixin"]:
        """Return the attentions that this one is made of."""
        return [self]

    def compute_output_shape(
        self, query_shape: Shape, value_shape: Shape = None, key_shape: Shape = None
    ) -> tuple[int | None, ...]:
        shapes = {"query": query_shape, "value": value_shape, "key": key_shape}
        self.CALL.check_shapes(self.name, shapes)
        *others, size = tuple(query_shape or ())
        sizes = map_shapes(lambda shape: shape[-1], value_shape)
        return (*others, self.output_size(size or 0, sizes))


def attend_masked(
    attention: DecoderAttention,
    query: Tensor,
    memory: Memory,
    state: Nested = None,
    masks: Masks | None = None,
    **options: Any,
) -> Attended:
    """Attend to a memory, as `ScoringMixin.attend` does, without checks.

    Args:
        state: None, or the state as the layer keeps it.
        masks: masks of the query, without that of the memory.
        options: see `AttendOptions`.
    """
    masks = (masks or Masks())._replace(memory=memory.mask)
    queries, choices = as_sequence(query, AttendOptions(masks, **options))
    with compiling(True) if choices.training else contextlib.nullcontext():
        results = attention._attend(queries, memory, state, choices)
    return finish(attention, queries, memory, results, choices, one_step=len(query.shape) == 2)


def as_sequence(query: Tensor, options: AttendOptions) -> tuple[Tensor, AttendOptions]:
    """Return masked queries `(B, Tq, Dq)`, and options with an axis of steps, also for one step."""
    if len(query.shape) == 2:
        query = ops.expand_dims(query, 1)
        _, query_mask, pairs, _ = options.masks
        query_mask = None if query_mask is None else ops.expand_dims(query_mask, 1)
        pairs = None if pairs is None else tree_map(lambda x: ops.expand_dims(x, 1), pairs)
        masks = options.masks._replace(query=query_mask, pairs=pairs)
        noise = tree_map(lambda x: ops.expand_dims(x, 0), options.noise)
        options = options._replace(masks=masks, noise=noise)
    return zero_masked(query, options.masks.query), options


def finish(
    attention: DecoderAttention,
    query: Tensor,
    memory: Memory,
    results: Sequence[Nested],
    options: AttendOptions,
    one_step: bool,
    combine: bool = True,
) -> Attended:
    """Combine, mask and cast the results of `_attend`; without `combine`, keep the context."""
    output, weights, state, _ = results
    if combine:
        output = attention.combine(query, output)
        if attention._own & {"combine", "output_size"}:
            sizes = tree_map(lambda x: x.shape[-1], memory.value)
            size = attention.output_size(query.shape[-1], sizes)
            remedy = "Override output_size(query_size, value_size), or change `combine`."
            check_result(attention.name, "combine", output, *query.shape[:2], size, remedy=remedy)
    output = zero_masked(output, options.masks.query)
    output = ops.squeeze(output, 1) if one_step else output
    if not options.return_attention_scores:
        return Attended(output, state, None)
    several = isinstance(weights, list)
    each = [cast(x, attention.compute_dtype) for x in (weights if several else [weights])]
    each = [ops.squeeze(x, 1) for x in each] if one_step else each
    return Attended(output, state, each if several else each[0])


def add_sequence_loss(
    layer: keras.layers.Layer,
    attention: DecoderAttention,
    weights: Nested,
    query_mask: Tensor | None,
    memory_mask: Nested,
) -> None:
    """Add the `sequence_loss` of an attention to a layer: the attention itself, or its decoder."""
    weights = tree_map(lambda x: cast(x, attention.score_dtype), weights)
    loss = attention.sequence_loss(weights, query_mask, memory_mask)
    if loss is not None:
        layer.add_loss(loss)


def set_weight_options(layer: Any, normalizer: str, dropout: float, seed: int | None) -> None:
    """Check and set `normalizer`, `dropout` and `seed`; see `ScoringMixin`."""
    layer.normalizer = check_choice(layer.name, "normalizer", normalizer, tuple(NORMALIZERS))
    layer.dropout = check_rate(layer.name, "dropout", dropout)
    layer.seed = check_seed(layer.name, seed)
    if layer.dropout > 0:
        layer._seed_generator = keras.random.SeedGenerator(layer.seed)
    layer.supports_masking = True


def weighted_sum(
    layer: Any, weights: Tensor, value: Tensor, drop: bool | None, position: Tensor | None = None
) -> Tensor:
    """Sum the values by their weights, after dropout.

    With windows, `position` and the weights are `(B, Tq, W)`: one weight for each position.
    """
    if drop and layer.dropout > 0:
        weights = keras.random.dropout(weights, layer.dropout, seed=layer._seed_generator)
    weights = cast(weights, layer.compute_dtype)
    value = cast(value, layer.compute_dtype)
    if position is not None:
        return window_sum(weights, value, position)
    return batched_matmul(weights, value)


def step_index(query: Tensor, position: int | Tensor | None) -> Tensor:
    """Return the index of the decoding step of each query, `(B, Tq)` or `(1, Tq)`."""
    steps = ops.shape(query)[1]
    position = ops.arange(steps, dtype="int32") if position is None else position
    return ops.reshape(ops.cast(position, "int32"), (-1, steps))


def check_hook(layer: type, name: str, original: Callable) -> None:
    """Check that a hook takes as many arguments as the hook that it overrides."""
    if not inspect.isfunction(inspect.getattr_static(layer, name)):
        return
    parameters = inspect.signature(getattr(layer, name)).parameters
    wanted = list(inspect.signature(original).parameters)
    open_end = any(x.kind is x.VAR_POSITIONAL for x in parameters.values())
    needed = [x for x in wanted if x != "key_shape"]  # a layer without keys may leave it out
    if len(parameters) < len(needed) and not open_end:
        raise TypeError(
            f"{layer.__name__}: an attention must define {name}({', '.join(wanted)}); found "
            f"{name}({', '.join(parameters)}). Add the missing arguments, even if it ignores them."
        )


def check_window(layer: str, window: object, shape: tuple[Size, ...]) -> None:
    """Check the result of the hook `window` for a query `(B, Tq, Dq)`."""
    center, width = window[:2] if isinstance(window, Window) else (window, None)
    if not (is_integer(width) and width >= 1 and is_tensor(center, "float", *shape[:2])):
        expected = "`window` must return None or Window(center, half_width): floating-point "
        expected += f"centers of shape {tuple(shape[:2])}, and a positive integer"
        received = Description(f"half_width={width!r:.80}, center={describe(center)}")
        raise_value_error(layer, expected, received)


def check_position(
    layer: DecoderAttention, position: Tensor | int, query_shape: tuple[Size, ...]
) -> None:
    """Check `position`, which a layer that counts steps needs for a single step."""
    one_step = len(query_shape) == 2
    if not layer.uses_position:
        expected = "`position` is for attentions that count steps, such as local-m"
        raise_value_error(layer.name, expected, position, "Leave it out.")
    if one_step:
        right = (is_integer(position) and position >= 0) or is_tensor(position, "int")
        remedy = "Pass position=i, with i = 0, 1, 2 and so on, to the call or to attend()."
    else:
        right, remedy = position is None, "Leave it out to count from 0."
    right = right or is_tensor(position, "int", *query_shape[:-1])
    wanted = f"{'an integer from 0, or ' * one_step}integers of shape {query_shape[:-1]}"
    if not right:
        expected = f"`position`, the numbers of the steps of the query, must be {wanted}"
        raise_value_error(layer.name, expected, position, remedy)


def build_attention(
    attention: ScoringMixin,
    query_shape: tuple[Size, ...],
    value_shape: Nested,
    key_shape: Nested = None,
) -> None:
    """Build an attention. If it has been built before, the shapes must fit."""
    shapes = {"query": query_shape, "value": value_shape}
    shapes |= {} if key_shape is None else {"key": key_shape}
    shapes = {name: map_shapes(lambda x: tuple(x or ()), x) for name, x in shapes.items()}
    if not attention.built:
        attention.build(*shapes.values())
    shapes = {"key": shapes["value"], **shapes}
    attention.CALL.check_shapes(attention.name, shapes, attention._sizes)
    if any(one._own for one in (attention, *attention._members())):
        check_steps(attention, query_shape[-1], value_shape)


def check_steps(attention: ScoringMixin, query_size: int, value_shape: Nested) -> None:
    """Raise an error if hooks keep something between calls, or read the other queries of a call.

    A decoder traces a step with one query and repeats it, so a query must give the same
    result alone.
    """
    random = np.random.default_rng(0)

    def normal(*shape, dtype=attention.compute_dtype):
        return ops.convert_to_tensor(random.normal(scale=0.3, size=shape).astype("float32"), dtype)

    def attend(query, memory, position=None):
        output, _, weights = attend_masked(attention, query, memory, position=position)
        return [ops.convert_to_numpy(ops.cast(x, "float32")) for x in leaves((output, weights))]

    def check():
        query = normal(2, 3, query_size)
        # A hook may have a table that is as long as the memory.
        value = map_shapes(lambda shape: normal(2, shape[1] or 5, shape[2]), value_shape)
        memory = attention._prepare(value)
        among, again = attend(query, memory), attend(query, memory)
        if not all(map(functools.partial(np.array_equal, equal_nan=True), among, again)):
            if generator_states(attention):
                return  # random numbers at inference
            raise ValueError(f"{attention.name}: {OTHER_RESULTS}")
        if not attention.has_state:
            alone = attend(query[:, 2], memory, 2 if attention.uses_position else None)
            limit = 1e-3 if attention.compute_dtype in ("float32", "float64") else 0.05
            close = functools.partial(np.allclose, rtol=limit, atol=limit, equal_nan=True)
            if not all(map(close, [x[:, 2] for x in among], alone)):
                raise ValueError(f"{attention.name}: {NO_POSITIONS}")

    with eagerly():
        weights = [normal(*x.shape, dtype=x.dtype) for x in float_weights(attention)]
        with compiling(False), with_weights(attention, weights):
            as_in_a_call(attention, check)


def check_attention(layer: str, attention: object, name: str = "attention") -> None:
    """Check the attention of a decoder, or of a layer of several attentions."""
    if not isinstance(attention, ScoringMixin):
        expected = f"`{name}` must be one layer built on ScoringMixin, called as layer(query, "
        expected += "value), such as BahdanauAttention(256)"
        raise_value_error(layer, expected, attention, instance_hint(attention))
    if not hasattr(attention, "built"):
        raise_not_initialized(attention)
