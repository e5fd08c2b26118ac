"""What all attentions with a state do in the same way: the loop over queries, and the state."""

from typing import Any

from keras import ops

from keras_attention._checks import LONGEST, check_positive_int, is_floating
from keras_attention.layers._reading import read_values
from keras_attention.layers._state_checks import (
    check_advanced,
    check_drawn,
    check_given_state,
    check_state,
)
from keras_attention.layers.scoring import ScoringMixin
from keras_attention.ops._loops import leaves, pack_like, swap_steps, where_valid
from keras_attention.ops._random import scan_drawing
from keras_attention.ops.masks import all_of, first_largest
from keras_attention.ops.windows import sentence_span, window_mask


class RecurrentAttention(ScoringMixin):
    """Implements `call` and `attend` with the hooks of `RecurrentScoringMixin`."""

    has_state = True
    # Whether the attention starts at the first valid memory step.
    moves_forward = False

    def __init__(self, half_width: int | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.half_width = half_width
        if half_width is not None:
            check_positive_int(self.name, "half_width", half_width, LONGEST)

    def _read(self, query, memory, state, masks, window, weights_wanted, training, drawn):
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

        if drawn is None and training:
            drawn = self._draw(memory, steps)

        def one_step(state, inputs):
            tensors, drawn = inputs
            query, mask, valid = (None if x is None else ops.expand_dims(x, 1) for x in tensors)
            kept, place = (state, None) if self.half_width is None else state
            near = None if training or place is None else self._near(place, length)
            readable = all_of(of_memory, mask, near)
            found = self.advance(query, memory, readable, kept, drawn, training)
            check_advanced(self.name, found, (query.shape[0], 1, memory.value.shape[1]), kept)
            weights, new = ops.squeeze(found[0], 1), leaves(found[1])
            new = [ops.cast(x, old.dtype) for x, old in zip(new, leaves(kept), strict=True)]
            new = pack_like(kept, new)
            new = new if place is None else (new, _place_read(weights, place))
            # A step that can read nothing must not forget where it was.
            valid = all_of(valid, None if readable is None else ops.any(readable, axis=-1))
            return where_valid(valid, new, state), weights

        if mask is not None:
            mask = ops.broadcast_to(mask, (batch, steps, length))
        if query.shape[1] == 0:
            weights = ops.zeros((batch, 0, length), self.score_dtype)
        else:
            tensors = [None if x is None else swap_steps(x) for x in (query, mask, masks.query)]
            inputs = tuple(tensors), drawn
            unroll = query.shape[1] == 1
            state, weights = scan_drawing(one_step, state, inputs, self, unroll)
            weights = swap_steps(weights)
        return read_values(self, weights, memory.value, training), weights, state

    def _draw(self, memory, steps):
        """What the hook `draw` returns, checked."""
        drawn = self.draw(memory, steps)
        check_drawn(self.name, drawn, memory)
        return drawn

    def _add_sequence_loss(self, weights, query_mask, memory_mask):
        weights = ops.cast(weights, self.score_dtype)
        loss = self.sequence_loss(weights, query_mask, memory_mask)
        if loss is not None:
            self.add_loss(loss)

    def _near(self, place, length):
        """The positions near the place that was read last, `(B, 1, Tk)`; all before the first."""
        place = ops.reshape(place, (-1, 1, 1))
        offset = ops.arange(length, dtype=self.score_dtype) - place
        return ops.logical_or(ops.abs(offset) <= self.half_width, place < 0)

    def _first_state(self, memory):
        """The initial state, in the dtypes in which the layer keeps it, and the place read last."""
        state = self.initial_state(memory)
        check_state(self.name, state, memory)
        kept = [ops.cast(x, self.score_dtype) if is_floating(x) else x for x in leaves(state)]
        state = pack_like(state, kept)
        if self.half_width is None:
            return state
        batch, length = ops.shape(memory.value)[:2]
        # Floating point, because a decoder carries nothing else through its gradient.
        place = ops.full((batch,), -1, dtype=self.score_dtype)
        if self.moves_forward:
            place = sentence_span(memory.mask, batch, length, self.score_dtype)[0]
        return state, place

    def _given_state(self, memory, given):
        """A state, or a flat list of its tensors, as the layer keeps it."""
        first = self._first_state(memory)
        check_given_state(self.name, given, first)
        pairs = zip(leaves(given), leaves(first), strict=True)
        return pack_like(first, [ops.cast(x, y.dtype) for x, y in pairs])


def _place_read(weights, last):
    """The position with the largest weight, or the last one if nothing was read."""
    place = ops.cast(first_largest(weights), last.dtype)
    return ops.where(ops.any(weights > 0, axis=-1), place, last)
