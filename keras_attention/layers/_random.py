"""A loop whose steps draw random numbers."""

from typing import Any

import keras

from keras_attention._typing import Nested
from keras_attention.ops._graphs import value_of
from keras_attention.ops._loops import Body, scan


def random_scan(
    layer: keras.layers.Layer, body: Body, carry: Nested, inputs: Nested, **options: Any
) -> tuple[Nested, Nested]:
    """Calls `scan`. The body may use the random generators of the layer, at every step anew.

    JAX cannot assign to a generator inside a loop, so the loop carries the states of generators.
    """
    weights = {id(x) for x in layer.weights}
    states = [x for x in layer.variables if id(x) not in weights]
    if not states:
        return scan(body, carry, inputs, **options)
    values = [(x, value_of(x)) for x in layer.variables]

    def drawing(carry, inputs):
        seeds, carry = carry
        with keras.StatelessScope([*values, *zip(states, seeds, strict=True)]) as scope:
            carry, outputs = body(carry, inputs)
            return ([scope.get_current_value(x) for x in states], carry), outputs

    seeds = [value_of(x) for x in states]
    (seeds, carry), outputs = scan(drawing, (seeds, carry), inputs, **options)
    for state, seed in zip(states, seeds, strict=True):
        state.assign(seed)
    return carry, outputs
