"""Finds what an attention changes in a step: attributes, weights and random generators.

A loop traces one step and repeats it. What the step keeps in an attribute or assigns to a weight is
lost, so both are refused.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import keras
from keras import ops, tree

from keras_attention._typing import Tensor
from keras_attention.layers.decoder._cells import query_size
from keras_attention.layers.types import DecoderState, Memory
from keras_attention.ops.loops import leaves, pack_like
from keras_attention.ops.random import changed_by, generator_states


@contextlib.contextmanager
def refuse_changes(layer: str, attention: keras.layers.Layer) -> Iterator[None]:
    """Raises an error if the attention keeps anything in its attributes during a loop."""
    before = _attributes(attention)
    yield
    after = _attributes(attention)
    changed = {name for name in {*before, *after} if not _same(before.get(name), after.get(name))}
    if changed:
        raise ValueError(_change_error(layer, attention, changed))


def changed_in_a_step(
    decoder: Any,
    sequences: Tensor,
    memory: Memory,
    state: DecoderState,
    training: bool | None,
    read: Callable,
) -> list[keras.Variable]:
    """The variables that a step of the attention changes, such as the generator of a `Dropout`.

    Args:
        state: before the first step.
        read: makes from the random numbers of a step the function that attends, as for a loop.
    """
    attention = decoder.attention
    if not decoder.attends_inside:
        return []
    if attention.trainable:
        may_change = attention.non_trainable_variables
    else:  # its weights are frozen, not assigned
        may_change = generator_states(attention)
    # Only `draw` in training, and `_drop_memory`, use the mixin's own generator.
    own = getattr(attention, "seed_generator", None)
    if own is not None and not (training and attention.has_state):
        may_change = [x for x in may_change if x is not own.state]
    if not may_change:
        return []
    drawn = []

    def draw():
        numbers = attention._draw(memory, ops.shape(sequences)[1])
        drawn.append(pack_like(numbers, [x[0] for x in leaves(numbers)]))

    if training and attention.has_state:
        changed_by(draw, attention)
    batch, size = ops.shape(sequences)[0], query_size(decoder.cell, decoder.query)
    query = ops.zeros((batch, size), decoder.compute_dtype)
    attend = read(drawn[0] if drawn else None)
    changed = changed_by(lambda: attend(query, state.attention, state.position), attention)
    return [variable for variable, *_ in changed]


def refuse_assigned(layer: str, attention: keras.layers.Layer, changed: list) -> None:
    """Raises an error if a step has changed a weight. Generators are no weights."""
    weights = {id(x) for x in attention.weights}
    assigned = {x.path for x in changed if id(x) in weights}
    if assigned:
        raise ValueError(_change_error(layer, attention, assigned))


def _change_error(layer: str, attention: keras.layers.Layer, changed: set[str]) -> str:
    """Says what an attention changed, and what to do instead."""
    return (
        f"{layer}: the attention {attention.name} changed {', '.join(sorted(changed))} during a "
        "step. An attention in a decoder must not keep anything between steps: the loop traces one "
        "step and repeats it, so the change is lost. Derive from RecurrentScoringMixin, and return "
        "from `next_state` what must last."
    )


def _attributes(layer, prefix="", visited=()) -> dict[str, list[Tensor]]:
    """What a layer, and the layers that it holds, alone or in a list, keep in attributes."""
    kept, visited = {}, {*visited, id(layer)}
    for name, value in vars(layer).items():
        if name in _of_keras():
            continue
        kept[prefix + name] = values = tree.flatten(value)
        for n, one in enumerate(values):
            if isinstance(one, keras.layers.Layer) and id(one) not in visited:
                place = f"{name}[{n}]" if tree.is_nested(value) else name
                kept |= _attributes(one, f"{prefix}{place}.", visited)
    return kept


def _same(first, second):
    if first is None or second is None or len(first) != len(second):
        return False
    return [*map(id, first)] == [*map(id, second)]


@functools.cache
def _of_keras():
    """What Keras itself keeps in the attributes of a layer."""
    return set(vars(keras.layers.Layer(name="layer")))
