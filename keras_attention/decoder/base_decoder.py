"""The base of decoders: they attend to a memory, and they decode step by step."""

from keras import tree

from keras_attention._spec import (
    Description,
    Spec,
    dtype_of,
    fits,
    is_dense,
    is_tensor,
    kind_of,
    map_shapes,
    raise_value_error,
)
from keras_attention._typing import Nested, Size, Tensor
from keras_attention.attention.checked_layer import CheckedLayer
from keras_attention.attention.scoring import add_sequence_loss, build_attention, check_attention
from keras_attention.attention.types import DecoderState, Memory
from keras_attention.backend import leaves, ops
from keras_attention.decoder._padding import cut_empty, pad_empty
from keras_attention.ops.masks import zero_masked
from keras_attention.ops.matmul import cast

__all__ = ["Decoder", "check_states"]


REMEDY = (
    "Pass the cell states alone, or leave it out to start from zeros. Project a state of another "
    "size: keras.layers.Dense(units)(state)."
)


class Decoder(CheckedLayer):
    """A recurrence over sequences that attends to a memory.

    A subclass has an `attention`, gives the state sizes in `_state_sizes`, and runs one step in
    `_step(inputs, state, memory)`. It runs all steps in `_unroll(sequences, memory, state, mask,
    scores_wanted, training)`, which returns the outputs, the weights or None, and the last state.
    """

    CALL = Spec(
        *("sequences: float[B T D]", "memory: float[B Tk Dv]"),
        *("sequences_mask: bool[B T]?", "memory_mask: bool[B Tk]?"),
    )
    STEP = Spec("memory: float[B Tk Dv]", "inputs: float[B D]", call="step(inputs, state, memory)")
    input_feeding = return_state = False

    def _take_attention(self, attention, what, parts):
        """Set the attention, and declare as many memories as it takes.

        `parts`: its other layers, `(name, part)`, called `what` in an error.
        """
        check_attention(self.name, attention)
        for name, part in [*parts, ("attention", attention)]:
            dtype = getattr(part, "compute_dtype", self.compute_dtype)
            if dtype != self.compute_dtype:
                expected = f"{what}, attention and decoder must compute in one dtype"
                received = f"{self.compute_dtype} for the decoder, {dtype} for `{name}`"
                remedy = "Give all of them the same `dtype`."
                raise_value_error(self.name, expected, Description(received), remedy)
        self.attention = attention
        count = attention.memory_count
        self.CALL, self.STEP = self.CALL.for_memories(count), self.STEP.for_memories(count)

    def _build_attention(self, query_size, sequences_shape, memory_shape) -> tuple[Size, ...]:
        """Check the shapes, build the attention, and return the shape of the sequences."""
        shapes = {"sequences": sequences_shape, "memory": memory_shape}
        self._sizes = self.CALL.check_shapes(self.name, shapes)
        build_attention(self.attention, (sequences_shape[0], query_size), memory_shape)
        sizes = map_shapes(lambda shape: shape[-1], memory_shape)
        self._attention_size = self.attention.output_size(query_size, sizes)
        # The shapes of the states of each kind, without the batch.
        self._state_shapes = {
            "cell state": tuple((size,) for size in tree.flatten(self._state_sizes)),
            "fed vector": ((self._attention_size,),) * self.input_feeding,
        }
        return tuple(sequences_shape)

    def call(
        self,
        sequences: Tensor,
        memory: Tensor = None,
        initial_state: Nested = None,
        sequences_mask: Tensor = None,
        memory_mask: Tensor = None,
        return_attention_scores: bool = False,
        training: bool | None = None,
    ) -> Tensor | list[Tensor]:
        prepared = self.attention._prepare(memory, value_mask=memory_mask)
        state = self._first_state(prepared, initial_state)
        # Masked steps must not influence anything, NaN included.
        sequences = zero_masked(sequences, sequences_mask)
        has_loss = self.attention._has_loss
        scores_wanted = return_attention_scores or has_loss
        inputs = pad_empty(sequences, prepared, state, sequences_mask)
        results = self._unroll(*inputs, scores_wanted, training)
        outputs, weights, state = cut_empty(sequences, prepared, state, results)
        if has_loss:
            add_sequence_loss(self, self.attention, weights, sequences_mask, memory_mask)
        results = [outputs]
        if self.return_state:
            results += [*state.cells, *leaves(state[1:3])]
            results += [state.position] * self.attention.uses_position
        if return_attention_scores:
            results.append(weights)
        return results if len(results) > 1 else outputs

    def prepare(self, memory: Tensor, memory_mask: Tensor = None) -> Memory:
        """Project the keys of a memory for `step`. Pass the mask: it does not propagate here."""
        self._check_built("decoding")
        tensors = {"memory": memory, "memory_mask": memory_mask}
        self.CALL.check(self.name, tensors, self._sizes, "prepare(memory, memory_mask=mask)")
        return self.attention._prepare(memory, value_mask=memory_mask)

    def get_initial_state(self, memory: Memory, initial_state: Nested = None) -> DecoderState:
        """Return the state before the first `step`.

        memory: from `prepare`. initial_state: as in a call.
        """
        self._check_prepared(memory)
        return self._first_state(memory, initial_state)

    def _check_prepared(self, memory):
        self._check_built("decoding")
        if not isinstance(memory, Memory):
            expected = "`memory` must be what prepare(memory, memory_mask) returns, made once "
            raise_value_error(self.name, f"{expected}before the first step", memory)

    def _first_state(self, memory, initial_state):
        """Return the state before the first step; see the argument `initial_state` of a call."""
        attention, value = self.attention, leaves(memory.value)[0]
        batch = ops.shape(value)[0]
        groups = dict(self._state_shapes)
        cells, input_feed = groups.values()
        state = attention._state(memory)
        if attention.has_state:
            groups["attention state"] = tuple(tuple(x.shape[1:]) for x in leaves(state))
        parts = initial_state if isinstance(initial_state, (list, tuple)) else ()
        for part in (initial_state, *parts):
            if isinstance(part, dict):
                expected = "`initial_state` must be a tensor or a list of tensors, in the order of "
                names = Description(f"a dictionary of {', '.join(map(repr, part))}")
                raise_value_error(self.name, f"{expected}the cell, such as [h, c]", names)
        states = leaves(initial_state)
        position = ops.zeros((batch,), "int32")
        # Without the position, the last tensor may be an integer state of the attention.
        complete = len(states) in (0, len(cells), sum(map(len, groups.values())))
        counts = attention.uses_position and not complete
        if counts and is_tensor(states[-1], "int", value.shape[0]):
            position = ops.cast(states.pop(), "int32")
        check_states(self.name, "initial_state", states, groups, value.shape[0])
        shapes = [*cells, *input_feed]
        if states[len(shapes) :]:
            state = attention._state(memory, states[len(shapes) :])
        # An encoder may compute in another dtype.
        states = [cast(x, self.compute_dtype) for x in states[: len(shapes)]]
        for shape in shapes[len(states) :]:
            states.append(ops.zeros((batch, *shape), self.compute_dtype))
        vector = states[len(cells)] if input_feed else None
        cells = tree.pack_sequence_as(self._state_sizes, states[: len(cells)])
        return DecoderState(cells, vector, state, position)

    def step(
        self, inputs: Tensor, state: DecoderState, memory: Memory
    ) -> tuple[Tensor, DecoderState, Tensor]:
        """Run one step. Without dropout, repeated steps give the outputs of one call.

        Args:
            inputs: x_i, `(B, D)`.
            state: from `get_initial_state`, or from the step before.
            memory: from `prepare`.

        Returns:
            `(output, state, weights)`: `(B, ...)`, a `DecoderState`, `(B, Tk)`.
        """
        self._check_prepared(memory)
        tensors = {"memory": memory.value, "inputs": inputs}
        sizes = self.STEP.check(self.name, tensors, self._sizes)
        if not isinstance(state, DecoderState):
            expected = "`state` must be the DecoderState that get_initial_state(memory) or the "
            remedy = "Start from states of an encoder: get_initial_state(memory, initial_state)."
            raise_value_error(self.name, f"{expected}previous step returned", state, remedy)
        states = leaves(state[:2])
        check_states(self.name, "state", states, self._state_shapes, sizes.get("B"))
        if self.attention.has_state:
            if state.attention is None:
                expected = "`state` must hold the state of the attention, as "
                expected += "get_initial_state(memory) or the previous step returned it"
                raise_value_error(self.name, expected, None)
            state = state._replace(attention=self.attention._state(memory, state.attention))
        return self._step(inputs, state, memory)


def check_states(
    layer: str, name: str, states: list[Nested], groups: dict[str, tuple[Nested, ...]], batch: Size
) -> None:
    """Check a flat list of states.

    Args:
        name: the argument that holds the states.
        groups: the shapes of the states of each kind, in tuples, without the batch. An initial
            state may hold nothing, only the first kind, or all.
        batch: the batch size of the memory.
    """
    vectors = len(groups["cell state"]) + len(groups["fed vector"])
    vectors = vectors if "attention state" in groups else len(states)
    initial = name == "initial_state"
    for n, state in enumerate(states):
        if not hasattr(state, "shape") or not hasattr(state, "dtype") or not is_dense(state):
            raise_value_error(layer, f"`{name}` must hold tensors", state, REMEDY)
        kind = kind_of(state.dtype)
        if n < vectors and (kind == "bool" or (initial and kind != "float")):
            expected = f"`{name}` must hold vectors of floating-point numbers, as of an encoder"
            remedy = 'Cast other numbers: keras.ops.cast(state, "float32").'
            if kind == "bool":
                remedy = "Pass a mask by its name: `sequences_mask` or `memory_mask`."
            raise_value_error(layer, expected, Description(f"dtype {dtype_of(state)}"), remedy)
    shapes: tuple[Nested, ...] = sum(groups.values(), ())
    right = len(states) == len(shapes)
    right = right or (initial and len(states) in (0, len(groups["cell state"])))
    for state, size in zip(states, shapes, strict=False):
        right = right and fits(tuple(state.shape), (batch, *size))
    if right:
        return
    name_of_batch = batch if isinstance(batch, int) else "batch"
    wanted = ", ".join(
        f"{len(group)} {kind}{'s' * (len(group) > 1)} {_format_shapes(name_of_batch, group)}"
        for kind, group in groups.items()
        if group
    )
    received = Description(f"{len(states)}, {[tuple(x.shape) for x in states]}")
    raise_value_error(layer, f"`{name}` must hold {wanted}", received, REMEDY * initial)


def _format_shapes(batch, shapes):
    """Format shapes, with the batch, for an error."""
    return "[" + ", ".join(f"({', '.join(map(str, (batch, *shape)))})" for shape in shapes) + "]"
