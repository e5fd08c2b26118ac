"""Operations beyond `keras.ops`, on TensorFlow.

`jax.py` and `torch.py` have the same names with the same arguments, which are described here.
"""

import contextlib
import functools
import itertools
import math
from collections.abc import Hashable, Iterator, Sequence
from types import SimpleNamespace
from warnings import warn

import keras
import tensorflow as tf

from keras_attention._typing import Nested, Size, Tensor
from keras_attention.backend.context import Compiling, Device, ExecutionContext, current_compiling
from keras_attention.backend.operations import exact_operations
from keras_attention.backend.structures import (
    Body,
    Function,
    flat_index,
    leaves,
    scan_packed,
    unflatten_as,
)
from keras_attention.backend.structures import unroll as _unroll

__all__ = ["DIFFERENTIATES_LOOPS", "SEED_DTYPE", "SORTS_FAST", "UNROLLS_WITH_MASK", "ops"]
__all__ += ["REVERSES_UNROLLED_MASK", "capture_compiling", "execution_context", "in_loop"]
__all__ += ["eagerly", "is_symbolic", "no_grad", "on_device", "uses_placeholder_sizes", "value_of"]
__all__ += ["compile_function", "jit", "may_compile", "run_compiled", "run_traced"]
__all__ += ["compiles_each_shape", "cond", "custom_vjp", "repeat", "run_loop", "scan", "vjp"]
__all__ += ["differentiate_as", "gather_rows", "linearize", "optimization_barrier", "run_after"]
__all__ += ["batched_matmul", "kernel_gradient", "project", "scatter_add", "two_sums"]
__all__ += ["vectorized_gradients"]

ops: SimpleNamespace = exact_operations(tf, "")
# The integer dtype of a seed of `keras.random`.
SEED_DTYPE = "int32"
# True if the backend differentiates a loop as fast as `recurrence` does.
DIFFERENTIATES_LOOPS = False
# True if `ops.top_k` of a long row is fast on a CPU.
SORTS_FAST = False
# True if Keras can unroll a recurrent layer with a mask.
UNROLLS_WITH_MASK = True
# True if Keras reverses the mask of an unrolled layer that runs backwards.
REVERSES_UNROLLED_MASK = False

# TensorFlow stores a compiled program, of 15 to 45 MiB, until the process ends, even when nothing
# can call it any more.
_MOST_PROGRAMS = 16
_programs = set()

# Eager code multiplies by one kernel for each sample up to this many elements of all kernels: one
# operation takes two thirds of the time of three. The gradient makes a kernel for each sample.
_SMALL_EAGER = 2**16


def execution_context(*tensors: Tensor) -> ExecutionContext:
    """Return the execution context of a function of these tensors."""
    graph, (choice, by_caller) = not tf.executing_eagerly(), capture_compiling()
    static = not graph or all(size is not None for x in tensors for size in x.shape)
    alone = choice is not False and (static or choice) and _has_xla()
    compiled_by = "caller" if by_caller else "itself" if alone else None
    return ExecutionContext("tensorflow", _device(), graph, graph and static, compiled_by)


def capture_compiling() -> Compiling:
    """Return the current compilation settings, for a gradient to restore later."""
    choice, by_caller = current_compiling.get()
    # TensorFlow documents no way to ask whether it compiles this graph, or one around it, as a
    # whole. It exports this function for libraries such as Keras, and its own `tf.cond` decides by
    # the same context. Asking adds nothing to the graph.
    graph = not tf.executing_eagerly()
    inside = graph and tf.__internal__.get_enclosing_xla_context() is not None
    return Compiling(choice, by_caller or inside)


def in_loop() -> bool:
    """Return True if this code belongs to a loop of a TensorFlow graph."""
    graph = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
    while graph is not None and not _is_loop(graph):
        graph = getattr(graph, "outer_graph", None)
    return graph is not None


def is_symbolic(x: object) -> bool:
    """Return True if a tensor has no values, because a function is being traced."""
    return isinstance(x, keras.KerasTensor) or (hasattr(x, "graph") and not hasattr(x, "numpy"))


def uses_placeholder_sizes() -> bool:
    """Return True if Keras is building a functional model with placeholder sizes."""
    return False


def value_of(variable: keras.Variable) -> Tensor:
    """Read a variable once. TensorFlow would read it wherever it is used."""
    return tf.convert_to_tensor(variable.value)


@contextlib.contextmanager
def eagerly() -> Iterator[None]:
    """Compute within this context at once, also while a function is being traced."""
    with tf.init_scope():
        yield


@contextlib.contextmanager
def no_grad() -> Iterator[None]:
    """Record nothing for gradients within this context, where the backend always records."""
    yield


def on_device(cpu: Function, gpu: Function, *tensors: Tensor) -> Nested:
    """Call the function for the device with the tensors."""
    return (gpu if _device() == "gpu" else cpu)(*tensors)


def may_compile(*program: Hashable) -> bool:
    """Return True if a program may be compiled: eager code gets at most `_MOST_PROGRAMS`.

    Args:
        program: values that identify it, such as a function, sizes and a dtype.
    """
    if not tf.executing_eagerly() or program in _programs:
        return True
    if len(_programs) < _MOST_PROGRAMS:
        _programs.add(program)
        return True
    _warn_of_many(_MOST_PROGRAMS)
    return False


@functools.cache
def _warn_of_many(count):
    warn(
        f"Eager code has called attention with more than {count} different sizes. TensorFlow keeps "
        "every program that XLA compiles, so further sizes run without XLA, which is slower and "
        "depends on which sizes came first. Pad to few sizes, or call the layer in a "
        "`tf.function`. To compile no size at all, use `keras_attention.ops.compiling(False)`.",
        UserWarning,
        stacklevel=2,
    )


def jit(function: Function) -> Function:
    """Return the function, compiled by XLA for the sizes that arrive in a graph.

    TensorFlow cannot differentiate all such functions: use it in a custom gradient.
    """
    return tf.function(function, jit_compile=True, autograph=False)


def run_compiled(function: Function, *tensors: Tensor) -> Nested:
    """Compile a function of tensors and call it. Compiled programs are cached per function.

    On TensorFlow each new size takes a second to compile: see `round_up_length`.
    """
    return _traced(function, _specs(tensors), True)(*tensors)


def run_traced(
    function: Function, *tensors: Tensor, shapes: tuple[Nested, ...] | None = None
) -> Nested:
    """Call a function of tensors as a graph, which is traced once for these shapes.

    Tracing a large function takes longer than anything else in building a decoder, and many small
    operations are faster in a graph than in eager code.
    """
    return _traced(function, _specs(tensors, shapes), None)(*tensors)


def compile_function(
    function: Function, tensors: list[Tensor], variables: list[keras.Variable], jit: bool
) -> Function:
    """Compile a function of a list of tensors, which reads variables whenever it is called.

    Args:
        function: from a list of tensors to tensors in any nesting.
        tensors: an example. The first two axes of each may have other sizes in every call.
        variables: all variables that the function reads.
        jit: whether XLA compiles the graph of TensorFlow.
    """

    def spec(x):
        return tf.TensorSpec([None, None, *x.shape[2:]][: len(x.shape)], x.dtype)

    # TensorFlow warns when one function is traced often. A new `partial` prevents that.
    function = functools.partial(function)
    options = {"autograph": False, "jit_compile": jit or None}
    return tf.function(function, input_signature=[[*map(spec, tensors)]], **options)


def compiles_each_shape(jit: bool) -> bool:
    """Return True if `compile_function` compiles again for every new shape."""
    return jit


@functools.lru_cache(maxsize=256)
def _traced(function, specs, jit):
    # TensorFlow warns when one function is traced for many shapes. So each signature has its own
    # `partial` of the function and its own tf.function.
    function = functools.partial(function)
    return tf.function(function, input_signature=specs, jit_compile=jit, autograph=False)


def _specs(tensors, shapes=None):
    shapes = shapes or [x.shape for x in tensors]
    return tuple(map(tf.TensorSpec, shapes, [x.dtype for x in tensors]))


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
    """Call `carry, outputs = body(carry, inputs[t])` for every t.

    `ops.scan` has no gradient in a compiled TensorFlow graph, and loses outputs there whose
    structure is not that of the carry. This function has neither problem.

    Args:
        body: the function of one step. It returns the carry with the same shapes and dtypes.
        carry: any nesting of tensors and None, such as all other arguments and results.
        inputs: tensors with the steps on the first axis; there is at least one step.
        reverse: whether to run from the last step to the first.
        unroll: whether to copy the body for every step, instead of a loop.
        steps: how many steps to run, a scalar tensor, in code that TensorFlow compiles. By default
            all of the inputs. The outputs of the others are zero.
        differentiated: whether gradients may flow through the loop. Without, a TensorFlow graph
            traces the body once instead of twice.
        all_needed: whether all outputs will be read. Otherwise XLA may remove some.

    Returns:
        The last carry, and the outputs stacked on a first axis, in the order of the inputs.
    """
    if unroll or tf.executing_eagerly():
        return _unroll(body, carry, inputs, reverse)
    if all_needed and _device() == "gpu" and capture_compiling().by_caller:
        options = {"reverse": reverse, "steps": steps, "differentiated": differentiated}
        return scan_packed(functools.partial(scan, **options), body, carry, inputs)
    first = leaves(inputs)
    size: Tensor = tf.shape(first[0])[0]
    limit: Tensor = size if steps is None else steps
    # Tensor arrays have cheaper gradients than slices.
    arrays = [tf.TensorArray(x.dtype, size, element_shape=x.shape[1:]).unstack(x) for x in first]
    start = leaves(carry)
    structure = []

    def flat(carried, step):
        new, outputs = body(unflatten_as(carry, carried), unflatten_as(inputs, step))
        structure[:] = [outputs]
        for old, x in zip(carried, leaves(new), strict=True):
            x.set_shape(old.shape)
        return leaves(new), leaves(outputs)

    # The arrays for the outputs need their shapes before the loop.
    specs = [tf.TensorSpec(x.shape, x.dtype) for x in start]
    of_step = [tf.TensorSpec(x.shape[1:], x.dtype) for x in first]
    traced = tf.function(flat, autograph=False).get_concrete_function(specs, of_step)
    results = [
        tf.TensorArray(x.dtype, size, element_shape=x.shape) for x in traced.structured_outputs[1]
    ]
    # The gradient of a call would store more for every step than that of its operations.
    step = flat if differentiated else traced

    def advance(t, carried, results):
        at = limit - 1 - t if reverse else t
        carried, outputs = step(carried, [x.read(at) for x in arrays])
        return t + 1, carried, [x.write(at, y) for x, y in zip(results, outputs, strict=True)]

    _, last, results = tf.while_loop(
        lambda t, *_: t < limit,
        advance,
        (tf.constant(0), start, results),
        maximum_iterations=size,
    )
    outputs = [x.stack() for x in results]
    for x in outputs:
        x.set_shape((first[0].shape[0], *x.shape[1:]))
    return unflatten_as(carry, last), unflatten_as(structure[0], outputs)


def run_loop(function: Function, *tensors: Tensor) -> Nested:
    """Call a function that holds a loop, which JAX would compile at every eager call."""
    return function(*tensors)


def repeat(count: int, body: Function, totals: Sequence[Tensor]) -> Sequence[Tensor]:
    """Call `totals = body(n, *totals)` for every n below count, and return the last totals."""
    # XLA can differentiate a loop only if the maximum number of its steps is given.
    _, *totals = tf.while_loop(
        lambda n, *_: n < count,
        lambda n, *totals: (n + 1, *body(n, *totals)),
        (0, *totals),
        maximum_iterations=count,
    )
    return totals


def cond(condition: Tensor, first: Function, second: Function, *tensors: Tensor) -> Nested:
    """Call `first(*tensors)` if the condition holds, otherwise `second(*tensors)`.

    TensorFlow cannot differentiate `tf.cond` when a branch has custom gradients and the tape is
    outside the graph. Here the forward pass and the backward pass each have a conditional, and the
    backward pass computes its branch again.

    Args:
        condition: a boolean scalar tensor.
        first, second: functions of the tensors. Both return a tuple of tensors, with the same
            shapes. No gradient flows to other tensors that they use.
        tensors: floating point; gradients flow to all of them.

    Returns:
        The tuple of the branch that ran. Its sizes may be unknown even where both branches know
        them. Second derivatives are not tested.
    """

    def gradient(*args):
        inputs, grad_output = args[: len(tensors)], args[len(tensors) :]

        def of(function):
            return lambda: vjp(lambda *x: (function(*x), None), inputs, grad_output)[0]

        return tuple(ops.cond(condition, of(first), of(second)))

    def choose(*inputs):
        return ops.cond(condition, lambda: first(*inputs), lambda: second(*inputs))

    return custom_vjp(choose, gradient, *tensors)


def custom_vjp(function: Function, gradient: Function, *tensors: Tensor) -> Nested:
    """Call `function(*tensors)`, whose gradient is `gradient(*tensors, *grad_output)`.

    Args:
        function: returns a tensor or a tuple of tensors.
        gradient: takes the tensors and the gradients of all outputs. Returns a gradient for each
            tensor, or None. It may run later: the choice of `compiling` holds there too.

    Returns:
        What the function returns.
    """
    compiling = capture_compiling()
    # The backward pass may run outside of the scope in which a variable has this value.
    tensors = tuple(map(tf.convert_to_tensor, tensors))
    # Inside a loop, TensorFlow stores whatever the backward pass captures, once per step. There,
    # the backward pass captures the tensors outside the custom gradient instead of their copies.
    # Elsewhere, above all in a branch of a conditional, only the copies can be used.
    in_body = not tf.executing_eagerly() and _is_loop(tf.compat.v1.get_default_graph())

    @tf.custom_gradient
    def run(*inputs):
        def grad(*grad_output):
            with compiling.restored():
                return gradient(*(tensors if in_body else inputs), *grad_output)

        # Otherwise TensorFlow would differentiate the function itself.
        return function(*map(tf.stop_gradient, inputs)), grad

    return run(*tensors)


def vjp(
    function: Function, inputs: tuple[Nested, ...], grad_output: Nested
) -> tuple[tuple[Nested, ...], Nested]:
    """Compute the gradients of a function's inputs.

    Args:
        function: takes the inputs, and returns its outputs and anything else to be returned.
        inputs: floating-point tensors, in any nesting.
        grad_output: the gradients of the outputs.

    Returns:
        The gradients, with the nesting of the inputs, and what else the function returned.
    """
    # The same tensor may be given twice, and each copy needs its own gradient.
    inputs = unflatten_as(inputs, map(tf.identity, leaves(inputs)))
    with tf.GradientTape() as tape:
        tape.watch(leaves(inputs))
        outputs, more = function(*inputs)
    zero = tf.UnconnectedGradients.ZERO
    gradients = tape.gradient(leaves(outputs), leaves(inputs), leaves(grad_output), zero)
    return unflatten_as(inputs, map(tf.convert_to_tensor, gradients)), more


def vectorized_gradients(
    function: Function, weights: list[Tensor], grad_output: Nested, tensors: tuple[Nested, ...]
) -> list[Tensor]:
    """Sum the gradients of the weights of a function of one step over all steps.

    The steps are computed side by side, unless a step has a loop, which XLA could not compile then.
    TensorFlow cannot vectorize a function that has gradients of its own, so it vectorizes these
    gradients.

    Args:
        function: `function(weights, *tensors of one step)` returns the results of this step.
        weights: floating-point tensors.
        grad_output: the gradients of the results of all steps, `(T, ...)`.
        tensors: the other arguments of all steps, `(T, ...)` in any nesting.
    """
    arguments = grad_output, tensors
    flat = leaves(arguments)

    def of_step(x):
        grad_output, tensors = unflatten_as(arguments, x)
        return vjp(lambda x: (function(x, *tensors), None), (weights,), grad_output)[0][0]

    specs = [tf.TensorSpec(x.shape[1:], x.dtype) for x in flat]
    step = tf.function(of_step, autograph=False).get_concrete_function(specs)
    if not _has_loops(step.graph.as_graph_def()):
        return [ops.sum(x, axis=0) for x in tf.vectorized_map(step, flat)]

    def add(totals, x):
        return [*map(ops.add, totals, step(x))], None

    return scan(add, [*map(ops.zeros_like, weights)], flat, differentiated=False)[0]


def differentiate_as(
    equivalent: Function, function: Function, *tensors: Tensor
) -> tuple[Tensor, ...]:
    """Call `function(*tensors)`, differentiated as another function that computes the same.

    TensorFlow cannot differentiate loops that XLA compiles everywhere, so it differentiates
    `equivalent` instead. The other backends differentiate the function itself.
    """

    def gradient(*args):
        inputs, grad_output = args[: len(tensors)], args[len(tensors) :]
        floating = [x.dtype.is_floating for x in inputs]

        def run(*floats):
            rest = iter(floats)
            pairs = zip(inputs, floating, strict=True)
            return equivalent(*(next(rest) if is_float else x for x, is_float in pairs)), None

        floats = tuple(x for x, is_float in zip(inputs, floating, strict=True) if is_float)
        rest = iter(vjp(run, floats, grad_output)[0])
        return [next(rest) if is_float else None for is_float in floating]

    # The copies belong to the graph that holds this gradient.
    return custom_vjp(function, gradient, *map(tf.identity, tensors))


def linearize(function: Function, *inputs: Nested) -> tuple[list[str], Function]:
    """Compute the gradients of each output of a function separately.

    Args:
        function: takes the inputs, and returns named outputs, nests of floating-point tensors.
        inputs: floating-point tensors, in any nesting.

    Returns:
        The names, and a function: `pull(n, grad_output)` returns the gradients of all
        inputs, in a list, for the gradients of output n. None stands for zero.
    """
    inputs = unflatten_as(inputs, map(tf.identity, leaves(inputs)))
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(leaves(inputs))
        names, outputs = zip(*function(*inputs), strict=True)

    def pull(n, grad_output):
        return tape.gradient(leaves(outputs[n]), leaves(inputs), leaves(grad_output))

    return list(names), pull


def run_after(other: Tensor, x: Tensor) -> Tensor:
    """Return x, which a graph computes after the other tensor.

    Otherwise the backward pass of a loop would compute everything that does not depend on the
    other tensor, such as a tanh of the forward pass, many steps in advance.
    """
    if tf.executing_eagerly():
        return x
    with tf.control_dependencies([other]):
        return tf.identity(x)


def optimization_barrier(tensors: list[Tensor]) -> list[Tensor]:
    """Return the tensors, which XLA computes before anything that reads them."""
    return tensors


def gather_rows(samples: Tensor, row: Tensor) -> Tensor:
    """Gather rows of every sample, `samples[b, row[b, ...]]`.

    Args:
        samples: `(B, T, D...)`.
        row: `(B, ...)`, integers from 0 to T - 1.

    Returns:
        `(B, ..., D...)`.
    """
    batch, length, *features = ops.shape(samples)
    flat = ops.reshape(samples, (batch * length, *features))
    return ops.take(flat, flat_index(row, length), axis=0)


def scatter_add(rows: Tensor, row: Tensor, length: Size) -> Tensor:
    """Add rows, `(B, ..., D)`, at the indices `row`, `(B, ...)`, to zeros `(B, length, D)`."""
    batch, size = ops.shape(row)[0], ops.shape(rows)[-1]
    index = ops.reshape(flat_index(row, length), (-1,))
    total = ops.segment_sum(ops.reshape(rows, (-1, size)), index, num_segments=batch * length)
    return ops.reshape(total, (batch, length, size))


def project(sequence: Tensor, kernel: Tensor, time_major: bool = False) -> Tensor:
    """Multiply every step of a sequence by a kernel.

        y[..., u] = sum_d x[..., d] W[d, u]

    This is a single product of two matrices, except for small ones in eager code.
    `ops.einsum("btd,du->btu", ...)` gives the same values, but TensorFlow computes its gradient as
    B products of size D U and then sums them.

    Args:
        sequence: x, `(..., D)`.
        kernel: W, `(D, U)`, of the same dtype.
        time_major: whether the samples are the second axis, which several devices may share.

    Returns:
        y, `(..., U)`, in the dtype of the arguments.
    """
    shape = tuple(sequence.shape)
    if len(shape) == 2:
        return ops.matmul(sequence, kernel)
    known = None not in shape
    small = known and len(shape) == 3 and shape[0] * math.prod(kernel.shape) <= _SMALL_EAGER
    if small and tf.executing_eagerly():
        return ops.matmul(sequence, ops.expand_dims(kernel, 0))
    shape = shape if known else ops.shape(sequence)
    rows = ops.reshape(sequence, (-1, kernel.shape[0]))
    return ops.reshape(ops.matmul(rows, kernel), (*shape[:-1], kernel.shape[1]))


def kernel_gradient(x: Tensor, grad_output: Tensor) -> Tensor:
    """Compute the gradient of the kernel of `project` from all steps: x^T g."""
    rows = ops.reshape(x, (-1, x.shape[-1]))
    return ops.matmul(ops.transpose(rows), ops.reshape(grad_output, (-1, grad_output.shape[-1])))


def batched_matmul(x: Tensor, y: Tensor, transpose: bool = False) -> Tensor:
    """Multiply the matrices of every sample, `(B, M, K)` and `(B, K, N)`.

    Args:
        x, y: of one dtype.
        transpose: whether y is `(B, N, K)`.
    """
    return ops.einsum("bid,bjd->bij", x, y) if transpose else ops.matmul(x, y)


def two_sums(first: Tensor, second: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    """Sum two tensors of one shape over an axis; on JAX in one operation."""
    return ops.sum(first, axis), ops.sum(second, axis)


@functools.cache
def _has_xla():
    return tf.test.is_built_with_xla()


@functools.cache
def _device() -> Device:
    return "gpu" if tf.config.get_visible_devices("GPU") else "cpu"


def _has_loops(graph):
    nodes = itertools.chain(graph.node, *(x.node_def for x in graph.library.function))
    return any(x.op in ("While", "StatelessWhile") for x in nodes)


def _is_loop(graph):
    return type(graph).__name__ == "WhileBodyFuncGraph"
