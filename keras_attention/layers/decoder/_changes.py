"""Notices an attention that changes while a decoder runs."""

import contextlib
from collections.abc import Iterator

import keras
from keras import tree

from keras_attention._typing import Tensor


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
    found = {}
    for name, value in vars(layer).items():
        if isinstance(value, keras.layers.Layer):
            found |= _attributes(value, f"{prefix}{name}.")
        elif name not in _OF_KERAS:
            found[prefix + name] = tree.flatten(value)
    return found


def _same(first, second):
    if first is None or second is None or len(first) != len(second):
        return False
    return all(x is y for x, y in zip(first, second, strict=True))


_OF_KERAS = set(vars(keras.layers.Layer()))
