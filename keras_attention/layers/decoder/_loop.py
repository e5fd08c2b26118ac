"""The loop of a decoder over its steps."""

from typing import Any

from keras import ops

from keras_attention._checks import is_floating
from keras_attention._typing import Tensor
from keras_attention.layers._reading import drop_memory
from keras_attention.layers._types import Attended, DecoderState, Memory
from keras_attention.layers.decoder._attending import attend, attending, attending_with_state
from keras_attention.layers.decoder._cells import (
    DropoutMasks,
    query_size,
    with_constant_weights,
)
from keras_attention.layers.decoder._known_cells import KnownCells, is_known
from keras_attention.layers.decoder._steps import called, joined_output, masked_step, one_step
from keras_attention.ops._loops import leaves, pack_like, swap_steps
from keras_attention.ops._random import advanced_by, generator_states, scan_drawing
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
    read = _read(decoder, memory, return_attention_scores, None, None)
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
    known = is_known(decoder.cell, training) and _suits_parts(decoder, state, training)
    known = known and not _draws(decoder, sequences, memory, state, training)
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


def _suits_parts(decoder, state, training):
    """Whether the state of the attention, if there is one, can go through `recur` in training."""
    attention = decoder.attention
    if not attention.has_state or not training:
        return True
    return all(map(is_floating, leaves(state.attention)))


def _draws(decoder, sequences, memory, state, training):
    """Whether the attention draws random numbers in its steps, such as by a `Dropout` layer."""
    attention = decoder.attention
    states = generator_states(attention)
    if not training:
        # The mixin's own generator serves training alone.
        own = getattr(attention, "seed_generator", None)
        states = [x for x in states if own is None or x is not own.state]
    if not decoder.attends_inside or not states:
        return False
    drawn = []

    def draw():
        numbers = attention._draw(memory, ops.shape(sequences)[1])
        drawn.append(pack_like(numbers, [x[0] for x in leaves(numbers)]))

    if training and attention.has_state:
        advanced_by(draw, attention)
    batch, size = ops.shape(memory.value)[0], query_size(decoder.cell, decoder.query)
    query = ops.zeros((batch, size), decoder.compute_dtype)
    read = _read(decoder, memory, True, training, drawn[0] if drawn else None)
    return bool(advanced_by(lambda: read(query, state.attention, state.position), attention))


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
    cells, fed, kept = carry
    (cells, fed, last), (outputs, weights) = _run_parts(
        decoder,
        inputs,
        memory,
        (cells, fed, _like_memory(decoder, kept, memory)),
        return_scores,
        True,
        limit,
    )
    weights = None if weights is None else weights[:steps, :, :length]
    cut = [
        x[(slice(None), *map(slice, ops.shape(y)[1:]))]
        for x, y in zip(leaves(last), leaves(kept), strict=True)
    ]
    return (cells, fed, pack_like(kept, cut)), (outputs[:steps], weights)


def _like_memory(decoder, state, memory):
    """Pads a state of the attention to the sizes that belong to a padded memory."""
    if not decoder.attention.has_state:
        return state
    padded = []
    first = leaves(decoder.attention._first_state(memory))
    for x, wanted in zip(leaves(state), map(ops.shape, first), strict=True):
        for axis in range(1, len(wanted)):
            x = pad_axis(x, axis, wanted[axis] - ops.shape(x)[axis])
        padded.append(x)
    return pack_like(state, padded)


def _run_parts(decoder, inputs, memory, carry, return_scores, training, steps=None):
    sequences, mask, position = inputs
    cells = KnownCells(decoder.cell, sequences, decoder._fed_size, training)
    reading, parts = None, cells.parts
    drawn = _draw(decoder, inputs, memory, training)
    if decoder.attends_inside:
        if decoder.attention.has_state:
            reading = attending_with_state(decoder, memory, carry[2], drawn, training)
        else:
            reading = attending(decoder, memory, return_scores)
        first = decoder.query == "previous"
        parts = [reading, *parts] if first else [*parts, reading]
    if not decoder.attention.uses_position or not decoder.attends_inside:
        position = None

    def step(call, carry, x):
        x, drawn = x

        def read(query, kept, position):
            count = [] if position is None else [position]
            if kept is not None:
                output, weights, *new = call(reading, query, *leaves(kept), *leaves(drawn), *count)
                return Attended(output, pack_like(kept, new), weights)
            output, *weights = call(reading, query, *count)
            return Attended(output, kept, weights[0] if weights else None)

        def run(_, fed, states):
            return cells(call, fed, states)

        return masked_step(decoder, run, read if reading else None, carry, x)

    # The parts hold the products of the sequences.
    inputs = (None, mask, position), drawn
    return recur(step, parts, carry, inputs, decoder.unroll, bool(training), steps)


def _run_any(decoder, inputs, memory, carry, return_scores, training):
    """The loop over any other cell, which TensorFlow or JAX differentiates."""
    drawn = _draw(decoder, inputs, memory, training)

    def step(carry, x):
        inputs, drawn = x
        read = None
        if decoder.attends_inside:
            read = _read(decoder, memory, return_scores, training, drawn)
        return masked_step(decoder, called(decoder), read, carry, inputs)

    given = tuple(inputs), drawn

    def run():
        return scan_drawing(step, carry, given, decoder, decoder.unroll)

    sequences = inputs[0]
    size = sequences.shape[-1] + decoder._fed_size
    with DropoutMasks(decoder.cell, ops.shape(sequences)[1], size):
        return with_constant_weights(decoder, run)


def _read(decoder, memory, return_scores, training, drawn):
    """Reads the memory in one step."""

    def read(query, kept, position):
        options = {"return_attention_scores": return_scores, "training": training}
        if decoder.attention.uses_position:
            options["position"] = position
        return attend(decoder, query, memory, state=kept, drawn=drawn, **options)

    return read


def _draw(decoder, inputs, memory, training):
    """Random numbers for the steps of an attention with a state, or None."""
    if not training or not decoder.attends_inside or not decoder.attention.has_state:
        return None
    return decoder.attention._draw(memory, ops.shape(inputs[0])[0])


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
