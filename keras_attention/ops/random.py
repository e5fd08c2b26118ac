"""Random sampling inside a loop."""

from collections.abc import Callable

import keras

from keras_attention._typing import Nested
from keras_attention.backend import Body, execution_context, leaves, ops, scan, unflatten_as

__all__ = ["changed_by", "generator_states", "scan_with_random_state"]


def generator_states(layer: keras.layers.Layer) -> list[keras.Variable]:
    """Return the states of all random generators of a layer, such as that of a `Dropout` in it."""
    weights = {id(x) for x in layer.weights}
    others = [x for x in layer.variables if id(x) not in weights]
    return [x for x in others if "int" in x.dtype and tuple(x.shape) == (2,)]


def changed_by(run: Callable[[], Nested], layer: keras.layers.Layer) -> list[tuple[Nested, ...]]:
    """List which variables a function changes: `(variable, value before, value after)` for each.

    The function runs once, but the variables of the layer keep their values.
    """
    variables = layer.non_trainable_variables
    if not variables:
        return []
    with keras.StatelessScope([(x, x.value) for x in layer.variables]) as scope:
        before = [scope.get_current_value(x) for x in variables]
        run()
    after = [scope.get_current_value(x) for x in variables]
    states = zip(variables, before, after, strict=True)
    return [(variable, old, new) for variable, old, new in states if new is not old]


def scan_with_random_state(
    body: Body, carry: Nested, inputs: Nested, layer: keras.layers.Layer, unroll: bool = False
) -> tuple[Nested, Nested]:
    """Call `scan` with a body that may draw new random numbers in every step."""
    if unroll or not execution_context().traces_loops or not generator_states(layer):
        return scan(body, carry, inputs, unroll=unroll)
    first = unflatten_as(inputs, [x[0] for x in leaves(inputs)])
    states = {id(x) for x in generator_states(layer)}
    changed = [x for x in changed_by(lambda: body(carry, first), layer) if id(x[0]) in states]
    if not changed:
        return scan(body, carry, inputs)
    # A loop cannot keep what its body assigns where Keras holds variables as values: on JAX, and in
    # a functional model. So each step gets the states that the step before would have left.
    steps = ops.shape(leaves(inputs)[0])[0]
    number = ops.expand_dims(ops.arange(steps, dtype=changed[0][1].dtype), 1)
    starts = [old + number * (new - old) for _, old, new in changed]
    states = [state for state, *_ in changed]
    drawing = {id(x) for x in states}
    others = [x for x in layer.variables if id(x) not in drawing]
    values = [x.value for x in others]

    def step(carry, x):
        inputs, starts = x
        pairs = zip([*others, *states], [*values, *starts], strict=True)
        with keras.StatelessScope(list(pairs)) as scope:
            result = body(carry, inputs)
        for variable, old in zip(others, values, strict=True):
            new = scope.get_current_value(variable)
            if new is not old:
                variable.assign(new)
        return result

    result = scan(step, carry, (inputs, starts))
    for state, old, new in changed:
        state.assign(old + ops.cast(steps, old.dtype) * (new - old))
    return result
