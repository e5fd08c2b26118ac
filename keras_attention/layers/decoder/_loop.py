"""The loop of a decoder over its steps."""

import keras
from keras import ops

from keras_attention._typing import Tensor
from keras_attention.layers._reading import drop_memory
from keras_attention.layers._types import Memory
from keras_attention.layers.decoder._cells import (
    BoundCell,
    DropoutMasks,
    as_states,
    query_of,
    state_sizes,
    with_constant_weights,
)
from keras_attention.layers.decoder._changes import refuse_changes
from keras_attention.layers.decoder._parts import check_output
from keras_attention.ops._gradients import repeated
from keras_attention.ops._xla import compiling
from keras_attention.ops.masks import blanked

# Positions pass through the loop as two digits: bfloat16 represents integers up to 256 only.
DIGIT = 128


def run_step(
    decoder: keras.layers.Layer,
    inputs: Tensor,
    states: list,
    memory: Memory,
    position: int | Tensor | None,
    return_attention_scores: bool = True,
) -> tuple[Tensor, list, Tensor]:
    """One step of `AttentionRNN.step`: the output, the states and the weights."""
    count = len(state_sizes(decoder.cell))
    options = {"return_attention_scores": return_attention_scores}
    if decoder.attention.uses_position:
        options["position"] = position
    if decoder.query == "previous":
        query = query_of(decoder.cell, states)
        attended, _, weights = _attend(decoder, query, memory, **options)
        hidden, states = decoder.cell(ops.concatenate([inputs, attended], axis=-1), states)
        check_output(decoder.name, decoder.cell, hidden, states)
        fed = []
    else:
        states, fed = states[:count], states[count:]
        hidden, states = decoder.cell(ops.concatenate([inputs, *fed], axis=-1), states)
        check_output(decoder.name, decoder.cell, hidden)
        attended, _, weights = _attend(decoder, hidden, memory, **options)
        fed = [attended] if decoder.input_feeding else []
    return _output(decoder, hidden, attended), [*as_states(decoder.cell, states), *fed], weights


def _attend(decoder, query, memory, **options):
    with refuse_changes(decoder.name, decoder.attention), repeated():
        return decoder.attention.attend(query, memory, **options)


def attend_inside(
    decoder: keras.layers.Layer,
    sequences: Tensor,
    memory: Memory,
    states: list,
    mask: Tensor,
    return_scores: bool,
    training: bool | None,
) -> tuple[Tensor, Tensor, list]:
    """Attends at every step of the loop. Returns outputs, weights and the last states."""
    if training:
        memory = drop_memory(decoder.attention, memory)
    width = sequences.shape[-1] + decoder._attention_size
    if decoder.attention.uses_position:
        position = ops.arange(ops.shape(sequences)[1])
        digits = ops.stack([position // DIGIT, position % DIGIT], axis=-1)
        digits = ops.broadcast_to(digits, (*ops.shape(sequences)[:2], 2))
        sequences = ops.concatenate([sequences, ops.cast(digits, sequences.dtype)], axis=-1)

    def step(inputs, states):
        position = None
        if decoder.attention.uses_position:
            digits = ops.cast(inputs[:, -2:], "int32")
            inputs, position = inputs[:, :-2], digits[:, 0] * DIGIT + digits[:, 1]
        output, states, weights = run_step(decoder, inputs, states, memory, position, return_scores)
        if return_scores:
            output = ops.concatenate([output, ops.cast(weights, output.dtype)], axis=-1)
        return output, states

    fed = [decoder._attention_size] * decoder.input_feeding
    cell = BoundCell(step, [*state_sizes(decoder.cell), *fed], decoder.compute_dtype)
    with (
        DropoutMasks(decoder.cell, ops.shape(sequences)[0], width),
        compiling(True if training else None),
    ):
        outputs, states = with_constant_weights(
            decoder, lambda: _loop(decoder, cell, sequences, states, mask)
        )
    if not return_scores:
        return outputs, None, states
    size = decoder._output_size(decoder._attention_size)
    weights = outputs[:, :, size:]
    # Slicing a last axis of unknown size loses the size.
    outputs = ops.reshape(outputs[:, :, :size], (-1, ops.shape(outputs)[1], size))
    return outputs, weights, states


def attend_after(
    decoder: keras.layers.Layer,
    sequences: Tensor,
    memory: Memory,
    states: list,
    mask: Tensor,
    return_scores: bool,
    training: bool | None,
) -> tuple[Tensor, Tensor, list]:
    """Attends once, after the loop: the attention does not feed the recurrence."""
    hidden, states = with_constant_weights(
        decoder, lambda: _loop(decoder, decoder.cell, sequences, states, mask)
    )
    check_output(decoder.name, decoder.cell, hidden)
    attended, _, weights = _attend(
        decoder,
        hidden,
        memory,
        query_mask=mask,
        return_attention_scores=return_scores,
        training=training,
    )
    return _output(decoder, hidden, attended), weights, states


def _loop(decoder, cell, sequences, states, mask):
    loop = keras.layers.RNN(
        cell,
        return_sequences=True,
        return_state=True,
        unroll=decoder.unroll,
        zero_output_for_mask=True,
        dtype=decoder.dtype_policy,
        name=f"{decoder.name}_loop",
    )
    outputs, *states = loop(sequences, initial_state=states, mask=mask)
    # On JAX, an unrolled loop ignores `zero_output_for_mask`.
    return blanked(outputs, mask), states


def _output(decoder, hidden, attended):
    if decoder.output_mode == "concat":
        return ops.concatenate([attended, hidden], axis=-1)
    return hidden if decoder.output_mode == "cell" else attended
