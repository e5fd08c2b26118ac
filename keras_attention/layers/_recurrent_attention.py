"""What all attentions with a state do in the same way: the loop over queries, and the state."""

import keras
from keras import ops

from keras_attention._typing import Nested, Shape, Tensor
from keras_attention.layers._random import random_scan
from keras_attention.layers._reading import weighted_sum
from keras_attention.layers._states import check_advanced, check_given_state, check_state
from keras_attention.layers._types import Memory
from keras_attention.layers.scoring import ScoringMixin
from keras_attention.ops._gradients import in_decoder
from keras_attention.ops._loops import leaves, pack_like, swap_steps, where_valid
from keras_attention.ops.masks import all_of
from keras_attention.ops.windows import window_mask


class RecurrentAttention(ScoringMixin):
    """Implements `call` and `attend` with the hooks of `RecurrentScoringMixin`."""

    def _read(self, query, memory, state, masks, window, weights_wanted, training):
        state = self.as_state(memory, None if state is None else leaves(state))
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
            found = self.advance(query, memory, all_of(of_memory, mask), state, training)
            check_advanced(self.name, found, (query.shape[0], 1, memory.value.shape[1]), state)
            weights, new = found[0], leaves(found[1])
            new = [ops.cast(x, old.dtype) for x, old in zip(new, leaves(state), strict=True)]
            return where_valid(valid, pack_like(state, new), state), ops.squeeze(weights, 1)

        if mask is not None:
            mask = ops.broadcast_to(mask, (batch, steps, length))
        if query.shape[1] == 0:
            weights = ops.zeros((batch, 0, length), self.score_dtype)
        elif query.shape[1] == 1:
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

    def as_state(self, memory: Memory, given: list[Tensor] | None) -> Nested:
        """The initial state, or the given tensors in its nesting and dtypes."""
        state = self.initial_state(memory)
        check_state(self.name, state, memory)
        first = leaves(state)
        dtypes = [keras.backend.standardize_dtype(x.dtype) for x in first]
        dtypes = [self.score_dtype if "float" in dtype else dtype for dtype in dtypes]
        if given is not None:
            check_given_state(self.name, given, first)
        pairs = zip(first if given is None else given, dtypes, strict=True)
        return pack_like(state, [ops.cast(x, dtype) for x, dtype in pairs])

    def state_shapes(self, memory_shape: Shape) -> list[Shape]:
        """The shapes of the tensors of the state, for a memory of that shape."""

        class FirstState(keras.Operation):
            def call(_, memory):
                return leaves(self.as_state(self.prepare(memory), None))

        memory = keras.KerasTensor(memory_shape, dtype=self.compute_dtype)
        return [tuple(x.shape) for x in FirstState().compute_output_spec(memory)]
