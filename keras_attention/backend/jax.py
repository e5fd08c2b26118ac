"""Operations beyond `keras.ops`, on JAX; `tensorflow.py` describes the arguments."""

import contextlib
import functools
from collections.abc import Hashable, Iterator, Sequence
from types import SimpleNamespace

import jax
import jax.core
import jax.numpy as jnp
import keras

from keras_attention._typing import Nested, Size, Tensor
from keras_attention.backend.context import Compiling, Device, ExecutionContext
from keras_attention.backend.operations import exact_operations
from keras_attention.backend.structures import Body, Function, leaves, scan_packed, unflatten_as
from keras_attention.backend.structures import unroll as _unroll

__all__ = ["DIFFERENTIATES_LOOPS", "SEED_DTYPE", "SORTS_FAST", "UNROLLS_WITH_MASK", "ops"]
__all__ += ["REVERSES_UNROLLED_MASK", "capture_compiling", "execution_context", "in_loop"]
__all__ += ["eagerly", "is_symbolic", "no_grad", "on_device", "uses_placeholder_sizes", "value_of"]
__all__ += ["compile_function", "jit", "may_compile", "run_compiled", "run_traced"]
__all__ += ["compiles_each_shape", "cond", "custom_vjp", "repeat", "run_loop", "scan", "vjp"]
__all__ += ["differentiate_as", "gather_rows", "linearize", "optimization_barrier", "run_after"]
__all__ += ["batched_matmul", "kernel_gradient", "project", "scatter_add", "two_sums"]
__all__ += ["vectorized_gradients"]

ops: SimpleNamespace = exact_operations(jnp, "cos floor logaddexp mean sin tanh")
SEED_DTYPE = "uint32"  # a key
DIFFERENTIATES_LOOPS = False
SORTS_FAST = False
UNROLLS_WITH_MASK = True
REVERSES_UNROLLED_MASK = True


def execution_context(*tensors: Tensor) -> ExecutionContext:
    """Return the context of a function: XLA compiles all."""
    return ExecutionContext("jax", _device(), compiled_by="itself")


def capture_compiling() -> Compiling:
    """Return no settings: `compiling` changes nothing on JAX."""
    return Compiling()


def in_loop() -> bool:
    """Return False: there are no graphs of TensorFlow."""
    return False


def is_symbolic(x: object) -> bool:
    """Return True if a tensor has no values, because a function is being traced."""
    return isinstance(x, (keras.KerasTensor, jax.core.Tracer))


def uses_placeholder_sizes() -> bool:
    """Return False: JAX traces without sizes."""
    return False


def value_of(variable: keras.Variable) -> Tensor:
    """Return the value of a variable."""
    return variable.value


@contextlib.contextmanager
def eagerly() -> Iterator[None]:
    """Compute within this context at once, also while a function is being traced."""
    with jax.ensure_compile_time_eval():
        yield


@contextlib.contextmanager
def no_grad() -> Iterator[None]:
    """Do nothing: JAX records nothing unless a gradient is asked for."""
    yield


def on_device(cpu: Function, gpu: Function, *tensors: Tensor) -> Nested:
    """Call the function for the device with the tensors.

    JAX chooses when it lowers a program, so an exported program serves both devices.
    """
    if any(map(is_symbolic, tensors)):
        return jax.lax.platform_dependent(*tensors, cpu=cpu, default=gpu)
    return (gpu if _device() == "gpu" else cpu)(*tensors)


def may_compile(*program: Hashable) -> bool:
    """Return True: JAX frees programs that are no longer used."""
    return True


def jit(function: Function) -> Function:
    """Return the function, compiled by XLA."""
    return jax.jit(function)


def run_compiled(function: Function, *tensors: Tensor) -> Nested:
    """Compile a function of tensors and call it. Compiled programs are cached per function."""
    return _jitted(function)(*tensors)


def run_traced(
    function: Function, *tensors: Tensor, shapes: tuple[Nested, ...] | None = None
) -> Nested:
    """Call a function of tensors."""
    return function(*tensors)


def compile_function(
    function: Function, tensors: list[Tensor], variables: list[keras.Variable], jit: bool
) -> Function:
    """Compile a function of a list of tensors, with the values of the variables as arguments."""

    @jax.jit
    def compute(values, tensors):
        with keras.StatelessScope(list(zip(variables, values, strict=True))):
            return function(tensors)

    return lambda tensors: compute([x.value for x in variables], tensors)


def compiles_each_shape(jit: bool) -> bool:
    """Return True: JAX compiles again for every new shape."""
    return True


def scan(
    body: Body,
    carry: Nested,
    inputs: Nested,
    reverse: bool = False,
    unroll: bool = False,
    steps: Tensor | None = None,
    differentiated: bool = True,
    all_needed: bool = False,
) -> tuple[Nested, Nested]:
    """Call `carry, outputs = body(carry, inputs[t])` for every t."""
    if unroll:
        return _unroll(body, carry, inputs, reverse)
    run = functools.partial(ops.scan, reverse=reverse)
    if all_needed and _device() == "gpu":
        return scan_packed(run, body, carry, inputs)
    return run(body, carry, inputs)


def run_loop(function: Function, *tensors: Tensor) -> Nested:
    """Call a function that holds a loop, which JAX would compile at every eager call."""
    return _jitted(function)(*tensors)


def repeat(count: int, body: Function, totals: Sequence[Tensor]) -> Sequence[Tensor]:
    """Call `totals = body(n, *totals)` for every n below count, and return the last totals."""
    return jax.lax.fori_loop(0, count, lambda n, totals: body(n, *totals), totals)


def cond(condition: Tensor, first: Function, second: Function, *tensors: Tensor) -> Nested:
    """Call `first(*tensors)` if the condition holds, otherwise `second(*tensors)`."""
    return jax.lax.cond(condition, first, second, *tensors)


def custom_vjp(function: Function, gradient: Function, *tensors: Tensor) -> Nested:
    """Call `function(*tensors)`, whose gradient is `gradient(*tensors, *grad_output)`."""

    @ops.custom_gradient
    def run(*inputs):
        # The gradients of several outputs come as one tuple. For second derivatives, JAX
        # differentiates the function itself.
        return function(*inputs), lambda grads: gradient(*inputs, *leaves(grads))

    return run(*tensors)


def vjp(
    function: Function, inputs: tuple[Nested, ...], grad_output: Nested
) -> tuple[tuple[Nested, ...], Nested]:
    """Compute the gradients of a function's inputs."""
    outputs, gradient, more = jax.vjp(function, *inputs, has_aux=True)
    return gradient(unflatten_as(outputs, leaves(grad_output))), more


def vectorized_gradients(
    function: Function, weights: list[Tensor], grad_output: Nested, tensors: tuple[Nested, ...]
) -> list[Tensor]:
    """Sum the gradients of the weights of a function of one step over all steps."""

    def run(weights):
        return ops.vectorized_map(lambda x: function(weights, *x), tensors), None

    return vjp(run, (weights,), grad_output)[0][0]


def differentiate_as(
    equivalent: Function, function: Function, *tensors: Tensor
) -> tuple[Tensor, ...]:
    """Call `function(*tensors)`, which the backend differentiates itself."""
    return function(*tensors)


def linearize(function: Function, *inputs: Nested) -> tuple[list[str], Function]:
    """Compute the gradients of each output of a function separately."""
    names = []

    def output(n):
        def run(*inputs):
            results = function(*inputs)
            names[:] = [name for name, _ in results]
            return leaves(results[n][1])

        return run

    def pull(n, grad_output):
        return leaves(jax.vjp(output(n), *inputs)[1](leaves(grad_output)))

    jax.eval_shape(output(0), *inputs)
    return names, pull


def run_after(other: Tensor, x: Tensor) -> Tensor:
    """Return x: XLA orders the operations of a loop itself."""
    return x


def optimization_barrier(tensors: list[Tensor]) -> list[Tensor]:
    """Return the tensors, which XLA computes before anything that reads them."""
    return list(jax.lax.optimization_barrier(tensors))


def gather_rows(samples: Tensor, row: Tensor) -> Tensor:
    """Gather rows of every sample, `samples[b, row[b, ...]]`."""
    # One sample at a time: devices that share a batch then exchange nothing.
    return ops.vectorized_map(lambda x: ops.take(*x, axis=0), (samples, row))


def scatter_add(rows: Tensor, row: Tensor, length: Size) -> Tensor:
    """Add rows, `(B, ..., D)`, at the indices `row`, `(B, ...)`, to zeros `(B, length, D)`."""

    def add(x):
        rows, row = jnp.reshape(x[0], (-1, x[0].shape[-1])), jnp.reshape(x[1], (-1,))
        return ops.segment_sum(rows, row, num_segments=length)

    return ops.vectorized_map(add, (rows, row))


def project(sequence: Tensor, kernel: Tensor, time_major: bool = False) -> Tensor:
    """Multiply every step of a sequence by a kernel."""
    # A reshape of `(T, B, D)` mixes steps and samples: devices that share the samples collect all.
    if len(sequence.shape) == 2 or time_major:
        return ops.matmul(sequence, kernel)
    # On a CPU, XLA transposes a copy of `(B, T, D)` for the gradient of the kernel.
    rows = ops.reshape(sequence, (-1, kernel.shape[0]))
    return ops.reshape(ops.matmul(rows, kernel), (*sequence.shape[:-1], kernel.shape[1]))


def kernel_gradient(x: Tensor, grad_output: Tensor) -> Tensor:
    """Compute the gradient of the kernel of `project` from all steps: x^T g."""
    return jax.lax.dot_general(x, grad_output, (((0, 1), (0, 1)), ((), ())))


def batched_matmul(x: Tensor, y: Tensor, transpose: bool = False) -> Tensor:
    """Multiply the matrices of every sample, `(B, M, K)` and `(B, K, N)`."""
    return ops.einsum("bid,bjd->bij", x, y) if transpose else ops.matmul(x, y)


def two_sums(first: Tensor, second: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    """Sum two tensors of one shape over an axis in one operation."""
    zero = jnp.zeros((), first.dtype)
    return jax.lax.reduce((first, second), (zero, zero), _add_both, (axis,))


def _add_both(first, second):
    return first[0] + second[0], first[1] + second[1]


@functools.lru_cache(maxsize=256)
def _jitted(function):
    return jax.jit(function)


def _device() -> Device:
    return "cpu" if jax.default_backend() == "cpu" else "gpu"
