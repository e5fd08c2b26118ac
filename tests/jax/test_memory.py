"""How many numbers the gradient stores on JAX, and how many both passes need while they run."""

import math

import jax
import keras
import numpy as np
import pytest

from keras_attention import AttentionRNN, BahdanauAttention, LuongAttention
from keras_attention.ops.additive import additive_score

B, TQ, TK, D, U = 2, 97, 311, 17, 13
LAYERS = {
    "additive": lambda: BahdanauAttention(U),
    "windows": lambda: LuongAttention("concat", "local-p", half_width=2),
}


def held(function, *inputs):
    """The size of the largest tensor that the backward pass keeps."""
    _, gradient = jax.vjp(function, *inputs)
    return max(math.prod(x.shape) for x in jax.tree.leaves(gradient))


def needed(function, *inputs):
    """The temporary numbers of both passes, compiled together."""
    outputs = jax.eval_shape(function, *inputs)
    run = jax.jit(lambda outputs, *inputs: jax.vjp(function, *inputs)[1](outputs))
    program = run.lower(outputs, *inputs).compile()
    return program.memory_analysis().temp_size_in_bytes // 4


def ones(*shapes):
    return [np.ones(shape, "float32") for shape in shapes]


def with_weights(layer, *shapes):
    """The layer as a function of its weights and inputs, and all of these."""
    layer.build(*shapes)
    weights = [weight.value for weight in layer.trainable_variables]
    others = [state.value for state in layer.non_trainable_variables]
    return lambda weights, *x: layer.stateless_call(weights, others, *x)[0], weights, *ones(*shapes)


@pytest.mark.parametrize("sizes", [(2, 64, 96, 128), (8, 20, 20, 128)])
def test_score(sizes):
    batch, steps, length, units = sizes
    score = ones((batch, steps, units), (batch, length, units), (units,))
    key = batch * length * units
    assert held(additive_score, *score) <= key
    assert held(jax.jit(additive_score), *score) <= key
    # Never all pairs.
    assert needed(additive_score, *score) <= math.prod(sizes) // 2


@pytest.mark.parametrize(("name", "stored", "temporary"), [
    ("additive", B * TQ * TK, B * TQ * TK * U // 2),
    ("windows", B * TK * D, B * TQ * TK),  # Not even the weights.
])  # fmt: skip
def test_layer(name, stored, temporary):
    layer = with_weights(LAYERS[name](), (B, TQ, D), (B, TK, D))
    assert held(*layer) <= stored
    assert needed(*layer) <= temporary


@pytest.mark.parametrize(("name", "size"), [("additive", 17), ("windows", 31)])
def test_decoder(name, size):
    """Its loop stores one memory, or one state for each memory step, for all steps together."""
    decoder = AttentionRNN(keras.layers.GRUCell(31), LAYERS[name](), query="previous")
    assert held(*with_weights(decoder, (2, 11, 3), (2, 211, 17))) <= 2 * 211 * size
