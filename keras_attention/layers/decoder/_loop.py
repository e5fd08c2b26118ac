"""The loop of a decoder over its steps."""

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import keras
from keras import ops, tree

from keras_attention._place import compiling
from keras_attention._spec import is_floating
from keras_attention._typing import Tensor
from keras_attention.layers.decoder._cells import (
    DropoutMasks,
    check_output,
    query_of,
    query_size,
    with_constant_weights,
)
from keras_attention.layers.decoder._sites import (
    CellSites,
    attention_site,
    attention_site_with_state,
    has_sites,
)
from keras_attention.layers.types import Attended, DecoderState, Memory
from keras_attention.ops.loops import leaves, map_leaves, pack_like, swap_steps, where_valid
from keras_attention.ops.masks import blanked
from keras_attention.ops.random import changed_by, generator_states, scan_drawing
from keras_attention.ops.xla import pad_axis, round_up_length
from keras_attention.recurrence import recur, runs_alone


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
    output, carry, weights = _one_step(decoder, _called(decoder), read, inputs, carry, position)
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
    sited = has_sites(decoder.cell, training) and all(map(is_floating, leaves(state.attention)))
    sited = sited and not _draws(decoder, sequences, memory, state, training)
    run = _run_sites if sited else _run_any
    with compiling(True if training else None):
        carry, outputs = run(decoder, inputs, memory, state[:3], return_scores, training)
    outputs, weights = map_leaves(swap_steps, outputs)
    if not decoder.attends_inside:
        options = {"position": position} if decoder.attention.uses_position else {}
        (attended, _, weights), _ = decoder.attention._attend(
            outputs,
            memory,
            query_mask=mask,
            return_attention_scores=return_scores,
            training=training,
            **options,
        )
        outputs = _joined(decoder, outputs, attended)
    outputs = blanked(outputs, mask)
    weights = map_leaves(lambda x: blanked(x, mask), weights) if return_scores else None
    return outputs, weights, DecoderState(*carry, last)


def _draws(decoder, sequences, memory, state, training):
    """Whether the attention draws random numbers in its steps, such as by a `Dropout` layer."""
    attention = decoder.attention
    # The mixin's own generator serves training alone, and `_drop_memory`.
    own = getattr(attention, "seed_generator", None)
    serves = own is not None and not (training and attention.has_state)
    others = [x for x in attention.non_trainable_variables if not serves or x is not own.state]
    if not attention.trainable:  # its weights are frozen, not assigned
        states = {id(x) for x in generator_states(attention)}
        others = [x for x in others if id(x) in states]
    if not decoder.attends_inside or not others:
        return False
    drawn = []

    def draw():
        numbers = attention._draw(memory, ops.shape(sequences)[1])
        drawn.append(pack_like(numbers, [x[0] for x in leaves(numbers)]))

    if training and attention.has_state:
        changed_by(draw, attention)
    batch, size = ops.shape(sequences)[0], query_size(decoder.cell, decoder.query)
    query = ops.zeros((batch, size), decoder.compute_dtype)
    read = _read(decoder, memory, True, training, drawn[0] if drawn else None)
    changed = changed_by(lambda: read(query, state.attention, state.position), attention)
    weights = {id(x) for x in attention.weights}
    assigned = {variable.path for variable, *_ in changed if id(variable) in weights}
    if assigned:
        raise ValueError(change_error(decoder.name, attention, assigned))
    return bool(changed)


def _run_sites(decoder, inputs, memory, carry, return_scores, training):
    """The loop over cells with sites, which has a gradient of its own."""
    if training and runs_alone(inputs[0], *leaves(memory.value)):
        return _run_padded(decoder, inputs, memory, carry, return_scores)
    return _recur(decoder, inputs, memory, carry, return_scores, training)


def _run_padded(decoder, inputs, memory, carry, return_scores):
    """Rounds unknown numbers of steps up, so that XLA compiles few programs for all lengths."""
    steps = ops.shape(inputs[0])[0]
    inputs = [None if x is None else pad_axis(x, 0, _missing(steps)) for x in inputs]
    lengths = map_leaves(lambda x: ops.shape(x)[1], memory.value)
    missing = map_leaves(_missing, lengths)

    def masked(x, mask, more):
        known = isinstance(more, int) or mask is not None
        return mask if known else ops.ones(ops.shape(x)[:2], "bool")

    mask = tree.map_structure(masked, memory.value, memory.mask, missing)
    memory = Memory(
        *(map_leaves(lambda x, more: pad_axis(x, 1, more), x, missing) for x in memory[:2]),
        map_leaves(lambda x, more: pad_axis(x, 1, more), mask, missing),
    )
    limit = None if isinstance(steps, int) else steps
    cells, fed, kept = carry
    (cells, fed, last), (outputs, weights) = _recur(
        decoder,
        inputs,
        memory,
        (cells, fed, _like_memory(decoder, kept, memory)),
        return_scores,
        True,
        limit,
    )
    weights = map_leaves(lambda x, n: x[:steps, :, :n], weights, lengths)
    cut = [
        x[(slice(None), *map(slice, ops.shape(y)[1:]))]
        for x, y in zip(leaves(last), leaves(kept), strict=True)
    ]
    return (cells, fed, pack_like(kept, cut)), (outputs[:steps], weights)


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


def _recur(decoder, inputs, memory, carry, return_scores, training, steps=None):
    sequences, mask, position = inputs
    attention, inside = decoder.attention, decoder.attends_inside
    cells = CellSites(decoder.cell, sequences, decoder._fed_size, training)
    sites = dict(cells.sites)
    drawn = _draw(decoder, inputs, memory, training)
    if inside and attention.has_state:
        site = attention_site_with_state(decoder, memory, carry[2], drawn, training)
        sites["attention"] = site
    elif inside:
        sites["attention"] = attention_site(decoder, memory, return_scores)
    combining = attention._combine_site() if inside else None
    if combining is not None:
        sites["combine"] = combining
    if not attention.uses_position or not inside:
        position = None
    count = len(leaves(memory.value))

    def step(call, carry, x):
        x, drawn = x

        def read(query, state, position):
            at = [] if position is None else [position]
            context, *more = call("attention", query, *leaves(state), *leaves(drawn), *at)
            output = context if combining is None else call("combine", query, context)[0]
            weights = pack_like(memory.value, more) if more else None
            return Attended(output, pack_like(state, more[count:]), weights)

        def run(_, fed, states):
            return cells(call, fed, states)

        return _masked_step(decoder, run, read if inside else None, carry, x)

    # The sites hold the products of the sequences.
    inputs = (None, mask, position), drawn
    return recur(step, sites, carry, inputs, decoder.unroll, bool(training), steps)


def _run_any(decoder, inputs, memory, carry, return_scores, training):
    """The loop over any other cell, which TensorFlow or JAX differentiates."""
    drawn = _draw(decoder, inputs, memory, training)

    def step(carry, x):
        inputs, drawn = x
        read = None
        if decoder.attends_inside:
            read = _read(decoder, memory, return_scores, training, drawn)
        return _masked_step(decoder, _called(decoder), read, carry, inputs)

    given = tuple(inputs), drawn

    def run():
        return scan_drawing(step, carry, given, decoder, decoder.unroll)

    sequences = inputs[0]
    size = sequences.shape[-1] + decoder._fed_size
    with DropoutMasks(decoder.cell, ops.shape(sequences)[1], size):
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


def _masked_step(decoder, run, read, carry, x):
    """A step of the loop. Where it is masked, the states stay."""
    inputs, mask, position = x
    if read is None:
        output, states = run(inputs, None, carry[0])
        new, weights = (states, *carry[1:]), None
    else:
        output, new, weights = _one_step(decoder, run, read, inputs, carry, position)
    return where_valid(mask, new, carry), (output, weights)


def _one_step(decoder, run, read, inputs, carry, position):
    """Attends before or after the cell. Returns the output, the new carry and the weights."""
    states, fed, kept = carry
    if decoder.query == "previous":
        attended, kept, weights = read(query_of(decoder.cell, states), kept, position)
        hidden, states = run(inputs, attended, states)
    else:
        hidden, states = run(inputs, fed, states)
        attended, kept, weights = read(hidden, kept, position)
        fed = attended if decoder.input_feeding else None
    return _joined(decoder, hidden, attended), (states, fed, kept), weights


def _joined(decoder, hidden, attended):
    """What a step returns, by the `output_mode` of the decoder."""
    if decoder.output_mode == "concat":
        return ops.concatenate([attended, hidden], axis=-1)
    return hidden if decoder.output_mode == "cell" else attended


def _read(decoder, memory, return_scores, training, drawn):
    """Reads the memory in one step."""

    def read(query, kept, position):
        options = {"position": position} if decoder.attention.uses_position else {}
        attended, _ = decoder.attention._attend(
            query,
            memory,
            state=kept,
            drawn=drawn,
            return_attention_scores=return_scores,
            training=training,
            drop=False,
            **options,
        )
        return attended

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


@contextlib.contextmanager
def refuse_changes(layer: str, attention: keras.layers.Layer) -> Iterator[None]:
    """Raises an error if the attention keeps anything in its attributes during a loop."""
    before = _attributes(attention)
    yield
    after = _attributes(attention)
    changed = {name for name in {*before, *after} if not _same(before.get(name), after.get(name))}
    if changed:
        raise ValueError(change_error(layer, attention, changed))


def change_error(layer: str, attention: keras.layers.Layer, changed: set[str]) -> str:
    """Says what an attention changed, and what to do instead."""
    return (
        f"{layer}: the attention {attention.name} changed {', '.join(sorted(changed))} during a "
        "step. An attention in a decoder must not keep anything between steps: the loop traces one "
        "step and repeats it, so the change is lost. Derive from RecurrentScoringMixin, and return "
        "from `next_state` what must last."
    )


def _attributes(layer, prefix="") -> dict[str, list[Tensor]]:
    """What a layer, and the layers that it holds, keep in attributes."""
    kept = {}
    for name, value in vars(layer).items():
        if isinstance(value, keras.layers.Layer):
            kept |= _attributes(value, f"{prefix}{name}.")
        elif name not in _of_keras():
            kept[prefix + name] = tree.flatten(value)
    return kept


def _same(first, second):
    if first is None or second is None or len(first) != len(second):
        return False
    return [*map(id, first)] == [*map(id, second)]


@functools.cache
def _of_keras():
    """What Keras itself keeps in the attributes of a layer."""
    return set(vars(keras.layers.Layer(name="layer")))
