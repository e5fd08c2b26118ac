"""A loop over the first axis of tensors, on every backend."""

import math
from collections.abc import Callable, Iterable
from typing import Any

import keras
from keras import tree

from keras_attention._typing import Nested, Tensor
from keras_attention.backend.context import Place, in_graph
from keras_attention.backend.operations import ops

__all__ = ["Body", "leaves", "scan", "swap_steps", "tree_map", "unflatten_as", "where_valid"]

# body(carry, inputs of one step) -> (carry, outputs of the step)
Body = Callable[[Nested, Nested], tuple[Nested, Nested]]


def scan(
    body: Body,
    carry: Nested,
    inputs: Nested,
    reverse: bool = False,
    unroll: bool = False,
    steps: Tensor | None = None,
    differentiated: bool = True,
    all_needed: bool = False,
) -> tuple[Nested, Nested]:
    """Calls `carry, outputs = body(carry, inputs[t])` for every t.

    `ops.scan` has no gradient in a compiled TensorFlow graph, and loses outputs there whose
    structure is not that of the carry. This function has neither problem.

    Args:
        body: the function of one step. It returns the carry with the same shapes and dtypes.
        carry: any nesting of tensors and None, such as all other arguments and results.
        inputs: tensors with the steps on the first axis; there is at least one step.
        reverse: whether to run from the last step to the first.
        unroll: whether to copy the body for every step, instead of a loop.
        steps: how many steps to run, a scalar tensor, in code that TensorFlow compiles. By default
            all of the inputs. The outputs of the others are zero.
        differentiated: whether gradients may flow through the loop. Without, a TensorFlow graph
            traces the body once instead of twice.
        all_needed: whether all outputs will be read. Otherwise XLA may remove some.

    Returns:
        The last carry, and the outputs stacked on a first axis, in the order of the inputs.
    """
    backend = keras.backend.backend()
    if unroll or backend == "torch" or (backend == "tensorflow" and not in_graph()):
        return _scan_in_python(body, carry, inputs, reverse)
    if backend == "jax" and all_needed and Place.of(*leaves(inputs)).device == "gpu":
        return _scan_packed(body, carry, inputs, reverse)
    if backend == "jax":
        return ops.scan(body, carry, inputs, reverse=reverse)
    return _scan_in_graph(body, carry, inputs, reverse, steps, differentiated)


def leaves(structure: Nested) -> list[Any]:
    """The tensors of a structure, without None."""
    return [x for x in tree.flatten(structure) if x is not None]


def unflatten_as(structure: Nested, tensors: Iterable[Any]) -> Nested:
    """Puts the tensors into a structure of the same nesting: the inverse of `leaves`."""
    rest = iter(tensors)
    flat = [None if x is None else next(rest) for x in tree.flatten(structure)]
    return tree.pack_sequence_as(structure, flat)


def tree_map(function: Callable[..., Any], *structures: Nested) -> Nested:
    """Calls a function for the tensors of structures of the same nesting. None stays None."""
    if structures[0] is None:
        return None
    return tree.map_structure(lambda x, *y: None if x is None else function(x, *y), *structures)


def swap_steps(x: Tensor) -> Tensor:
    """Swaps the axes of samples and steps, the first two."""
    return ops.transpose(x, (1, 0, *range(2, len(x.shape))))


def where_valid(mask: Tensor | None, new: Nested, old: Nested) -> Nested:
    """The new states, and the old ones where the mask, `(B,)` or `(B, 1)`, is False."""
    if mask is None:
        return new
    pairs = zip(leaves(new), leaves(old), strict=True)
    kept = [ops.where(ops.reshape(mask, (-1, *[1] * (len(y.shape) - 1))), x, y) for x, y in pairs]
    return unflatten_as(new, kept)


def _scan_in_python(body, carry, inputs, reverse):
    steps = zip(*(ops.unstack(x, axis=0) for x in leaves(inputs)), strict=True)
    steps = [unflatten_as(inputs, step) for step in steps]
    collected = []
    for step in reversed(steps) if reverse else steps:
        carry, outputs = body(carry, step)
        collected.append(outputs)
    collected = collected[::-1] if reverse else collected
    columns = zip(*map(leaves, collected), strict=True)
    return carry, unflatten_as(collected[0], [ops.stack(column) for column in columns])


def _scan_packed(body, carry, inputs, reverse):
    """A loop with few outputs: on a GPU, a kernel of its own writes each output of a step."""
    made = []

    def packed(carry, x):
        carry, outputs = body(carry, x)
        made[:] = [outputs]
        return carry, [
            ops.concatenate([ops.reshape(x, (x.shape[0], -1)) for x in group], axis=1)
            if len(group) > 1
            else group[0]
            for group in _groups(outputs)
        ]

    carry, found = ops.scan(packed, carry, inputs, reverse=reverse)
    unpacked = {}
    for x, group in zip(found, _groups(made[0]), strict=True):
        start = 0
        for one in group:
            size = math.prod(one.shape[1:])
            part = x if len(group) == 1 else x[:, :, start : start + size]
            unpacked[id(one)], start = ops.reshape(part, (x.shape[0], *one.shape)), start + size
    return carry, unflatten_as(made[0], [unpacked[id(x)] for x in leaves(made[0])])


def _groups(outputs):
    """The tensors, each once, in groups of one dtype and one first size."""
    groups = {}
    for x in {id(x): x for x in leaves(outputs)}.values():
        groups.setdefault((x.dtype, x.shape[:1]), []).append(x)
    return list(groups.values())


def _scan_in_graph(body, carry, inputs, reverse, steps, differentiated):
    import tensorflow as tf

    first = leaves(inputs)
    size = tf.shape(first[0])[0]
    steps = size if steps is None else steps
    # Tensor arrays have cheaper gradients than slices.
    given = [tf.TensorArray(x.dtype, size, element_shape=x.shape[1:]).unstack(x) for x in first]
    carried = leaves(carry)
    structure = []

    def flat(carried, step):
        new, outputs = body(unflatten_as(carry, carried), unflatten_as(inputs, step))
        structure[:] = [outputs]
        for old, x in zip(carried, leaves(new), strict=True):
            x.set_shape(old.shape)
        return leaves(new), leaves(outputs)

    # The arrays for the outputs need their shapes before the loop.
    specs = [tf.TensorSpec(x.shape, x.dtype) for x in carried]
    of_step = [tf.TensorSpec(x.shape[1:], x.dtype) for x in first]
    traced = tf.function(flat, autograph=False).get_concrete_function(specs, of_step)
    made = [
        tf.TensorArray(x.dtype, size, element_shape=x.shape) for x in traced.structured_outputs[1]
    ]
    # The gradient of a call would store more for every step than that of its operations.
    step = flat if differentiated else traced

    def advance(t, carried, made):
        at = steps - 1 - t if reverse else t
        carried, outputs = step(carried, [x.read(at) for x in given])
        return t + 1, carried, [x.write(at, y) for x, y in zip(made, outputs, strict=True)]

    _, carried, made = tf.while_loop(
        lambda t, *_: t < steps,
        advance,
        (tf.constant(0), carried, made),
        maximum_iterations=size,
    )
    outputs = [x.stack() for x in made]
    for x in outputs:
        x.set_shape((first[0].shape[0], *x.shape[1:]))
    return unflatten_as(carry, carried), unflatten_as(structure[0], outputs)
