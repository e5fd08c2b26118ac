"""Random numbers in the steps of a loop.

JAX cannot assign to a random generator inside a loop, so the states of all steps are made before
the loop. With the same states, a step draws the same numbers again in its backward pass.
"""

import contextlib
from collections.abc import Iterator

import keras
from keras import ops

from keras_attention._typing import Size, Tensor
from keras_attention.ops._graphs import value_of

DRAWS = 64  # calls of a generator in a step, at most


def generator_states(layer: keras.layers.Layer, steps: Size) -> list[Tensor]:
    """One state for every step and random generator of the layer, `(T, 2)`.

    Afterwards the generators continue after the last of these states.
    """
    step = ops.arange(steps + 1, dtype="int32")
    moves = ops.stack([ops.zeros_like(step), DRAWS * step], axis=1)
    found = []
    for generator in _generators(layer):
        states = value_of(generator) + ops.cast(moves, generator.dtype)
        generator.assign(states[-1])
        found.append(states[:-1])
    return found


@contextlib.contextmanager
def drawing_from(layer: keras.layers.Layer, states: list[Tensor]) -> Iterator[None]:
    """Inside, the random generators of the layer have these states, if there are any."""
    if not states:
        yield
        return
    values = [(x, value_of(x)) for x in layer.weights]
    with keras.StatelessScope([*values, *zip(_generators(layer), states, strict=True)]):
        yield


def _generators(layer):
    weights = {id(x) for x in layer.weights}
    return [x for x in layer.variables if id(x) not in weights]
