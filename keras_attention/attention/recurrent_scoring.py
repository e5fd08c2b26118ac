"""The protocol of an attention with a state, and the code that runs it."""

from typing import Unpack

from keras import tree

from keras_attention._spec import (
    MAX_STEPS,
    Description,
    check_int,
    check_result,
    describe,
    fits,
    is_floating,
    is_tensor,
    kind_of,
    raise_value_error,
)
from keras_attention._typing import Nested, ScoringOptions, Shape, Size, Tensor
from keras_attention.attention.scoring import ScoringMixin, check_hook, weighted_sum
from keras_attention.attention.types import AttendOptions, Memory, Residuals, Step
from keras_attention.backend import leaves, ops, swap_steps, tree_map, unflatten_as, where_valid
from keras_attention.ops.gradients import restored
from keras_attention.ops.masks import all_of, argmax
from keras_attention.ops.random import scan_with_random_state
from keras_attention.ops.windows.positions import sentence_span, window_mask

__all__ = ["RecurrentScoringMixin", "as_state"]


class RecurrentScoringMixin(ScoringMixin):
    """Makes an attention layer from a score that depends on earlier steps.

        e[b,i,j] = score(q[b,i], k[b,j], z[b,i-1])
        a[b,i,:] = softmax of e[b,i,:] over the valid j     or another normalizer
        z[b,i]   = next_state(z[b,i-1], a[b,i,:])
        c[b,i]   = sum_j a[b,i,j] v[b,j]

    The state z is any nesting of tensors whose first axis is the batch. Often it is the last
    weights, or their sum. The layer keeps its floating-point tensors in `score_dtype`. Integers
    keep their dtype: cast them before you mix them with weights.

    Sizes: B samples, Tq query and Tk memory steps, Dq, Dk and Dv features.

    Derive from the mixin, and write `initial_state`, `score` and `next_state`. This attention sees
    the sum of its past weights:

        >>> import keras, numpy
        >>> from keras import ops
        >>> from keras_attention import RecurrentScoringMixin
        >>> class RestlessAttention(RecurrentScoringMixin):
        ...     def initial_state(self, memory):
        ...         return ops.zeros(ops.shape(memory.value)[:2])
        ...     def score(self, query, key, state):
        ...         return ops.einsum("bqd,bkd->bqk", query, key) - 99 * ops.expand_dims(state, 1)
        ...     def next_state(self, state, weights):
        ...         return state + weights
        >>> query, value = numpy.ones((1, 3, 3)), numpy.diag([3.0, 2, 1])[None]
        >>> _, weights = RestlessAttention()(query, value, return_attention_scores=True)
        >>> [int(ops.argmax(step)) for step in weights[0]]
        [0, 2, 1]

    Called on a sequence of queries, the layer runs a loop over them. A masked query keeps the
    state. In an `AttentionRNN` the state is a part of the `DecoderState`. For single steps pass the
    state: `output, state, weights = layer.attend(query, memory, state)`.

    To build on the score of another attention, set an attribute `base_attention`, such as
    `self.base_attention = BahdanauAttention(128)`, and call its `score(query, key)`.

    On JAX with a GPU, a decoder trains with `jax.vmap` of these hooks. Functions of `keras.ops` and
    `jax.numpy` have it; `jax.pure_callback` needs its argument `vmap_method`.

    You can also override the other hooks of `ScoringMixin`. A `window` masks the scores; a Gaussian
    window raises an error.

    Args:
        half_width: D. At inference, each step reads only the memory steps within D of the one that
            the step before read most. The first step of an attention that moves forward reads near
            the first valid memory step, that of others reads everything. None, the default, always
            reads everything, as training does.
        normalizer, dropout, seed: see `ScoringMixin`.

    Call arguments, returns, raises: see `ScoringMixin`.
    """

    has_state = True
    # Whether the attention starts at the first valid memory step.
    moves_forward = False

    def __init_subclass__(cls, **kwargs: object) -> None:
        for name in ("score", "weigh", "next_state", "sample_noise", "advance"):
            check_hook(cls, name, getattr(RecurrentScoringMixin, name))
        super().__init_subclass__(**kwargs)

    def __init__(self, half_width: int | None = None, **kwargs: Unpack[ScoringOptions]) -> None:
        super().__init__(**kwargs)
        self.half_width = half_width
        if half_width is not None:
            check_int(self.name, "half_width", half_width, most=MAX_STEPS)

    def build(self, query_shape: Shape, value_shape: Shape = None, key_shape: Shape = None) -> None:
        super().build(query_shape, value_shape, key_shape)
        base_attention = self._base_attention()
        if base_attention is not None and not base_attention.built:
            base_attention.build(query_shape, value_shape, key_shape)

    def project_query(self, query: Tensor) -> Tensor:
        base_attention = self._base_attention()
        return query if base_attention is None else base_attention.project_query(query)

    def project_key(self, key: Tensor) -> Tensor:
        base_attention = self._base_attention()
        return key if base_attention is None else base_attention.project_key(key)

    def _base_attention(self):
        """Return the attention whose score this one builds on, or None."""
        # On PyTorch, an attribute of the class would hide the layer.
        return getattr(self, "base_attention", None)

    def initial_state(self, memory: Memory) -> Nested:
        """Return the state before the first step: tensors `(B, ...)` in any nesting."""
        raise NotImplementedError(f"{type(self).__name__} must define initial_state(memory).")

    def score(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, query: Tensor, key: Tensor, state: Nested
    ) -> Tensor:
        """Compare one query with every key.

        Args:
            query: `(B, 1, Dp)` in `score_dtype`, as `project_query` returned it.
            key: `(B, Tk, Dp)` in `score_dtype`, as `project_key` returned it.
            state: from `initial_state`, or from the previous step.

        Returns:
            Scores `(B, 1, Tk)`.
        """
        raise NotImplementedError(f"{type(self).__name__} must define score(query, key, state).")

    def weigh(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, scores: Tensor, mask: Tensor, state: Nested
    ) -> Tensor:
        """Turn the scores of one step into weights.

        Args:
            scores: `(B, 1, Tk)`.
            mask: boolean, broadcasts to the scores, or None. The weights must be zero where it is
                False.
            state: as for `score`.
        """
        return super().weigh(scores, mask)

    def next_state(self, state: Nested, weights: Tensor) -> Nested:
        """Return the state after a step of weights `(B, Tk)`.

        It has the nesting, shapes and dtypes of `state`, the same keys in a dictionary.
        """
        raise NotImplementedError(f"{type(self).__name__} must define next_state(state, weights).")

    def sample_noise(self, memory: Memory, steps: Size) -> Nested:
        """Sample random numbers for all steps of a call in training: `(steps, B, ...)`, or None.

        They are sampled before the loop, because a loop repeats one step and, on JAX, cannot change
        a `keras.random.SeedGenerator`.
        """
        return None

    def advance(self, step: Step, state: Nested) -> tuple[Tensor, Nested]:
        """Run one step: call `weigh` and `next_state`.

        Override it if the state depends on the query, or if the step differs in training. A class
        that overrides it may leave out `score`, `weigh` and `next_state`.

        Args:
            step: the query, its scores and the memory, see `Step`.
            state: from `initial_state`, or from the previous step.

        Returns:
            Weights `(B, 1, Tk)`, zero where they are masked, and the next state.
        """
        weights = self.weigh(step.scores, step.mask, state)
        check_result(self.name, "weigh", weights, *step.scores.shape)
        return weights, self.next_state(state, ops.squeeze(weights, 1))

    def _state(self, memory: Memory, received: Nested = None) -> Nested:
        state = self.initial_state(memory)
        check_leaves(self.name, "initial_state", state, memory)
        cast = [ops.cast(x, self.score_dtype) if is_floating(x) else x for x in leaves(state)]
        state = unflatten_as(state, cast)
        if self.half_width is not None:
            batch, length = ops.shape(memory.value)[:2]
            # Floating point, because a decoder carries nothing else through its gradient.
            center = ops.full((batch,), -1, dtype=self.score_dtype)
            if self.moves_forward:
                center = sentence_span(memory.mask, batch, length, self.score_dtype)[0]
            state = state, center
        return state if received is None else as_state(self.name, received, state)

    def _begin_training(self, memory: Memory, steps: Size) -> tuple[Memory, Nested]:
        memory, _ = super()._begin_training(memory, steps)
        noise = self.sample_noise(memory, steps)
        check_leaves(self.name, "sample_noise", noise, memory)
        return memory, noise

    def _attend(
        self, query: Tensor, memory: Memory, state: Nested, options: AttendOptions
    ) -> tuple[Nested, Nested, Nested, Nested]:
        masks, training, noise = options.masks, options.training, options.noise
        state = self._state(memory) if state is None else state
        stored = options.stored or Residuals()
        window = self._window(query, memory, options.position) if self._has_window else None
        query = ops.cast(query, self.score_dtype)
        (batch, steps, _), length = ops.shape(query), ops.shape(memory.value)[1]
        memory_mask = None if memory.mask is None else ops.expand_dims(memory.mask, 1)
        mask = masks._replace(memory=None).joined(query, memory.value)
        if window is not None:
            if window.gaussian:
                expected = "an attention whose state holds weights cannot have a Gaussian window"
                remedy = "Return Window(center, half_width) from `window`."
                raise_value_error(self.name, expected, Description("gaussian=True"), remedy)
            position = ops.arange(length, dtype="int32")
            mask = all_of(window_mask(window.center, position, window.half_width), mask)
        if mask is not None:
            mask = ops.broadcast_to(mask, (batch, steps, length))
        if noise is None and training:
            noise = self.sample_noise(memory, steps)
            check_leaves(self.name, "sample_noise", noise, memory)
        one_query = query.shape[1] == 1

        def one_step(state, inputs):
            tensors, noise = inputs
            query, mask, valid = tree_map(lambda x: ops.expand_dims(x, 1), tensors)
            inner, center = (state, None) if self.half_width is None else state
            near = None
            if center is not None and not training:  # within `half_width`, or before the first read
                center_column = ops.reshape(center, (-1, 1, 1))
                offset = ops.arange(length, dtype=self.score_dtype) - center_column
                near = ops.logical_or(ops.abs(offset) <= self.half_width, center_column < 0)
            readable = all_of(memory_mask, mask, near)
            projected = self._projected(query, stored.query)
            scores = self._scores(projected, memory, inner, stored.scores)
            step = Step(query, projected, scores, memory, readable, noise, training)
            results = self.advance(step, inner)
            check_advanced(self.name, results, (query.shape[0], 1, memory.value.shape[1]), inner)
            weights, new = ops.squeeze(results[0], 1), _cast_like(results[1], inner)
            if center is not None:
                peak = ops.cast(argmax(weights), center.dtype)
                new = new, ops.where(ops.any(weights > 0, axis=-1), peak, center)
            # A step that can read nothing must keep the state.
            valid = all_of(valid, None if readable is None else ops.any(readable, axis=-1))
            residuals = Residuals(projected, scores) if one_query else Residuals()
            return where_valid(valid, new, state), (weights, residuals)

        if query.shape[1] == 0:
            weights, residuals = ops.zeros((batch, 0, length), self.score_dtype), Residuals()
        else:
            tensors = tree_map(swap_steps, (query, mask, masks.query))
            state, (weights, residuals) = scan_with_random_state(
                one_step, state, (tensors, noise), self, unroll=one_query
            )
            weights = swap_steps(weights)
            residuals = tree_map(lambda x: x[0], residuals)
        context = weighted_sum(self, weights, memory.value, options.drop and training)
        return context, weights, state, residuals

    def _scores(self, query, memory, state, stored):
        """Return the scores of one step; None if the class has an `advance` and no `score`."""
        own, mixin = type(self), RecurrentScoringMixin
        if own.advance is not mixin.advance and own.score is mixin.score:
            return None
        scores = self.score(query, memory.key, state)
        if "score" in self._own:
            check_result(self.name, "score", scores, query.shape[0], 1, memory.value.shape[1])
        return scores if stored is None else restored(scores, stored)


def as_state(layer: str, received: Nested, first: Nested) -> Nested:
    """Check a state, or a flat list of its tensors, and cast it like the first state."""
    flat = isinstance(received, list) and not any(tree.is_nested(x) or x is None for x in received)
    remedy = "Pass what the previous step returned, for this memory; None on the first step."
    check_state(layer, "`state`", received, leaves(first) if flat else first, remedy)
    return _cast_like(received, first)


def _cast_like(state, first):
    """Cast the tensors of a state to the nesting and the dtypes of the first state."""
    pairs = zip(leaves(state), leaves(first), strict=True)
    return unflatten_as(first, [ops.cast(x, y.dtype) for x, y in pairs])


def check_leaves(layer: str, hook: str, result: Nested, memory: Memory) -> None:
    """Check the result of `initial_state`, or of `sample_noise`, whose tensors cover all steps."""
    batch, first = memory.value.shape[0], int(hook == "sample_noise")
    for x in leaves(result):
        shape = tuple(getattr(x, "shape", ()))[first : first + 1]
        if not shape or not hasattr(x, "dtype") or not fits(shape, (batch,)):
            axes = ("first axis is the batch", "first two axes are the steps and the batch")[first]
            raise_value_error(layer, f"`{hook}` must return tensors whose {axes}, here {batch}", x)


def check_state(layer: str, name: str, state: Nested, wanted: Nested, remedy: str) -> None:
    """Check that a state has the tensors of another, as far as their shapes are known."""
    if not _same_structure(state, wanted):
        wanted, received = (tree.map_structure(describe, x) for x in (wanted, state))
        expected = f"{name} must have the structure, shapes and dtypes of {wanted}"
        raise_value_error(layer, expected, Description(received), remedy)


def check_advanced(layer: str, results: object, shape: tuple[Size, ...], state: Nested) -> None:
    """Check the results of the hook `advance`: the weights of one step and the next state."""
    if not isinstance(results, tuple) or len(results) != 2:
        raise_value_error(layer, "`advance` must return the weights and the next state", results)
    check_result(layer, "advance", results[0], *shape)
    remedy = "Change `next_state`, or `initial_state`."
    check_state(layer, "the next state", results[1], state, remedy)


def _same_structure(new: Nested, old: Nested) -> bool:
    """Return whether the tensors of two states have the same paths, shapes and kinds of dtype."""
    new, old = (
        {path: x for path, x in tree.flatten_with_path(state) if x is not None}
        for state in (new, old)
    )
    return list(new) == list(old) and all(
        is_tensor(x, kind_of(old[path].dtype), *old[path].shape) for path, x in new.items()
    )
