"""The loop of a decoder over its steps."""

import functools
from typing import Any

from keras import ops, tree

from keras_attention._place import compiling
from keras_attention._spec import is_floating
from keras_attention._typing import Tensor
from keras_attention.layers.decoder._cells import (
    check_output,
    dropout_masks,
    query_of,
    with_constant_weights,
)
from keras_attention.layers.decoder._changes import changed_in_a_step, refuse_assigned
from keras_attention.layers.decoder._sites import (
    CellSites,
    attention_sites,
    has_sites,
)
from keras_attention.layers.types import DecoderState, Memory
from keras_attention.ops.loops import leaves, map_leaves, pack_like, swap_steps, where_valid
from keras_attention.ops.masks import blanked
from keras_attention.ops.random import scan_drawing
from keras_attention.ops.xla import pad_axis, round_up_length
from keras_attention.recurrence import recur, runs_alone


def run_step(
    decoder: Any, inputs: Tensor, state: DecoderState, memory: Memory
) -> tuple[Tensor, DecoderState, Tensor]:
    """One step of `AttentionRNN.step`: the output, the state and the weights."""
    read = _read(decoder, memory, True, None, None)
    *carry, position = state
    x = inputs, None, position
    carry, (output, weights) = _masked_step(decoder, _called(decoder), read, carry, x)
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
        memory = decoder.attention._drop_memory(memory)
    # Time comes first in the loop.
    inputs = [None if x is None else swap_steps(x) for x in (sequences, mask, position)]
    uses_sites = has_sites(decoder.cell, training)
    uses_sites = uses_sites and all(map(is_floating, leaves(state.attention)))
    if uses_sites:
        read = functools.partial(_read, decoder, memory, True, training)
        changed = changed_in_a_step(decoder, sequences, memory, state, training, read)
        refuse_assigned(decoder.name, decoder.attention, changed)
        uses_sites = not changed
    carry = state.cells, state.fed, state.attention
    with compiling(True if training else None):
        run = _with_sites if uses_sites else _without_sites
        if uses_sites and training and runs_alone(inputs[0], *leaves(memory.value)):
            run = _with_sites_padded
        carry, outputs = run(decoder, inputs, memory, carry, return_scores, training)
    outputs, weights = map_leaves(swap_steps, outputs)
    if not decoder.attends_inside:
        (attended, _, weights), _ = decoder.attention._attend(
            outputs,
            memory,
            query_mask=mask,
            position=position,
            return_attention_scores=return_scores,
            training=training,
        )
        outputs = _joined(decoder, outputs, attended)
    outputs, weights = map_leaves(lambda x: blanked(x, mask), (outputs, weights))
    return outputs, weights, DecoderState(*carry, last)


def _with_sites_padded(decoder, inputs, memory, carry, return_scores, training):
    """Rounds unknown numbers of steps up, so that XLA compiles few programs for all lengths."""
    steps = ops.shape(inputs[0])[0]
    inputs = [None if x is None else pad_axis(x, 0, _missing(steps)) for x in inputs]
    lengths = map_leaves(lambda x: ops.shape(x)[1], memory.value)
    missing = map_leaves(_missing, lengths)

    def masked(x, mask, more):
        unpadded = isinstance(more, int)
        return mask if unpadded or mask is not None else ops.ones(ops.shape(x)[:2], "bool")

    mask = tree.map_structure(masked, memory.value, memory.mask, missing)
    memory = Memory(
        *(map_leaves(lambda x, more: pad_axis(x, 1, more), x, missing) for x in memory[:2]),
        map_leaves(lambda x, more: pad_axis(x, 1, more), mask, missing),
    )
    limit = None if isinstance(steps, int) else steps
    cells, fed, state = carry
    (cells, fed, last), (outputs, weights) = _with_sites(
        decoder,
        inputs,
        memory,
        (cells, fed, _like_memory(decoder, state, memory)),
        return_scores,
        training,
        limit,
    )
    weights = map_leaves(lambda x, n: x[:steps, :, :n], weights, lengths)
    cut = [
        x[(slice(None), *map(slice, ops.shape(y)[1:]))]
        for x, y in zip(leaves(last), leaves(state), strict=True)
    ]
    return (cells, fed, pack_like(state, cut)), (outputs[:steps], weights)


def _missing(size):
    """How many steps an unknown number of steps is rounded up by."""
    return 0 if isinstance(size, int) else round_up_length(size) - size


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


def _with_sites(decoder, inputs, memory, carry, return_scores, training, steps=None):
    """The loop over cells with sites, which has a gradient of its own."""
    sequences, mask, position = inputs
    cells = CellSites(decoder.cell, sequences, decoder._fed_size, training)
    of_attention, attend = {}, None
    if decoder.attends_inside:
        of_attention, attend = attention_sites(decoder, memory, return_scores, training)
    drawn = _draw(decoder, inputs, memory, training)

    def step(call, carry, x):
        x, drawn = x

        def read(query, state, position):
            return attend(call, query, state, drawn, position)

        def run_cell(_, fed, states):
            return cells(call, fed, states)

        return _masked_step(decoder, run_cell, read if attend else None, carry, x)

    # The sites hold the products of the sequences.
    inputs = (None, mask, position), drawn
    sites = cells.sites | of_attention
    return recur(step, sites, carry, inputs, decoder.unroll, bool(training), steps)


def _without_sites(decoder, inputs, memory, carry, return_scores, training):
    """The loop over any other cell, which TensorFlow or JAX differentiates."""
    drawn = _draw(decoder, inputs, memory, training)

    def step(carry, x):
        inputs, drawn = x
        read = None
        if decoder.attends_inside:
            read = _read(decoder, memory, return_scores, training, drawn)
        return _masked_step(decoder, _called(decoder), read, carry, inputs)

    of_steps = tuple(inputs), drawn

    def run():
        return scan_drawing(step, carry, of_steps, decoder, decoder.unroll)

    sequences = inputs[0]
    size = sequences.shape[-1] + decoder._fed_size
    with dropout_masks(decoder.cell, ops.shape(sequences)[1], size):
        return with_constant_weights(decoder, run)


def _called(decoder):
    """Calls the cell as it is."""

    def run(inputs, fed, states):
        inputs = inputs if fed is None else ops.concatenate([inputs, fed], axis=-1)
        hidden, new = decoder.cell(inputs, states)
        asks = decoder.attends_inside and decoder.query == "previous"
        check_output(decoder.name, decoder.cell, hidden, new if asks else None)
        return hidden, tree.pack_sequence_as(states, tree.flatten(new))

    return run


def _masked_step(decoder, run_cell, read, carry, x):
    """A step of the loop, which attends before or after the cell. A masked one keeps the states.

    Args:
        run_cell: `run_cell(inputs, fed, states)` returns the output and the new states.
        read: `read(query, state, position)` attends and returns `Attended`; None for no attention.
        x: the inputs, their mask and their position.
    """
    inputs, mask, position = x
    states, fed, kept = carry
    weights = None
    if decoder.query == "previous":
        attended, kept, weights = read(query_of(decoder.cell, states), kept, position)
        hidden, states = run_cell(inputs, attended, states)
    else:
        hidden, states = run_cell(inputs, fed, states)
        if read is not None:
            attended, kept, weights = read(hidden, kept, position)
            fed = attended if decoder.input_feeding else None
    output = hidden if read is None else _joined(decoder, hidden, attended)
    new = states, fed, kept
    return new if mask is None else where_valid(mask, new, carry), (output, weights)


def _joined(decoder, hidden, attended):
    """What a step returns, by the `output_mode` of the decoder."""
    if decoder.output_mode == "concat":
        return ops.concatenate([attended, hidden], axis=-1)
    return hidden if decoder.output_mode == "cell" else attended


def _read(decoder, memory, return_scores, training, drawn):
    """Makes the function that reads the memory in one step; `drawn` are its random numbers."""

    def read(query, state, position):
        attended, _ = decoder.attention._attend(
            query,
            memory,
            state=state,
            position=position,
            drawn=drawn,
            return_attention_scores=return_scores,
            training=training,
            drop=False,
        )
        return attended

    return read


def _draw(decoder, inputs, memory, training):
    """Random numbers for the steps of an attention with a state, or None."""
    if not training or not decoder.attends_inside or not decoder.attention.has_state:
        return None
    return decoder.attention._draw(memory, ops.shape(inputs[0])[0])


def _positions(sequences: Tensor, start: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the position of every step, `(B, T)`, and the position after the last one.

    Masked steps do not count.
    """
    batch, steps = ops.shape(sequences)[:2]
    if mask is None:
        count = ops.broadcast_to(ops.arange(steps, dtype="int32"), (batch, steps))
        total = ops.full((batch,), steps, dtype="int32")
    else:
        valid = ops.cast(mask, "int32")
        count, total = ops.cumsum(valid, axis=1) - valid, ops.sum(valid, axis=1)
    return count + ops.expand_dims(start, 1), start + total
