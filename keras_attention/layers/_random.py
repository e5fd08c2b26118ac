"""A loop whose steps draw random numbers."""

import keras

from keras_attention._typing import Nested
from keras_attention.ops._graphs import value_of
from keras_attention.ops._loops import Body, scan


def draws_random_numbers(layer: keras.layers.Layer) -> bool:
    """Whether the layer has random generators."""
    return len(layer.variables) > len(layer.weights)


def random_scan(
    layer: keras.layers.Layer, body: Body, carry: Nested, inputs: Nested, unroll: bool
) -> tuple[Nested, Nested]:
    """Calls `scan`. Every step may draw new numbers from the random generators of the layer.

    JAX cannot assign to a generator inside a loop, so the loop carries what the steps may assign.
    """
    states = layer.non_trainable_variables
    values = [(x, value_of(x)) for x in layer.variables]

    def drawing(carry, inputs):
        now, carry = carry
        with keras.StatelessScope([*values, *zip(states, now, strict=True)]) as scope:
            carry, outputs = body(carry, inputs)
            return ([scope.get_current_value(x) for x in states], carry), outputs

    now = [value_of(x) for x in states]
    (now, carry), outputs = scan(drawing, (now, carry), inputs, unroll=unroll)
    for state, value in zip(states, now, strict=True):
        state.assign(value)
    return carry, outputs
