"""Makes a step of a case: a function that one framework runs, and that is timed.

A builder, such as `ours.additive`, returns a `Computation`, which gets random inputs here and, if
the case says so, gradients of all inputs and weights. Or it returns a function that makes the
`Step` itself, given the mode: "eager", "graph", "XLA", "compiled" or "traced".
"""

import functools
import importlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from cases import CASES, GRADIENTS

SEED = 11
MODULES = {None: "ours", "plain Keras": "plain_keras", "keras-hub": "plain_keras"}
MODULES |= {"PyTorch": "plain_torch", "plain JAX": "plain_jax"}


class Computation(NamedTuple):
    function: Callable  # of the inputs; in plain JAX of the weights, then the inputs
    weights: list
    shapes: list  # of the inputs
    scale: float = 1.0  # of the inputs
    trains: bool = False  # for gradients, call the function with training=True


class Step(NamedTuple):
    run: Callable[[], Any]  # may return before the work is done
    wait: Callable[[Any], Any] = lambda results: None
    memory: float | None = None  # MiB, where the compiler knows


def normal(shapes, scale=1.0):
    rng = np.random.default_rng(SEED)
    return [rng.normal(scale=scale, size=shape).astype("float32") for shape in shapes]


def build(name, peer=None):
    """Return the `Computation` of a case, or a function that makes its step for a mode."""
    if peer in CASES:
        name, peer = peer, None
    if peer not in ("PyTorch", "plain JAX"):
        import keras

        keras.utils.set_random_seed(SEED)
    case = CASES[name]
    return getattr(importlib.import_module(MODULES[peer]), case.build)(**case.sizes)


def make_step(framework, built, mode, passes):
    """The step of what `build` returned: "tensorflow", "jax", "torch", "PyTorch", "plain JAX"."""
    if not isinstance(built, Computation):
        return built(mode)
    function, weights, shapes, scale, trains = built
    if trains and passes == GRADIENTS:
        function = functools.partial(function, training=True)
    if framework == "jax":
        function, weights = pure(function, weights)
    weights = [getattr(x, "value", x) for x in weights]
    make = {"tensorflow": tensorflow_step, "jax": jax_step, "plain JAX": jax_step}
    make = make.get(framework, torch_step)
    return make(function, weights, normal(shapes, scale), mode, passes == GRADIENTS)


def pure(function, variables):
    """A function of the values of Keras's variables, then of the inputs; and these values."""
    import keras

    def run(values, *inputs):
        with keras.StatelessScope(list(zip(variables, values, strict=True))):
            return function(*inputs)

    return run, [x.value for x in variables]


def tensorflow_step(function, weights, inputs, mode, backward):
    import tensorflow as tf

    inputs = [tf.constant(x) for x in inputs]
    # A gradient of ones would let XLA leave out work that a real one needs.
    grad_output = None

    def run(*inputs):
        if not backward:
            return [function(*inputs)]
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            output = function(*inputs)
        found = tape.gradient(output, [*inputs, *weights], output_gradients=grad_output)
        return [output, *(tf.convert_to_tensor(x) for x in found)]

    if backward:
        shape = tf.function(function, autograph=False).get_concrete_function(*inputs)
        grad_output = tf.constant(normal([tuple(shape.output_shapes)])[0])
    if mode != "eager":
        run = tf.function(run, jit_compile=mode == "XLA", autograph=False)

    def wait(results):
        for x in results:
            x[(0,) * len(x.shape)].numpy()  # reading one number waits for the tensor

    return Step(functools.partial(run, *inputs), wait)


def jax_step(function, weights, inputs, mode, backward):
    import jax

    weights, *inputs = jax.tree.map(jax.numpy.asarray, [weights, *inputs])
    run, arguments = function, [weights, *inputs]
    if backward:

        def run(grad_output, *arguments):
            output, gradient = jax.vjp(function, *arguments)
            return output, gradient(grad_output)

        output = jax.eval_shape(function, *arguments)
        arguments = [jax.numpy.asarray(normal([output.shape])[0], output.dtype), *arguments]
    run = jax.jit(run)
    if mode == "traced":  # for a GPU that is not there
        return Step(functools.partial(run, *arguments))
    compiled = run.lower(*arguments).compile()
    memory = compiled.memory_analysis()
    memory = (memory.temp_size_in_bytes + memory.output_size_in_bytes) / 2**20
    return Step(lambda: compiled(*arguments), jax.block_until_ready, memory)


def torch_step(function, weights, inputs, mode, backward):
    import torch

    if mode == "compiled":
        function = torch.compile(function)
    variables = [torch.tensor(x).requires_grad_(backward) for x in inputs]
    inputs = variables[: len(inputs)]
    variables += [x.requires_grad_(backward) for x in weights]
    with torch.no_grad():
        grad_output = torch.tensor(normal([tuple(function(*inputs).shape)])[0])

    def run():
        if backward:
            return torch.autograd.grad(function(*inputs), variables, grad_output)
        with torch.no_grad():
            return function(*inputs)

    return Step(run, lambda _: torch.cuda.is_available() and torch.cuda.synchronize())
