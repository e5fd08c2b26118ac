"""Operations beyond `keras.ops`, on PyTorch; `tensorflow.py` describes the arguments.

`ops.matmul` and `ops.einsum` return views. PyTorch copies gradients that are views when it adds
them up, which makes a layer a tenth slower. `torch.bmm` returns no view.
"""
# Without PyTorch, pyright takes `import torch` for this very file.
# pyright: reportAttributeAccessIssue=false

import contextlib
from collections.abc import Hashable, Iterator, Sequence
from types import SimpleNamespace

import keras
import torch

from keras_attention._typing import Nested, Size, Tensor
from keras_attention.backend.context import Compiling, Device, ExecutionContext
from keras_attention.backend.operations import exact_operations
from keras_attention.backend.structures import Body, Function, flat_index, leaves, unflatten_as
from keras_attention.backend.structures import unroll as _unroll

__all__ = ["DIFFERENTIATES_LOOPS", "SEED_DTYPE", "SORTS_FAST", "UNROLLS_WITH_MASK", "ops"]
__all__ += ["REVERSES_UNROLLED_MASK", "capture_compiling", "execution_context", "in_loop"]
__all__ += ["eagerly", "is_symbolic", "no_grad", "on_device", "uses_placeholder_sizes", "value_of"]
__all__ += ["compile_function", "jit", "may_compile", "run_compiled", "run_traced"]
__all__ += ["compiles_each_shape", "cond", "custom_vjp", "repeat", "run_loop", "scan", "vjp"]
__all__ += ["differentiate_as", "gather_rows", "linearize", "optimization_barrier", "run_after"]
__all__ += ["batched_matmul", "kernel_gradient", "project", "scatter_add", "two_sums"]
__all__ += ["vectorized_gradients"]

# add, divide, multiply and subtract round from Keras 3.16 on.
ops: SimpleNamespace = exact_operations(
    torch, "cos cumsum floor logaddexp matmul maximum mean minimum sin add divide multiply subtract"
)
SEED_DTYPE = "int32"
DIFFERENTIATES_LOOPS = True
SORTS_FAST = True
UNROLLS_WITH_MASK = False
REVERSES_UNROLLED_MASK = True


def execution_context(*tensors: Tensor) -> ExecutionContext:
    """Return the context of a function: the device of its tensors, not compiled."""
    return ExecutionContext("torch", _device(tensors))


def capture_compiling() -> Compiling:
    """Return no settings: nothing is compiled."""
    return Compiling()


def in_loop() -> bool:
    """Return False: there are no graphs of TensorFlow."""
    return False


def is_symbolic(x: object) -> bool:
    """Return True if a tensor has no values: Keras traces with tensors of the device "meta"."""
    return isinstance(x, keras.KerasTensor) or getattr(x, "is_meta", False)


def uses_placeholder_sizes() -> bool:
    """Return True if Keras is building a functional model with placeholder sizes."""
    # Keras has no way to ask whether it does so now, but a scope records the one around it.
    with keras.SymbolicScope() as scope:
        return scope.original_scope is not None


def value_of(variable: keras.Variable) -> Tensor:
    """Return the value of a variable."""
    return variable.value


@contextlib.contextmanager
def eagerly() -> Iterator[None]:
    """Compute within this context at once, also while Keras traces on the device "meta"."""
    with keras.device("cpu"):
        yield


@contextlib.contextmanager
def no_grad() -> Iterator[None]:
    """Record nothing for gradients within this context; by default PyTorch records every step."""
    with torch.no_grad():
        yield


def on_device(cpu: Function, gpu: Function, *tensors: Tensor) -> Nested:
    """Call the function for the device with the tensors."""
    return (gpu if _device(tensors) == "gpu" else cpu)(*tensors)


def may_compile(*program: Hashable) -> bool:
    """Return True: nothing is compiled."""
    return True


def jit(function: Function) -> Function:
    """Return the function as it is."""
    return function


def run_compiled(function: Function, *tensors: Tensor) -> Nested:
    """Call a function of tensors."""
    return function(*tensors)


def run_traced(
    function: Function, *tensors: Tensor, shapes: tuple[Nested, ...] | None = None
) -> Nested:
    """Call a function of tensors."""
    return function(*tensors)


def compile_function(
    function: Function, tensors: list[Tensor], variables: list[keras.Variable], jit: bool
) -> Function:
    """Return the function, without gradients."""
    return torch.no_grad()(function)


def compiles_each_shape(jit: bool) -> bool:
    """Return False: nothing is compiled."""
    return False


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
    return _unroll(body, carry, inputs, reverse)


def run_loop(function: Function, *tensors: Tensor) -> Nested:
    """Call a function that holds a loop."""
    return function(*tensors)


def repeat(count: int, body: Function, totals: Sequence[Tensor]) -> Sequence[Tensor]:
    """Call `totals = body(n, *totals)` for every n below count, and return the last totals."""
    for n in range(count):
        totals = body(n, *totals)
    return totals


def cond(condition: Tensor, first: Function, second: Function, *tensors: Tensor) -> Nested:
    """Call `first(*tensors)` if the condition holds, otherwise `second(*tensors)`."""
    return ops.cond(condition, lambda: first(*tensors), lambda: second(*tensors))


class _CustomVJP(torch.autograd.Function):
    @staticmethod
    def forward(function, gradient, *tensors):
        return function(*tensors)

    @staticmethod
    def setup_context(ctx, inputs, output):
        _, ctx.gradient, *tensors = inputs
        ctx.save_for_backward(*tensors)

    @staticmethod
    def backward(ctx, *grad_output):
        return None, None, *ctx.gradient(*ctx.saved_tensors, *grad_output)


def custom_vjp(function: Function, gradient: Function, *tensors: Tensor) -> Nested:
    """Call `function(*tensors)`, whose gradient is `gradient(*tensors, *grad_output)`.

    Keras's `ops.custom_gradient` supports one output only. If the function raises, it calls the
    function again and returns NaN as the gradient. This function has neither problem.
    """
    return _CustomVJP.apply(function, gradient, *tensors)


def vjp(
    function: Function, inputs: tuple[Nested, ...], grad_output: Nested
) -> tuple[tuple[Nested, ...], Nested]:
    """Compute the gradients of a function's inputs."""
    with torch.enable_grad():
        inputs = unflatten_as(inputs, [x.detach().requires_grad_() for x in leaves(inputs)])
        outputs, more = function(*inputs)
        arguments = leaves(outputs), leaves(inputs), leaves(grad_output)
        gradients = torch.autograd.grad(*arguments, materialize_grads=True)
    return unflatten_as(inputs, list(gradients)), more


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
    with torch.enable_grad():
        inputs = unflatten_as(inputs, [x.detach().requires_grad_() for x in leaves(inputs)])
        names, outputs = zip(*function(*inputs), strict=True)

    def pull(n, grad_output):
        arguments = leaves(outputs[n]), leaves(inputs), leaves(grad_output)
        return list(torch.autograd.grad(*arguments, retain_graph=True, allow_unused=True))

    return list(names), pull


def run_after(other: Tensor, x: Tensor) -> Tensor:
    """Return x: PyTorch computes everything in the order of the code."""
    return x


def optimization_barrier(tensors: list[Tensor]) -> list[Tensor]:
    """Return the tensors: nothing reorders what is computed."""
    return tensors


def gather_rows(samples: Tensor, row: Tensor) -> Tensor:
    """Gather rows of every sample, `samples[b, row[b, ...]]`."""
    batch, length, *features = ops.shape(samples)
    flat = ops.reshape(samples, (batch * length, *features))
    return ops.take(flat, flat_index(row, length), axis=0)


def scatter_add(rows: Tensor, row: Tensor, length: Size) -> Tensor:
    """Add rows, `(B, ..., D)`, at the indices `row`, `(B, ...)`, to zeros `(B, length, D)`."""
    batch, size = row.shape[0], rows.shape[-1]
    index = ops.reshape(flat_index(row, length), (-1,))
    zeros = rows.new_zeros((batch * length, size))  # `ops.segment_sum` sums in float32
    total = zeros.index_add(0, index, ops.reshape(rows, (-1, size)))
    return ops.reshape(total, (batch, length, size))


def project(sequence: Tensor, kernel: Tensor, time_major: bool = False) -> Tensor:
    """Multiply every step of a sequence by a kernel."""
    if len(sequence.shape) == 2:
        return ops.matmul(sequence, kernel)
    rows = ops.reshape(sequence, (-1, kernel.shape[0]))
    return ops.reshape(ops.matmul(rows, kernel), (*ops.shape(sequence)[:-1], kernel.shape[1]))


def kernel_gradient(x: Tensor, grad_output: Tensor) -> Tensor:
    """Compute the gradient of the kernel of `project` from all steps: x^T g."""
    rows = ops.reshape(x, (-1, x.shape[-1]))
    return ops.matmul(ops.transpose(rows), ops.reshape(grad_output, (-1, grad_output.shape[-1])))


def batched_matmul(x: Tensor, y: Tensor, transpose: bool = False) -> Tensor:
    """Multiply the matrices of every sample, `(B, M, K)` and `(B, K, N)`."""
    if keras.backend.is_keras_tensor(x):
        return ops.matmul(x, ops.transpose(y, (0, 2, 1)) if transpose else y)
    x, y = ops.convert_to_tensor(x), ops.convert_to_tensor(y)
    if not transpose:
        return torch.bmm(x, y)
    if x.shape[1] == 1:
        # In this order, the gradient of the keys is not transposed, so it needs no copy.
        return torch.bmm(y, x.transpose(1, 2)).transpose(1, 2)
    return torch.bmm(x, y.transpose(1, 2))


def two_sums(first: Tensor, second: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    """Sum two tensors of one shape over an axis."""
    return ops.sum(first, axis), ops.sum(second, axis)


def _device(tensors) -> Device:
    return "gpu" if any(getattr(x, "is_cuda", False) for x in tensors) else "cpu"
