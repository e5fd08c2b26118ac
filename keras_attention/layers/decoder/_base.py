"""What the decoders share: they read a memory, and they decode step by step."""

from typing import Any

from keras_attention._spec import Spec, Words, map_shapes, refuse
from keras_attention._typing import Tensor
from keras_attention.layers.base import CheckedLayer
from keras_attention.layers.decoder._cells import (
    check_prepared,
    check_step,
    first_state,
    run_at_least_once,
)
from keras_attention.layers.scoring import build_attention
from keras_attention.layers.types import DecoderState, Memory
from keras_attention.ops.loops import leaves
from keras_attention.ops.masks import blanked


class Decoder(CheckedLayer):
    """A recurrence over sequences that attends to a memory.

    A subclass has an `attention`, says what its cells hold in `_state_sizes`, and runs one step in
    `_step(inputs, state, memory)`. It runs all steps in `_run(sequences, memory, state, mask,
    scores_wanted, training)`, which returns the outputs, the weights or None, and the last state.
    """

    CALL = Spec(
        *("sequences: float[B T D]", "memory: float[B Tk Dv]"),
        *("sequences_mask: bool[B T]?", "memory_mask: bool[B Tk]?"),
    )
    STEP = Spec(
        "memory: float[B Tk Dv]",
        "inputs: float[B D]",
        call="step(inputs, state, memory) without an axis of steps. Embed token ids first: "
        "embedding(tokens)",
    )
    input_feeding = return_state = False

    def _take_attention(self, attention):
        """Sets the attention, and declares as many memories as it takes."""
        self.attention = attention
        count = attention.memory_count
        self.CALL, self.STEP = self.CALL.of_each(count), self.STEP.of_each(count)

    def _build_attention(self, query_shape, memory_shape):
        build_attention(self.attention, query_shape, memory_shape)
        sizes = map_shapes(lambda shape: shape[-1], memory_shape)
        self._attention_size = self.attention.output_size(query_shape[-1], sizes)

    def call(
        self,
        sequences: Tensor,
        memory: Tensor = None,
        initial_state: Any = None,
        sequences_mask: Tensor = None,
        memory_mask: Tensor = None,
        return_attention_scores: bool = False,
        training: bool | None = None,
    ) -> Tensor | list:
        prepared = self.attention._prepare(memory, value_mask=memory_mask)
        state = first_state(self, prepared, initial_state)
        # Masked steps must not influence anything, NaN included.
        inputs = blanked(sequences, sequences_mask), prepared, state, sequences_mask
        has_loss = self.attention._has_loss
        scores_wanted = return_attention_scores or has_loss
        outputs, weights, state = run_at_least_once(
            lambda *inputs: self._run(*inputs, scores_wanted, training), *inputs
        )
        if has_loss:
            self.attention._add_sequence_loss(weights, sequences_mask, memory_mask)
        results = [outputs]
        if self.return_state:
            results += [*state.cells, *leaves(state[1:3])]
            results += [state.position] * self.attention.uses_position
        if return_attention_scores:
            results.append(weights)
        return results if len(results) > 1 else outputs

    def prepare(self, memory: Tensor, memory_mask: Tensor = None) -> Memory:
        """Projects the keys of a memory for `step`. Pass the mask: it does not propagate here."""
        self._check_built("decoding")
        tensors = {"memory": memory, "memory_mask": memory_mask}
        self.CALL.check(self.name, tensors, self._sizes, "prepare(memory, memory_mask=mask)")
        return self.attention._prepare(memory, value_mask=memory_mask)

    def get_initial_state(self, memory: Memory, initial_state: Any = None) -> DecoderState:
        """Returns the state before the first `step`.

        memory: from `prepare`. initial_state: as in a call.
        """
        check_prepared(self, memory)
        return first_state(self, memory, initial_state)

    def step(
        self, inputs: Tensor, state: DecoderState, memory: Memory
    ) -> tuple[Tensor, DecoderState, Tensor]:
        """Runs one step. Without dropout, repeated steps give the outputs of one call.

        Args:
            inputs: x_i, `(B, D)`.
            state: from `get_initial_state`, or from the step before.
            memory: from `prepare`.

        Returns:
            `(output, state, weights)`: `(B, ...)`, a `DecoderState`, `(B, Tk)`.
        """
        check_step(self, inputs, state, memory)
        if self.attention.has_state:
            kept = self.attention._given_state(memory, state.attention)
            state = state._replace(attention=kept)
        return self._step(inputs, state, memory)


def check_dtypes(layer: str, dtype: str, what: str, parts: list[tuple[str, Any]]) -> None:
    """The compute dtypes of the parts of a decoder, which computes in `dtype`."""
    for name, part in parts:
        if getattr(part, "compute_dtype", dtype) != dtype:
            expected = f"{what}, attention and decoder must compute in one dtype"
            received = Words(f"{dtype} for the decoder, {part.compute_dtype} for `{name}`")
            refuse(layer, expected, received, "Give all of them the same `dtype`.")
