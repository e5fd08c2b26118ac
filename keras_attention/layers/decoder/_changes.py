"""Notices an attention that changes while a decoder runs."""

import contextlib

import keras
from keras import tree


@contextlib.contextmanager
def refuse_changes(layer, attention):
    """Raises an error if the attention keeps anything from one step for the next."""
    before = _attributes(attention)
    # An assignment to a weight shows in a scope that holds its value; few attentions need one.
    variables = attention.variables if attention.non_trainable_weights else []
    scope = keras.StatelessScope([(x, x.value) for x in variables])
    given = [scope.get_current_value(x) for x in variables]
    with scope if variables else contextlib.nullcontext():
        yield
    after = _attributes(attention)
    changed = {name for name in {*before, *after} if not _same(before.get(name), after.get(name))}
    weights = {id(x) for x in attention.weights}
    for variable, old in zip(variables, given, strict=True):
        new = scope.get_current_value(variable)
        if new is not old and id(variable) in weights:
            changed.add(variable.path)
        elif new is not old:  # the state of a random generator
            variable.assign(new)
    if changed:
        raise ValueError(
            f"{layer}: the attention {attention.name} changed {', '.join(sorted(changed))} during "
            "a step. An attention in a decoder must not keep anything between steps: the loop "
            "traces one step and repeats it, so the change is lost. Derive from "
            "RecurrentScoringMixin, and return from `next_state` what must last."
        )


def _attributes(layer, prefix=""):
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
