"""Padding of dynamic sizes: an empty batch, no steps, and the length of a memory for XLA."""

import functools

from keras import tree

from keras_attention._typing import Nested, Tensor
from keras_attention.attention.types import DecoderAttention, DecoderState, Memory
from keras_attention.backend import leaves, ops, tree_map, unflatten_as
from keras_attention.ops.padding import pad_axis, round_up_length


def pad_empty(
    sequences: Tensor, memory: Memory, state: DecoderState, mask: Tensor | None
) -> tuple[Tensor, Memory, DecoderState, Tensor | None]:
    """Add a sample of zeros to an empty batch, and a step to no steps, for a loop to run.

    `cut_empty` removes them from the results, so gradients exist.
    """
    tensors = sequences, memory, state, mask
    if 0 in (sequences.shape[0], leaves(memory.value)[0].shape[0]):
        zeros = tree_map(lambda x: ops.zeros((1, *ops.shape(x)[1:]), x.dtype), tensors)
        sequences, memory, state, mask = zeros
    if not sequences.shape[1]:  # no steps, or an unknown number
        steps = ops.shape(sequences)[1]
        missing = 1 if sequences.shape[1] == 0 else ops.maximum(1 - steps, 0)
        sequences = pad_axis(sequences, 1, missing)
        mask = tree_map(lambda x: pad_axis(x, 1, missing), mask)
    return sequences, memory, state, mask


def cut_empty(
    sequences: Tensor,
    memory: Memory,
    state: DecoderState,
    results: tuple[Tensor, Nested, DecoderState],
) -> tuple[Tensor, Nested, DecoderState]:
    """Return the results of a loop without what `pad_empty` added.

    Args:
        sequences, memory, state: as before `pad_empty`.
        results: the outputs, the weights and the last state.
    """
    if 0 in (sequences.shape[0], leaves(memory.value)[0].shape[0]):
        results = tree_map(lambda x: x[:0], results)
    outputs, weights, last = results
    if sequences.shape[1]:
        return outputs, weights, last
    steps = ops.shape(sequences)[1]
    last = tree_map(lambda x, y: ops.where(steps > 0, x, y), last, state)
    return outputs[:, :steps], tree_map(lambda x: x[:, :steps], weights), last


def pad_memory(attention: DecoderAttention, memory: Memory, carry: tuple) -> tuple[Memory, tuple]:
    """Round the length of a memory up if it is unknown, and the state of its attention with it.

    XLA then compiles few programs for all lengths. `cut_memory` removes the padding.
    """
    padded = _pad_values(memory)
    (cells, fed, state), first = carry, leaves(attention._state(padded))
    if attention.has_state:
        grown = [_pad_to(x, ops.shape(y)) for x, y in zip(leaves(state), first, strict=True)]
        state = unflatten_as(state, grown)
    return padded, (cells, fed, state)


def cut_memory(memory: Memory, carry: tuple, last: tuple, outputs: tuple) -> tuple[tuple, tuple]:
    """Return the last carry and the outputs of a loop without what `pad_memory` added."""
    (cells, fed, state), (outputs, weights) = last, outputs
    weights = tree_map(lambda x, y: x[:, :, : ops.shape(y)[1]], weights, memory.value)
    state = tree_map(lambda x, y: x[(slice(None), *map(slice, ops.shape(y)[1:]))], state, carry[2])
    return (cells, fed, state), (outputs, weights)


def _pad_to(x, sizes):
    for axis in range(1, len(sizes)):
        x = pad_axis(x, axis, sizes[axis] - ops.shape(x)[axis])
    return x


def _pad_values(memory):
    if tree.is_nested(memory.value):  # several memories
        each = map(_pad_values, map(Memory, *memory))
        return Memory(*map(list, zip(*each, strict=True)))
    length, mask = ops.shape(memory.value)[1], memory.mask
    if isinstance(length, int):
        return memory
    missing = round_up_length(length) - length
    mask = ops.ones(ops.shape(memory.value)[:2], "bool") if mask is None else mask
    pad = functools.partial(pad_axis, axis=1, count=missing)
    return Memory(*map(pad, (memory.key, memory.value, mask)))
