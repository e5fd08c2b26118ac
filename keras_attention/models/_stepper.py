"""The base of models that generate one token at a time, from left to right."""

import abc

from keras_attention._typing import Nested, Tensor
from keras_attention.models._generator import Generator
from keras_attention.models._searches import SEARCHES


class Stepper(Generator):
    """A model that every search can use, because it defines `start` and `step`."""

    @abc.abstractmethod
    def step(
        self, tokens: Tensor, state: Nested, memory: Nested
    ) -> tuple[Tensor, Nested, Tensor | None]:
        """Predicts the next token. Returns `(logits, state, weights)`."""

    @abc.abstractmethod
    def _memory_mask(self, memory):
        """The mask `(B, Tk)` of a memory from `start`, or None."""

    def _run(self, search, state, memory, options):
        if search == "beam":
            options = {**options, "memory_mask": self._memory_mask(memory)}
        return SEARCHES[search](self.step, state, memory, **options)
