"""What tests need of a backend, on TensorFlow, JAX and PyTorch."""

import keras
import pytest
from keras import ops

from keras_attention.backend import ops as exact

BACKEND = keras.backend.backend()
XLA = BACKEND != "torch"  # whether XLA compiles for this backend

# On JAX and PyTorch the layers of Keras round float64, which would hide whether ours do.
if BACKEND != "tensorflow":
    held = "Dense", "GRUCell", "LSTMCell", "SimpleRNNCell", "Attention", "AdditiveAttention"
    for function in (*(getattr(keras.layers, x).build for x in held), keras.activations.tanh):
        function.__globals__["ops"] = exact


def tensor(x, dtype=None):
    return ops.convert_to_tensor(x, dtype or keras.backend.standardize_dtype(x.dtype))


def dtypes(*tensors):
    return [keras.backend.standardize_dtype(x.dtype) for x in tensors]


def only_on(*backends, reason):
    skipped = BACKEND not in backends
    return pytest.mark.skipif(skipped, reason=f"{' and '.join(backends)} only: {reason}")


def compiled(function, jit=True):
    """The function, compiled with XLA if `jit`. PyTorch runs it as it is."""
    if not jit or BACKEND == "torch":
        return function
    if BACKEND == "jax":
        import jax

        return jax.jit(function)
    import tensorflow as tf

    return tf.function(function, jit_compile=True)


def graphs(graph):
    return [graph, *(graph._get_function(name).graph for name in graph._functions)]


on_tensorflow = only_on("tensorflow", reason="it builds a graph of TensorFlow")


def gradients_by(function, inputs, variables, jit=False):
    """Outputs of a function, and gradients of its loss by inputs and variables.

    Args:
        function: takes the inputs, returns `(loss, outputs)`.
        inputs: floating-point arrays.
        variables: trainable variables of Keras.
        jit: whether XLA compiles the function. PyTorch runs it as it is.
    """
    inputs = [tensor(x) for x in inputs]
    return {"tensorflow": _by_tape, "jax": _by_jax, "torch": _by_torch}[BACKEND](
        function, inputs, variables, jit
    )


def _by_tape(function, inputs, variables, jit):
    import tensorflow as tf

    def run(*inputs):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            loss, outputs = function(*inputs)
        values = [variable.value for variable in variables]
        return outputs, tape.gradient(loss, [*inputs, *values], unconnected_gradients="zero")

    return compiled(run, jit)(*inputs)


def _by_jax(function, inputs, variables, jit):
    import jax

    def run(inputs, values):
        values = list(zip(variables, values, strict=True))
        with keras.StatelessScope(values, collect_losses=True):
            return function(*inputs)

    run = jax.value_and_grad(run, argnums=(0, 1), has_aux=True)
    values = [variable.value for variable in variables]
    (_, outputs), (of_inputs, of_values) = compiled(run, jit)(inputs, values)
    return outputs, [*of_inputs, *of_values]


def _by_torch(function, inputs, variables, jit):
    import torch

    inputs = [x.detach().requires_grad_() for x in inputs]
    values = [variable.value for variable in variables]
    loss, outputs = function(*inputs)
    found = torch.autograd.grad(loss, [*inputs, *values], allow_unused=True)
    pairs = zip([*inputs, *values], found, strict=True)
    return outputs, [torch.zeros_like(x) if g is None else g for x, g in pairs]
