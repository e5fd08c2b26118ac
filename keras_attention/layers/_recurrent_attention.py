"""What all attentions with a state do in the same way: the loop over queries, and the state."""

from functools import partial

from keras import ops

from keras_attention._checks import is_floating
from keras_attention.layers._random import draws_random_numbers, random_scan
from keras_attention.layers._reading import read_values
from keras_attention.layers._state_checks import check_advanced, check_given_state, check_state
from keras_attention.layers.scoring import ScoringMixin
from keras_attention.ops._loops import leaves, pack_like, scan, swap_steps, where_valid
from keras_attention.ops.masks import all_of
from keras_attention.ops.windows import window_mask


class RecurrentAttention(ScoringMixin):
    """Implements `call` and `attend` with the hooks of `RecurrentScoringMixin`."""

    has_state = True

    def _read(self, query, memory, state, masks, window, weights_wanted, training):
        state = self._first_state(memory) if state is None else self._given_state(memory, state)
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

        def one_step(state, inputs):
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
        else:
            inputs = [None if x is None else swap_steps(x) for x in (query, mask, masks.query)]
            loop = scan
            if training and draws_random_numbers(self) and query.shape[1] != 1:
                loop = partial(random_scan, self)
            state, weights = loop(one_step, state, tuple(inputs), unroll=query.shape[1] == 1)
            weights = swap_steps(weights)
        return read_values(self, weights, memory.value, training), weights, state

    def _add_sequence_loss(self, weights, query_mask, memory_mask):
        weights = ops.cast(weights, self.score_dtype)
        loss = self.sequence_loss(weights, query_mask, memory_mask)
        if loss is not None:
            self.add_loss(loss)

    def _first_state(self, memory):
        """The initial state, in the dtypes in which the layer keeps it."""
        state = self.initial_state(memory)
        check_state(self.name, state, memory)
        kept = [ops.cast(x, self.score_dtype) if is_floating(x) else x for x in leaves(state)]
        return pack_like(state, kept)

    def _given_state(self, memory, given):
        """A state, or a flat list of its tensors, as the layer keeps it."""
        first, given = self._first_state(memory), leaves(given)
        check_given_state(self.name, given, leaves(first))
        pairs = zip(given, leaves(first), strict=True)
        return pack_like(first, [ops.cast(x, y.dtype) for x, y in pairs])
