"""The base of attentions that are made of other attentions."""

import itertools
from collections.abc import Iterable, Iterator

from keras_attention._spec import raise_value_error
from keras_attention._typing import Nested, Size, Tensor
from keras_attention.attention.recurrent_scoring import as_state
from keras_attention.attention.scoring import ScoringMixin, check_attention
from keras_attention.attention.types import AttendOptions, Memory
from keras_attention.backend import ops

__all__ = ["HOOKS_OF_MEMBERS", "OF_MEMBERS", "Composite", "ends"]

# Arguments that each member takes, and this layer does not.
OF_MEMBERS: dict[str, str | float | None] = {"normalizer": "softmax", "dropout": 0.0, "seed": None}
HOOKS_OF_MEMBERS = "score", "project_query", "project_key", "weigh", "window"


def ends(sizes: list[int]) -> list[int]:
    """Return the indices that split into parts of these sizes, as `ops.split` takes them."""
    return list(itertools.accumulate(sizes[:-1]))


class Composite(ScoringMixin):
    """Attentions that answer the same queries. Each reads a memory of its own.

    The state is a list with the state of each attention, or None for one without a state.

    A subclass defines `_members()`, the attentions; `_parts(memory)`, the memories that they read;
    `_join(memories)`, the inverse; `_masks(masks)`, the masks of each attention; and
    `_joint_weights(weights)`, what a call returns for the weights of all. Some of these may be
    None.
    """

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        for name in HOOKS_OF_MEMBERS:
            if name in vars(cls):
                raise TypeError(
                    f"{cls.__name__}: `{name}` is a hook of the attentions inside, which this "
                    "layer would not call. Override it in a class of the attention."
                )

    def _each(self, *lists: Iterable | None) -> Iterator:
        """Yield each attention and its item of every list, or None."""
        members = self._members()
        items = [[None] * len(members) if x is None else x for x in lists]
        return zip(members, *items, strict=True)

    def _attend(
        self, query: Tensor, memory: Memory, state: Nested, options: AttendOptions
    ) -> tuple[Nested, Nested, Nested, Nested]:
        masks = self._masks(options.masks)
        parts = self._parts(memory)
        each = self._each(parts, state, masks, options.noise, options.stored)
        results = [
            one._attend(
                query, part, state, options._replace(masks=masks, noise=noise, stored=stored)
            )
            for one, part, state, masks, noise, stored in each
        ]
        contexts, weights, states, residuals = zip(*results, strict=True)
        return (
            ops.concatenate(contexts, axis=-1),
            self._joint_weights(weights),
            list(states) if self.has_state else None,
            list(residuals),
        )

    def _state(self, memory: Memory, received: Nested = None) -> Nested:
        if not self.has_state:
            return None
        first = [one._state(part) for one, part in self._each(self._parts(memory))]
        return first if received is None else as_state(self.name, received, first)

    def _begin_training(self, memory: Memory, steps: Size) -> tuple[Memory, Nested]:
        each = [one._begin_training(part, steps) for one, part in self._each(self._parts(memory))]
        memories, noise = zip(*each, strict=True)
        return self._join(memories), list(noise)

    def _check_member(self, name, attention, arguments, what="attention"):
        """Raise an error for an invalid member, or for arguments of the members."""
        check_attention(self.name, attention, name)
        kind = type(self).__name__
        if attention.memory_count is not None:
            expected = f"`{name}` must read one memory"
            remedy = "Make MultiSource the outermost: MultiSource([MultiHead(...), ...])."
            raise_value_error(self.name, expected, attention, remedy)
        if attention.activity_regularizer is not None:
            expected = f"`{name}` must have no `activity_regularizer`, which would have no effect"
            received = attention.activity_regularizer
            raise_value_error(self.name, expected, received, f"Give it to {kind}.")
        for argument, default in OF_MEMBERS.items():
            if arguments.get(argument, default) != default:
                example = f"{type(attention).__name__}(..., {argument}=...)"
                expected = f"`{argument}` is an argument of each {what}"
                raise_value_error(
                    self.name, expected, arguments[argument], f"Give it there: {example}."
                )
