"""The protocol of an attention that remembers where it looked."""

import keras
from keras import ops

from keras_attention._shapes import check_scores
from keras_attention._typing import Nested, Shape, Tensor
from keras_attention.layers._queries import check_advanced, check_state
from keras_attention.layers._random import random_scan
from keras_attention.layers._reading import weighted_sum
from keras_attention.layers._types import Memory
from keras_attention.layers.scoring import ScoringMixin
from keras_attention.ops._gradients import in_decoder
from keras_attention.ops._loops import leaves, pack_like, swap_steps, where_valid
from keras_attention.ops.masks import all_of
from keras_attention.ops.windows import window_mask

__all__ = ["RecurrentScoringMixin"]


class RecurrentScoringMixin(ScoringMixin):
    """Makes an attention layer out of a score that depends on the steps before.

        e[b,i,j] = score(q[b,i], k[b,j], z[b,i-1])
        a[b,i,:] = softmax of e[b,i,:] over the valid j     or sparsemax
        z[b,i]   = next_state(z[b,i-1], a[b,i,:])
        c[b,i]   = sum_j a[b,i,j] v[b,j]

    The state z is any nesting of tensors whose first axis is the batch. Often it is the last
    weights, or their sum. Floating-point tensors of it are always in `score_dtype`.

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

    The hooks of `ScoringMixin` remain. A `window` masks the scores, and must not be Gaussian.

    Args, call arguments, returns, raises: see `ScoringMixin`.
    """

    def initial_state(self, memory: Memory) -> Nested:
        """The state before the first step: tensors `(B, ...)` in any nesting."""
        raise NotImplementedError(
            f"{type(self).__name__} must define initial_state(memory), such as zeros of shape "
            "(batch, memory steps)."
        )

    def score(self, query: Tensor, key: Tensor, state: Nested) -> Tensor:
        """Compares one query with every key.

        Args:
            query: `(B, 1, Dq)` in `score_dtype`.
            key: `(B, Tk, Dp)` in `score_dtype`, as `project_key` returned it.
            state: from `initial_state`, or from the step before.

        Returns:
            Scores `(B, 1, Tk)`.
        """
        raise NotImplementedError(
            f"{type(self).__name__} must define score(query, key, state) -> (batch, 1, memory "
            "steps)."
        )

    def weigh(self, scores: Tensor, mask: Tensor, state: Nested) -> Tensor:
        """Turns the scores of one step into weights; all three are `(B, 1, Tk)`."""
        return super().weigh(scores, mask)

    def next_state(self, state: Nested, weights: Tensor) -> Nested:
        """The state after a step of weights `(B, Tk)`, in the nesting and shapes of `state`."""
        raise NotImplementedError(
            f"{type(self).__name__} must define next_state(state, weights) -> the next state, of "
            "the same nesting and shapes."
        )

    def advance(
        self,
        query: Tensor,
        memory: Memory,
        mask: Tensor | None,
        state: Nested,
        training: bool | None,
    ) -> tuple[Tensor, Nested]:
        """One step. Override it where `score`, `weigh` and `next_state` are not enough.

        Args:
            query: `(B, 1, Dq)` in `score_dtype`.
            mask: boolean, broadcasts to `(B, 1, Tk)`, or None.
            training: whether the layer is trained.

        Returns:
            Weights `(B, 1, Tk)`, zero where they are masked, and the next state.
        """
        scores = self.score(query, memory.key, state)
        check_scores(self.name, scores, (query.shape[0], 1, memory.value.shape[1]))
        weights = self.weigh(scores, mask, state)
        return weights, self.next_state(state, ops.squeeze(weights, 1))

    def sequence_loss(
        self, weights: Tensor, query_mask: Tensor | None, memory_mask: Tensor | None
    ) -> Tensor | None:
        """A loss to add to that of the model, from the weights `(B, Tq, Tk)` of a whole call."""
        return None

    def _read(self, query, memory, state, masks, window, weights_wanted, training):
        state = self.first_state(memory) if state is None else state
        check_state(self.name, state, memory)
        query = ops.cast(query, self.score_dtype)
        (batch, steps, _), length = ops.shape(query), ops.shape(memory.value)[1]
        of_memory = None if memory.mask is None else ops.expand_dims(memory.mask, 1)
        mask = masks._replace(memory=None).joined(steps, length)
        if window is not None and window.gaussian:
            raise ValueError(
                f"{self.name}: an attention with a state cannot have a Gaussian window, because "
                "its state holds weights. Return Window(center, half_width) from `window`."
            )
        if window is not None:
            position = ops.arange(length, dtype="int32")
            mask = all_of(window_mask(window.center, position, window.half_width), mask)

        def advance(state, inputs):
            query, mask, valid = (None if x is None else ops.expand_dims(x, 1) for x in inputs)
            weights, new = self.advance(query, memory, all_of(of_memory, mask), state, training)
            check_advanced(self.name, weights, (query.shape[0], 1, length), new, state)
            new = [
                ops.cast(x, old.dtype) for x, old in zip(leaves(new), leaves(state), strict=True)
            ]
            return where_valid(valid, pack_like(state, new), state), ops.squeeze(weights, 1)

        if mask is not None:
            mask = ops.broadcast_to(mask, (batch, steps, length))
        if query.shape[1] == 1:
            first = [None if x is None else x[:, 0] for x in (query, mask, masks.query)]
            state, weights = advance(state, first)
            weights = ops.expand_dims(weights, 1)
        else:
            inputs = [None if x is None else swap_steps(x) for x in (query, mask, masks.query)]
            state, weights = random_scan(self, advance, state, tuple(inputs))
            weights = swap_steps(weights)
        # In a decoder, dropout has dropped steps of the memory instead.
        context = weighted_sum(self, weights, memory.value, training and not in_decoder())
        return context, weights, state

    def add_sequence_loss(
        self, weights: Tensor, query_mask: Tensor | None, memory_mask: Tensor | None
    ) -> None:
        weights = ops.cast(weights, self.score_dtype)
        loss = self.sequence_loss(weights, query_mask, memory_mask)
        if loss is not None:
            self.add_loss(loss)

    def first_state(self, memory: Memory) -> Nested:
        """The initial state in the dtype in which the layer keeps it."""
        state = self.initial_state(memory)
        check_state(self.name, state, memory)
        floating = ["float" in keras.backend.standardize_dtype(x.dtype) for x in leaves(state)]
        pairs = zip(leaves(state), floating, strict=True)
        return pack_like(state, [ops.cast(x, self.score_dtype) if y else x for x, y in pairs])

    def state_shapes(self, memory_shape: Shape) -> list[Shape]:
        """The shapes of the tensors of the state, for a memory of that shape."""

        class FirstState(keras.Operation):
            def call(_, memory):
                return leaves(self.first_state(self.prepare(memory)))

        memory = keras.KerasTensor(memory_shape, dtype=self.compute_dtype)
        return [tuple(x.shape) for x in FirstState().compute_output_spec(memory)]
