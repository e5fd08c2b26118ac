"""The loop of a decoder over its steps."""

import functools
from typing import Any

from keras import tree

from keras_attention._spec import is_floating
from keras_attention._typing import Tensor
from keras_attention.attention.scoring import check_unchanged
from keras_attention.attention.types import DecoderState, Memory
from keras_attention.backend import (
    compiling,
    execution_context,
    leaves,
    ops,
    swap_steps,
    tree_map,
    unflatten_as,
    where_valid,
)
from keras_attention.decoder._cells import (
    check_output,
    dropout_masks,
    query_of,
    query_size,
    with_constant_weights,
)
from keras_attention.decoder._ops import CellSites, attention_sites, has_sites
from keras_attention.ops.masks import Masks, zero_masked
from keras_attention.ops.padding import pad_axis, round_up_length
from keras_attention.ops.random import changed_by, generator_states, scan_drawing
from keras_attention.recurrence import recur


def run_step(
    decoder: Any, inputs: Tensor, state: DecoderState, memory: Memory
) -> tuple[Tensor, DecoderState, Tensor]:
    """One step of `AttentionRNN.step`: the output, the state and the weights."""
    run_cell = functools.partial(_call_cell, decoder)
    read = functools.partial(_read, decoder, memory, True, None, None)
    *carry, position = state
    x = inputs, None, position
    carry, (output, weights) = _masked_step(decoder, run_cell, read, carry, x)
    return output, DecoderState(*carry, position + 1), weights


def run_loop(
    decoder: Any,
    sequences: Tensor,
    memory: Memory,
    state: DecoderState,
    mask: Tensor,
    scores_wanted: bool,
    training: bool | None,
) -> tuple[Tensor, Tensor, DecoderState]:
    """All steps: the outputs, the weights and the last state."""
    sequences = ops.cast(sequences, decoder.compute_dtype)
    position, last = _positions(sequences, state.position, mask)
    if decoder.attends_inside and training:
        memory = decoder.attention._drop_memory(memory)
    # Time comes first in the loop.
    inputs = tree_map(swap_steps, [sequences, mask, position])
    uses_sites = has_sites(decoder.cell, training)
    uses_sites = uses_sites and all(map(is_floating, leaves(state.attention)))
    if uses_sites:
        uses_sites = not _samples_in_step(decoder, sequences, memory, state, training)
    carry = state.cells, state.input_feed, state.attention
    with compiling(True if training else None):
        run = _with_sites if uses_sites else _without_sites
        place = execution_context(inputs[0], *leaves(memory.value))
        if uses_sites and training and place.compiles_loops:
            run = _with_sites_padded
        carry, outputs = run(decoder, inputs, memory, carry, scores_wanted, training)
    outputs, weights = tree_map(swap_steps, outputs)
    if not decoder.attends_inside:
        (attended, _, weights), _ = decoder.attention._attend(
            outputs,
            memory,
            masks=Masks(query=mask),
            position=position,
            return_attention_scores=scores_wanted,
            training=training,
        )
        outputs = _joined(decoder, outputs, attended)
    outputs, weights = tree_map(functools.partial(zero_masked, mask=mask), (outputs, weights))
    return outputs, weights, DecoderState(*carry, last)


def _with_sites_padded(decoder, inputs, memory, carry, return_scores, training):
    """Rounds unknown numbers of steps up, so that XLA compiles few programs for all lengths."""
    steps, padded = ops.shape(inputs[0])[0], _padded(memory)
    missing, limit = _missing(steps), None if isinstance(steps, int) else steps
    inputs = tree_map(lambda x: pad_axis(x, 0, missing), inputs)
    cells, input_feed, state = carry
    carry = cells, input_feed, _like_memory(decoder, state, padded)
    (cells, input_feed, last), (outputs, weights) = _with_sites(
        decoder, inputs, padded, carry, return_scores, training, limit
    )
    weights = tree_map(lambda x, y: x[:steps, :, : ops.shape(y)[1]], weights, memory.value)
    last = tree_map(lambda x, y: x[(slice(None), *map(slice, ops.shape(y)[1:]))], last, state)
    return (cells, input_feed, last), (outputs[:steps], weights)


def _missing(size):
    """How many steps an unknown number of steps is rounded up by."""
    return 0 if isinstance(size, int) else round_up_length(size) - size


def _padded(memory):
    """A memory whose number of steps is rounded up, if it is unknown."""
    if tree.is_nested(memory.value):  # several memories
        each = map(_padded, map(Memory, *memory))
        return Memory(*map(list, zip(*each, strict=True)))
    missing, mask = _missing(ops.shape(memory.value)[1]), memory.mask
    if isinstance(missing, int):
        return memory
    mask = ops.ones(ops.shape(memory.value)[:2], "bool") if mask is None else mask
    pad = functools.partial(pad_axis, axis=1, count=missing)
    return Memory(*map(pad, (memory.key, memory.value, mask)))


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
    return unflatten_as(state, padded)


def _with_sites(decoder, inputs, memory, carry, return_scores, training, steps=None):
    """The loop over cells with sites, which has a gradient of its own."""
    sequences, mask, position = inputs
    cells = CellSites(decoder.cell, sequences, training)
    of_attention, attend = {}, None
    if decoder.attends_inside:
        of_attention, attend = attention_sites(decoder, memory, return_scores, training)
    noise = _sample_noise(decoder, inputs, memory, training)

    def step(call, carry, inputs, keeps):
        mask, position, noise = inputs
        read = attend and functools.partial(attend, call, noise)
        # The sites hold the products of the sequences.
        x = keeps, mask, position
        return _masked_step(decoder, functools.partial(cells, call), read, carry, x)

    inputs, sites = (mask, position, noise), cells.sites | of_attention
    return recur(step, sites, carry, inputs, cells.keeps, decoder.unroll, bool(training), steps)


def _without_sites(decoder, inputs, memory, carry, return_scores, training):
    """The loop over any other cell, which TensorFlow or JAX differentiates."""
    noise = _sample_noise(decoder, inputs, memory, training)

    def step(carry, x):
        inputs, noise = x
        read = None
        if decoder.attends_inside:
            read = functools.partial(_read, decoder, memory, return_scores, training, noise)
        run_cell = functools.partial(_call_cell, decoder)
        return _masked_step(decoder, run_cell, read, carry, inputs)

    def run():
        return scan_drawing(step, carry, (tuple(inputs), noise), decoder, decoder.unroll)

    batch, features = ops.shape(inputs[0])[1:]
    with dropout_masks(decoder.cell, batch, features + decoder._fed_size):
        return with_constant_weights(decoder, run)


def _call_cell(decoder, inputs, input_feed, states):
    """One step of a cell that is called as it is."""
    inputs = inputs if input_feed is None else ops.concatenate([inputs, input_feed], axis=-1)
    hidden, new = decoder.cell(inputs, states)
    asks = decoder.attends_inside and decoder.query == "previous"
    check_output(decoder.name, decoder.cell, hidden, new if asks else None)
    return hidden, tree.pack_sequence_as(states, tree.flatten(new))


def _masked_step(decoder, run_cell, read, carry, x):
    """A step of the loop, which attends before or after the cell. A masked one keeps the states.

    Args:
        run_cell: `run_cell(inputs, input_feed, states)` returns the output and the new states.
        read: `read(query, state, position)` attends and returns `Attended`; None for no attention.
        x: the inputs, their mask and their position.
    """
    inputs, mask, position = x
    states, input_feed, kept = carry
    weights = None
    if decoder.query == "previous":
        attended, kept, weights = read(query_of(decoder.cell, states), kept, position)
        hidden, states = run_cell(inputs, attended, states)
    else:
        hidden, states = run_cell(inputs, input_feed, states)
        if read is not None:
            attended, kept, weights = read(hidden, kept, position)
            input_feed = attended if decoder.input_feeding else None
    output = hidden if read is None else _joined(decoder, hidden, attended)
    new = states, input_feed, kept
    return new if mask is None else where_valid(mask, new, carry), (output, weights)


def _joined(decoder, hidden, attended):
    """What a step returns, by the `output_mode` of the decoder."""
    if decoder.output_mode == "concat":
        return ops.concatenate([attended, hidden], axis=-1)
    return hidden if decoder.output_mode == "cell" else attended


def _read(decoder, memory, return_scores, training, noise, query, state, position):
    """Reads the memory in one step; `noise` are its random numbers."""
    attended, _ = decoder.attention._attend(
        query,
        memory,
        state=state,
        position=position,
        noise=noise,
        return_attention_scores=return_scores,
        training=training,
        drop=False,
    )
    return attended


def _sample_noise(decoder, inputs, memory, training):
    """Random numbers for the steps of an attention with a state, or None."""
    if not training or not decoder.attends_inside or not decoder.attention.has_state:
        return None
    return decoder.attention._sample_noise(memory, ops.shape(inputs[0])[0])


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


def _samples_in_step(decoder, sequences, memory, state, training):
    """Whether a step of the attention draws random numbers, as a `Dropout` in it does.

    Raises an error if the step assigns a weight.
    """
    attention = decoder.attention
    if not decoder.attends_inside:
        return False
    if attention.trainable:
        may_change = attention.non_trainable_variables
    else:  # its weights are frozen, not assigned
        may_change = generator_states(attention)
    # Only `sample_noise` in training, and `_drop_memory`, use the mixin's own generator.
    own = getattr(attention, "seed_generator", None)
    if own is not None and not (training and attention.has_state):
        may_change = [x for x in may_change if x is not own.state]
    if not may_change:
        return False
    noise = [None]

    def sample_noise():
        numbers = attention._sample_noise(memory, ops.shape(sequences)[1])
        noise[:] = [unflatten_as(numbers, [x[0] for x in leaves(numbers)])]

    if training and attention.has_state:
        changed_by(sample_noise, attention)
    batch, size = ops.shape(sequences)[0], query_size(decoder.cell, decoder.query)
    query = ops.zeros((batch, size), decoder.compute_dtype)

    def read():
        _read(decoder, memory, True, training, *noise, query, state.attention, state.position)

    changed = [variable for variable, *_ in changed_by(read, attention)]
    weights = {id(x) for x in attention.weights}  # generators are no weights
    assigned = {x.path for x in changed if id(x) in weights}
    if assigned:
        check_unchanged(attention.name, assigned)
    return bool(changed)
