"""Tensors in any nesting of tuples, lists and dictionaries."""

import functools
import itertools
import math
import operator
from collections.abc import Callable, Iterable
from typing import TypeAlias

import keras
from keras import tree

from keras_attention._typing import Nested, Size, Tensor

# body(carry, inputs of one step) -> (carry, outputs of the step)
Body: TypeAlias = Callable[[Nested, Nested], tuple[Nested, Nested]]
# A function of tensors in any nesting.
Function: TypeAlias = Callable[..., Nested]

_IS_TENSOR = functools.partial(operator.is_not, None)


def leaves(structure: Nested) -> list[Tensor]:
    """Return the tensors of a structure, without None."""
    return list(filter(_IS_TENSOR, tree.flatten(structure)))


def unflatten_as(structure: Nested, tensors: Iterable[Tensor]) -> Nested:
    """Put the tensors into a structure of the same nesting: the inverse of `leaves`."""
    rest = iter(tensors)
    flat = [None if x is None else next(rest) for x in tree.flatten(structure)]
    return tree.pack_sequence_as(structure, flat)


def tree_map(function: Function, *structures: Nested) -> Nested:
    """Call a function for the tensors of structures of the same nesting. None stays None."""
    if structures[0] is None:
        return None
    return tree.map_structure(lambda x, *y: None if x is None else function(x, *y), *structures)


def swap_steps(x: Tensor) -> Tensor:
    """Swap the axes of samples and steps, the first two."""
    return keras.ops.transpose(x, (1, 0, *range(2, len(x.shape))))


def where_valid(mask: Tensor | None, new: Nested, old: Nested) -> Nested:
    """Return the new states, and the old ones where the mask, `(B,)` or `(B, 1)`, is False."""
    if mask is None:
        return new
    chosen = []
    for x, y in zip(leaves(new), leaves(old), strict=True):
        valid = keras.ops.reshape(mask, (-1, *[1] * (len(y.shape) - 1)))
        chosen.append(keras.ops.where(valid, x, y))
    return unflatten_as(new, chosen)


def flat_index(row: Tensor, length: Size) -> Tensor:
    """Return the indices of rows in the samples flattened to one sequence of rows."""
    index: Tensor = keras.ops.convert_to_tensor(row)
    batch, *others = list(keras.ops.shape(index) or ())
    first: Tensor = keras.ops.arange(batch, dtype="int32")
    # Not `ops.add`: on TensorFlow, Keras 3.15 takes `(B, 1)` for a bias if B is the size of a row.
    return index + keras.ops.reshape(first * length, (-1, *[1] * len(others)))


def unroll(body: Body, carry: Nested, inputs: Nested, reverse: bool) -> tuple[Nested, Nested]:
    """Call the body of `scan` for every step, without a loop of the backend."""
    steps = zip(*(keras.ops.unstack(x, axis=0) for x in leaves(inputs)), strict=True)
    steps = [unflatten_as(inputs, step) for step in steps]
    collected = []
    for step in reversed(steps) if reverse else steps:
        carry, outputs = body(carry, step)
        collected.append(outputs)
    collected = collected[::-1] if reverse else collected
    columns = zip(*map(leaves, collected), strict=True)
    return carry, unflatten_as(collected[0], [keras.ops.stack(column) for column in columns])


def scan_packed(scan: Function, body: Body, carry: Nested, inputs: Nested) -> tuple[Nested, Nested]:
    """Call a `scan` with few outputs: on a GPU, each output of a step is a kernel of its own.

    Outputs `(B, ...)` of one dtype and of known features become one tensor, `(B, features)`.
    """
    structure: list[Nested] = []

    def packed(carry, x):
        carry, outputs = body(carry, x)
        structure[:] = [outputs]
        return carry, [
            keras.ops.concatenate([keras.ops.reshape(x, (-1, _size(x))) for x in group], axis=1)
            if len(group) > 1
            else group[0]
            for group in _groups(outputs)
        ]

    carry, results = scan(packed, carry, inputs)
    unpacked = {}
    for x, group in zip(results, _groups(structure[0]), strict=True):
        if len(group) == 1:
            unpacked[id(group[0])] = x
            continue
        ends = [*itertools.accumulate(map(_size, group))]
        parts: Nested = keras.ops.split(x, ends[:-1], axis=2)
        steps, batch = list(keras.ops.shape(x) or ())[:2]
        for one, part in zip(group, parts, strict=True):
            unpacked[id(one)] = keras.ops.reshape(part, (steps, batch, *one.shape[1:]))
    return carry, unflatten_as(structure[0], [unpacked[id(x)] for x in leaves(structure[0])])


def _groups(outputs):
    """List the tensors, each once, in groups to pack."""
    groups = {}
    for x in {id(x): x for x in leaves(outputs)}.values():
        alone = not x.shape or None in x.shape[1:]
        groups.setdefault(id(x) if alone else (x.dtype, x.shape[0]), []).append(x)
    return list(groups.values())


def _size(x):
    return math.prod(x.shape[1:])
