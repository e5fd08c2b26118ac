"""The loop of a decoder over its steps."""

from typing import Any

from keras import ops

from keras_attention._typing import Tensor
from keras_attention.layers._random import draws_random_numbers, random_scan
from keras_attention.layers._reading import drop_memory
from keras_attention.layers._types import Attended, DecoderState, Memory
from keras_attention.layers.decoder._attending import attend, attending
from keras_attention.layers.decoder._cells import DropoutMasks, with_constant_weights
from keras_attention.layers.decoder._known_cells import KnownCells, is_known
from keras_attention.layers.decoder._steps import called, joined_output, masked_step, one_step
from keras_attention.ops._loops import scan, swap_steps
from keras_attention.ops._recurrence import recur, runs_alone
from keras_attention.ops._xla import compiling, pad_axis, round_up_length
from keras_attention.ops.masks import blanked


def run_step(
    decoder: Any,
    inputs: Tensor,
    state: DecoderState,
    memory: Memory,
    return_attention_scores: bool = True,
) -> tuple[Tensor, DecoderState, Tensor]:
    """One step of `AttentionRNN.step`: the output, the state and the weights."""
    read = _read(decoder, memory, return_attention_scores, None)
    *carry, position = state
    output, carry, weights = one_step(decoder, called(decoder), read, inputs, carry, position)
    return output, DecoderState(*carry, position + 1), weights


def run_loop(
    decoder: Any,
    sequences: Tensor,
    memory: Memory,
    state: DecoderState,
    mask: Tensor,
    return_scores: bool,
    training: bool | None,
) -> tuple[Tensor, Tensor, DecoderState]:
    """All steps: the outputs, the weights and the last state."""
    sequences = ops.cast(sequences, decoder.compute_dtype)
    position, last = _positions(sequences, state.position, mask)
    if decoder.attends_inside and training:
        memory = drop_memory(decoder.attention, memory)
    # Time comes first in the loop.
    inputs = [None if x is None else swap_steps(x) for x in (sequences, mask, position)]
    # `recur` passes no gradient to the state of an attention.
    known = is_known(decoder.cell, training) and not decoder.attention.has_state
    run = _run_known if known else _run_any
    with compiling(True if training else None):
        carry, outputs = run(decoder, inputs, memory, state[:3], return_scores, training)
    outputs, weights = (None if x is None else swap_steps(x) for x in outputs)
    if not decoder.attends_inside:
        options = {"position": position} if decoder.attention.uses_position else {}
        attended, _, weights = attend(
            decoder,
            outputs,
            memory,
            query_mask=mask,
            return_attention_scores=return_scores,
            training=training,
            **options,
        )
        outputs = joined_output(decoder, outputs, attended)
    outputs = blanked(outputs, mask)
    weights = blanked(weights, mask) if return_scores else None
    return outputs, weights, DecoderState(*carry, last)


def _run_known(decoder, inputs, memory, carry, return_scores, training):
    """The loop over cells whose products are known, with a gradient of our own."""
    if training and runs_alone(inputs[0], memory.value):
        return _run_padded(decoder, inputs, memory, carry, return_scores)
    return _run_parts(decoder, inputs, memory, carry, return_scores, training)


def _run_padded(decoder, inputs, memory, carry, return_scores):
    """Rounds unknown numbers of steps up, so that XLA compiles few programs for all lengths."""
    steps, length = ops.shape(inputs[0])[0], ops.shape(memory.value)[1]
    more = [0 if isinstance(n, int) else round_up_length(n) - n for n in (steps, length)]
    inputs = [None if x is None else pad_axis(x, 0, more[0]) for x in inputs]
    if not isinstance(length, int):
        mask = memory.mask
        if mask is None:
            mask = ops.ones(ops.shape(memory.value)[:2], "bool")
        memory = Memory(*(pad_axis(x, 1, more[1]) for x in (memory.key, memory.value, mask)))
    limit = None if isinstance(steps, int) else steps
    carry, (outputs, weights) = _run_parts(
        decoder, inputs, memory, carry, return_scores, True, limit
    )
    weights = None if weights is None else weights[:steps, :, :length]
    return carry, (outputs[:steps], weights)


def _run_parts(decoder, inputs, memory, carry, return_scores, training, steps=None):
    sequences, mask, position = inputs
    cells = KnownCells(decoder.cell, sequences, decoder._fed_size, training)
    reading, parts = None, cells.parts
    if decoder.attends_inside:
        reading = attending(decoder, memory, return_scores)
        first = decoder.query == "previous"
        parts = [reading, *parts] if first else [*parts, reading]
    if not decoder.attention.uses_position or not decoder.attends_inside:
        position = None

    def step(call, carry, x):
        def read(query, kept, position):
            output, *weights = call(reading, query, *([] if position is None else [position]))
            return Attended(output, kept, weights[0] if weights else None)

        def run(_, fed, states):
            return cells(call, fed, states)

        return masked_step(decoder, run, read if reading else None, carry, x)

    # The parts hold the products of the sequences.
    inputs = None, mask, position
    return recur(step, parts, carry, inputs, decoder.unroll, bool(training), steps)


def _run_any(decoder, inputs, memory, carry, return_scores, training):
    """The loop over any other cell, which TensorFlow or JAX differentiates."""
    read = _read(decoder, memory, return_scores, training) if decoder.attends_inside else None

    def step(carry, x):
        return masked_step(decoder, called(decoder), read, carry, x)

    sequences = inputs[0]
    size = sequences.shape[-1] + decoder._fed_size
    with DropoutMasks(decoder.cell, ops.shape(sequences)[1], size):
        if training and decoder.attention.has_state and draws_random_numbers(decoder.attention):
            return random_scan(decoder, step, carry, tuple(inputs), decoder.unroll)
        return with_constant_weights(
            decoder, lambda: scan(step, carry, tuple(inputs), unroll=decoder.unroll)
        )


def _read(decoder, memory, return_scores, training):
    """Reads the memory in one step."""

    def read(query, kept, position):
        options = {"return_attention_scores": return_scores, "training": training}
        if decoder.attention.uses_position:
            options["position"] = position
        return attend(decoder, query, memory, state=kept, **options)

    return read


def _positions(sequences: Tensor, start: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """The numbers of the steps, `(B, T)`, and of the step after them. Masked steps do not count."""
    batch, steps = ops.shape(sequences)[:2]
    if mask is None:
        count = ops.broadcast_to(ops.arange(steps, dtype="int32"), (batch, steps))
        total = ops.full((batch,), steps, dtype="int32")
    else:
        valid = ops.cast(mask, "int32")
        count, total = ops.cumsum(valid, axis=1) - valid, ops.sum(valid, axis=1)
    return count + ops.expand_dims(start, 1), start + total
