"""A recurrence whose parameter gradients are computed after the loop.

The problem. A step of a decoder multiplies small matrices by large kernels. Automatic
differentiation computes the gradient of every kernel at every step, so it adds up T products of the
size of the kernel. It also stores every intermediate result.

The idea. A step is made of *ops*, which hold the parameters, and of elementwise code between them.
The forward pass stores the arguments and the results of each op. The backward pass has two stages:

1. A loop from the last step to the first reads the stored results instead of computing them again,
   and differentiates the code between the ops. Each op turns the gradients of its results into
   gradients of its arguments.
2. After the loop, each op computes the gradients of its parameters from all steps at once. For a
   product this is one large product, several times as fast as the sum of T small ones. An
   `AutomaticOp` does so where XLA compiles for a GPU; elsewhere the loop adds its gradients up.

The cost. For each step, memory holds the carry, the arguments and results of the ops, and the
gradients of the results. A tensor that several of them share is stored once.

A plain recurrent network, h_t = tanh(x_t + h_{t-1} W), with one op:

    >>> import numpy
    >>> from keras import ops
    >>> from keras_attention.recurrence import ProductOp, recur
    >>> x, kernel = ops.ones((100, 2, 3)), ops.ones((3, 3))
    >>> product = ProductOp([kernel], input_projections=[x])
    >>> def step(call, hidden, inputs, constants):
    ...     (total,) = call("product", hidden)
    ...     hidden = ops.tanh(total)
    ...     return hidden, hidden
    >>> last, outputs = recur(step, {"product": product}, ops.zeros((2, 3)), inputs=None)
    >>> tuple(outputs.shape)
    (100, 2, 3)

References: https://arxiv.org/abs/1604.01946 (products of all steps at once, for gradients of
kernels); https://arxiv.org/abs/1606.03401 (what to store in a backward pass through time).
"""

import functools
import math
from collections.abc import Callable, Sequence

from keras_attention._spec import is_floating
from keras_attention._typing import Nested, Tensor
from keras_attention.backend import (
    DIFFERENTIATES_LOOPS,
    Function,
    capture_compiling,
    execution_context,
    jit,
    kernel_gradient,
    leaves,
    linearize,
    ops,
    project,
    scan,
    tree_map,
    unflatten_as,
    vjp,
)
from keras_attention.ops.gradients import weight_gradients
from keras_attention.ops.matmul import bias_gradient, materialized_transpose
from keras_attention.ops.padding import pad_axis, round_up_length

__all__ = ["MAX_VECTORIZED", "AutomaticOp", "Op", "ProductOp", "StepFunction", "recur"]

# Largest (parameters x steps) that one vectorized gradient may cover: 2**27 float32 values, 512
# MiB. A decoder of `benchmarks/gpu_programs.py` then needs one group for its 50 steps.
MAX_VECTORIZED = 2**27


class Op:
    """A function with parameters, which each step calls once, and its gradient.

    "One step" means tensors `(B, ...)`; "all steps" means `(T, B, ...)`. The parameters have no
    axis of steps.

    Attributes:
        params: floating-point tensors.
        input_projections: one tensor of all steps for each of the first results. Each step adds its
            slice.
        sums_in_loop: whether the loop adds up the gradients of the parameters, which `backward`
            then returns after those of the arguments. Otherwise `grad_params` computes them.
    """

    params: list[Tensor]
    input_projections: list[Tensor]
    sums_in_loop: bool = False

    def __init__(self, params: list[Tensor], input_projections: Sequence[Tensor] = ()) -> None:
        self.params, self.input_projections = params, list(input_projections)

    def forward(self, params: list[Tensor], *args: Nested) -> tuple[Nested, Nested]:
        """Compute `(results, residuals)` of one step; the residuals are stored for the gradients.

        Arguments, results and residuals are tensors in any nesting.
        """
        raise NotImplementedError

    def prepare(self, params: list[Tensor]) -> list[Tensor]:
        """Compute, once before the backward loop, what `backward` needs of the parameters."""
        return params

    def backward(
        self, prepared: list[Tensor], residuals: Nested, grad_output: Nested, *args: Nested
    ) -> list[Tensor]:
        """Compute the gradients of the floating-point arguments of one step, in their order."""
        raise NotImplementedError

    def grad_params(
        self, params: list[Tensor], residuals: Nested, grad_output: Nested, *args: Nested
    ) -> list[Tensor]:
        """Compute the gradients of the parameters from all steps at once."""
        raise NotImplementedError


class ProductOp(Op):
    """Computes x W + y V + ... + b, from one argument for each kernel.

    Args:
        kernels: W, V and so on. bias: b, or None. input_projections: see `Op`.
    """

    def __init__(
        self,
        kernels: list[Tensor],
        bias: Tensor | None = None,
        input_projections: Sequence[Tensor] = (),
    ) -> None:
        super().__init__(leaves([kernels, bias]), input_projections)
        self.count: int = len(kernels)

    def forward(self, params: list[Tensor], *args: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        products = map(project, args, params[: self.count])
        return [functools.reduce(ops.add, [*products, *params[self.count :]])], []

    def prepare(self, params: list[Tensor]) -> list[Tensor]:
        return [*map(materialized_transpose, params[: self.count])]

    def backward(
        self, prepared: list[Tensor], residuals: Nested, grad_output: Nested, *args: Nested
    ) -> list[Tensor]:
        return [project(grad_output[0], kernel) for kernel in prepared]

    def grad_params(
        self, params: list[Tensor], residuals: Nested, grad_output: Nested, *args: Nested
    ) -> list[Tensor]:
        kernels = [kernel_gradient(x, grad_output[0]) for x in args]
        return kernels + [bias_gradient(grad_output[0])] * (len(params) - self.count)


class AutomaticOp(Op):
    """Differentiates its `forward` automatically.

    The backward pass calls `forward` again, with the stored residuals. The loop adds up the
    gradients of the parameters. On JAX with a GPU, which wants few large operations, they are
    computed after the loop, many steps in one vectorized call.
    """

    def __init__(self, params: list[Tensor]) -> None:
        super().__init__(params)
        self.sums_in_loop: bool = not execution_context(*params).vectorizes

    def forward(
        self, params: list[Tensor], *args: Nested, residuals: Nested = None
    ) -> tuple[Nested, Nested]:
        """Compute `(results, residuals)`. `residuals`: those of the forward pass, or None."""
        raise NotImplementedError

    def backward(
        self, prepared: list[Tensor], residuals: Nested, grad_output: Nested, *args: Nested
    ) -> list[Tensor]:
        def run(floats, params):
            rest = iter(floats)
            now = tree_map(lambda x: next(rest) if is_floating(x) else x, args)
            return self.forward(params or prepared, *now, residuals=residuals)[0], None

        inputs = _floats(args), list(prepared) if self.sums_in_loop else []
        return leaves(vjp(run, inputs, grad_output)[0])

    def grad_params(
        self, params: list[Tensor], residuals: Nested, grad_output: Nested, *args: Nested
    ) -> list[Tensor]:
        def run(params, residuals, *args):
            return self.forward(params, *args, residuals=residuals)[0]

        size = MAX_VECTORIZED // (1 + sum(math.prod(ops.shape(x)) for x in params))
        return weight_gradients(run, params, grad_output, size, residuals, *args)


class _Calls:
    """Calls the ops of one step by their names, and records what their gradients need.

    Args:
        named_ops: the ops, by name.
        params: the parameters of each op, by name, in place of its own.
        input_projections: the slices of this step, by name.
    """

    def __init__(self, named_ops, params, input_projections):
        self.named_ops, self.params, self.projections = named_ops, params, input_projections
        self.arguments, self.results, self.residuals = {}, {}, {}

    def __call__(self, name, *args):
        if name in self.results:
            raise ValueError(f"A step called the op {name!r} twice; give it two ops.")
        results, self.residuals[name] = self.named_ops[name].forward(self.params[name], *args)
        slices = self.projections[name]
        if slices:
            results = [*map(ops.add, results, slices), *results[len(slices) :]]
        self.arguments[name], self.results[name] = args, results
        return results


# step(call, carry, inputs, constants) -> (carry, outputs). `call(name, *args)` returns the results
# of an op.
StepFunction = Callable[[Function, Nested, Nested, Nested], tuple[Nested, Nested]]


def recur(
    step: StepFunction,
    named_ops: dict[str, Op],
    carry: Nested,
    inputs: Nested,
    constants: Nested = None,
    unroll: bool = False,
    training: bool = True,
) -> tuple[Nested, Nested]:
    """Run a recurrence over the first axis of its inputs.

    Args:
        step: one step. It calls every op once, by its name. It and the ops use no other tensors
            than these arguments: JAX may run them again, after the code around them has ended.
        named_ops: the ops, by name.
        carry: the state of the loop: floating-point tensors in any nesting.
        inputs: the other inputs of a step, such as masks, `(T, ...)` in any nesting. No
            gradient flows to them.
        constants: inputs of all steps, tensors in any nesting. No gradient flows to them.
        unroll: whether to copy the step T times, instead of a loop.
        training: whether gradients will be needed, so that XLA may compile the forward pass too.

    Returns:
        The last carry, and the outputs of all steps.
    """
    params = {name: list(op.params) for name, op in named_ops.items()}
    projections = {name: op.input_projections for name, op in named_ops.items()}
    compiles = execution_context(*leaves((carry, params, projections))).compiles_loops
    steps = ops.shape(leaves((projections, inputs))[0])[0]
    limit = None
    if compiles and training and not isinstance(steps, int):
        # XLA compiles few programs for all lengths, and skips the padding.
        limit, missing = steps, round_up_length(steps) - steps
        projections, inputs = tree_map(lambda x: pad_axis(x, 0, missing), (projections, inputs))
    # The recurrence has a gradient of its own.
    options = {"unroll": unroll, "steps": limit, "all_needed": training, "differentiated": False}
    recurrence = _Recurrence(step, named_ops, options)
    if DIFFERENTIATES_LOOPS:  # autograd differentiates the steps of a loop itself
        body = functools.partial(recurrence.plain_step, params, constants)
        return scan(body, carry, (projections, inputs), unroll=unroll)
    forward_loop, backward, settings = scan, recurrence.backward, capture_compiling()
    arguments = (carry, params, projections), (inputs, constants)
    if compiles:
        # Without training, the forward pass may be exported for a server without XLA.
        forward_loop = jit(scan) if training else scan
        backward, settings = jit(backward), settings._replace(by_caller=True)
    structure = []

    @ops.custom_gradient
    def run(*tensors):
        (carry, params, projections), (inputs, constants) = unflatten_as(arguments, tensors)
        body = functools.partial(recurrence.forward_step, params, constants)
        last, (outputs, stored) = forward_loop(body, carry, (projections, inputs), **options)
        structure[:] = [results := (last, outputs)]
        # `backward` does not read the other outputs. Holding them would waste memory.
        read, first = set(leaves(recurrence.indices)), len(leaves(inputs))
        held = [x if n in read else None for n, x in enumerate(leaves(outputs), first)]

        def gradient(*grad_output):
            grad_output = unflatten_as(results, leaves(grad_output))
            with settings.restored():
                grads = backward(params, [*held, *stored], grad_output, inputs, constants)
            return (*leaves(grads), *[None] * len(leaves((inputs, constants))))

        return tuple(leaves(results)), gradient

    results = run(*leaves(arguments))
    last, outputs = unflatten_as(structure[0], list(results))
    return last, outputs if limit is None else tree_map(lambda x: x[:steps], outputs)


class _Recurrence:
    """The steps of a recurrence, forward and backward.

    Attributes:
        indices: where each tensor of a step is stored: the carry, then the arguments, results and
            residuals of the ops. An index counts the inputs of the step first, then its outputs,
            then the tensors that are neither.
        options: of the loops.
    """

    def __init__(self, step, named_ops, options):
        self.step, self.named_ops, self.options = step, named_ops, options
        self.indices = None

    def plain_step(self, params, constants, carry, x):
        """Return the new carry and the outputs."""
        projections, inputs = x
        return self.step(_Calls(self.named_ops, params, projections), carry, inputs, constants)

    def forward_step(self, params, constants, carry, x):
        """Return the new carry, the outputs, and what else `backward` reads, each tensor once."""
        projections, inputs = x
        carry = _without_duplicates(carry)
        call = _Calls(self.named_ops, params, projections)
        new, outputs = self.step(call, carry, inputs, constants)
        missing = self.named_ops.keys() - call.results.keys()
        if missing:
            raise ValueError(f"A step did not call the ops {sorted(missing)}.")
        of_step = carry, call.arguments, call.results, call.residuals
        stored_already = [*leaves(inputs), *leaves(outputs)]
        stored, indices = _distinct(stored_already, leaves(of_step))
        indices = unflatten_as(of_step, indices)
        if self.indices not in (None, indices):
            raise ValueError(
                "`step` built different operations when it was traced again; it must not depend "
                "on mutable Python state."
            )
        self.indices = indices
        return new, (outputs, stored)

    def backward(self, params, stored, grad_output, inputs, constants):
        """Return the gradients of the carry, of the parameters and of the input projections.

        Args:
            stored: the outputs, None in place of those that it does not read, then what
                `forward_step` stored.
            grad_output: the gradients of the results.
        """
        grad_last, grad_outputs = grad_output
        prepared = {name: op.prepare(params[name]) for name, op in self.named_ops.items()}
        totals = {
            name: [*map(ops.zeros_like, params[name])]
            for name, op in self.named_ops.items()
            if op.sums_in_loop
        }

        def body(carried, x):
            (grad_carry, totals), (stored, inputs, grad_outputs) = carried, x
            grad_carry, grad_results, grad_params = self.backward_step(
                prepared, stored, (grad_carry, grad_outputs), inputs, constants
            )
            totals = {name: [*map(ops.add, x, grad_params[name])] for name, x in totals.items()}
            return (grad_carry, totals), grad_results

        (grad_carry, grad_params), grad_results = scan(
            body, (grad_last, totals), (stored, inputs, grad_outputs), reverse=True, **self.options
        )
        _, arguments, _, residuals = self._by_op(inputs, stored)
        grad_projections = {}
        for name, op in self.named_ops.items():
            grad = grad_results[name]
            grad_projections[name] = leaves(grad)[: len(op.input_projections)]
            if not op.sums_in_loop:
                of_op = residuals[name], arguments[name]
                # A function may have no gradient at the zeros of steps that did not run.
                if isinstance(op, AutomaticOp) and self.options["steps"] is not None:
                    of_op = tree_map(self._with_first_step, of_op)
                grad_params[name] = op.grad_params(params[name], of_op[0], grad, *of_op[1])
        return grad_carry, {name: grad_params[name] for name in params}, grad_projections

    def backward_step(self, prepared, stored, grad_output, inputs, constants):
        """Return the gradients of one step: of its carry, of results and of parameters, by op.

        The step runs again with the stored results in place of its ops, so the code between two ops
        is differentiated automatically. The gradients go back from the end of the step to the last
        op, through this op, from its arguments to the op before, and so on.
        """
        carry, arguments, results, residuals = self._by_op(inputs, stored)

        def between(carry, results):
            calls_in_order = []

            def call(name, *args):
                calls_in_order.append((name, _floats(args)))
                return results[name]

            return [("step", self.step(call, carry, inputs, constants)), *calls_in_order]

        names, pull = linearize(between, carry, results)
        # The gradient of every tensor of the carry and of the results, so far; None stands for 0.
        gradients = pull(0, grad_output)
        indices = unflatten_as((carry, results), list(range(len(gradients))))
        grad_results, grad_params = {}, {}
        for n in range(len(names) - 1, 0, -1):
            name = names[n]
            # No earlier op reads these results, so their gradients are complete.
            grad_results[name] = _at(indices[1][name], gradients, results[name])
            grads = self.named_ops[name].backward(
                prepared[name], residuals[name], grad_results[name], *arguments[name]
            )
            count = len(_floats(arguments[name]))
            grad_params[name] = grads[count:]
            for index, more in enumerate(pull(n, grads[:count])):
                if more is not None:
                    before = gradients[index]
                    gradients[index] = more if before is None else ops.add(before, more)
        return _at(indices[0], gradients, carry), grad_results, grad_params

    def _with_first_step(self, x):
        """Put the first step of `(T, ...)` in place of the steps that did not run."""
        ran = ops.arange(ops.shape(x)[0], dtype="int32") < self.options["steps"]
        return ops.where(ops.reshape(ran, (-1, *[1] * (len(x.shape) - 1))), x, x[:1])

    def _by_op(self, inputs, stored):
        """Return the carry, and the arguments, results and residuals by op."""
        tensors = [*leaves(inputs), *stored]
        return unflatten_as(self.indices, map(tensors.__getitem__, leaves(self.indices)))


def _floats(arguments):
    return list(filter(is_floating, leaves(arguments)))


def _at(indices, gradients, tensors):
    """Return the gradients of these tensors, from their indices in a list, with zeros for None."""
    pairs = zip(leaves(indices), leaves(tensors), strict=True)
    grads = [ops.zeros_like(x) if gradients[n] is None else gradients[n] for n, x in pairs]
    return unflatten_as(tensors, grads)


def _without_duplicates(carry):
    """Copy a tensor that the carry holds twice, so that each copy gets its own gradient."""
    seen, tensors = set(), []
    for x in leaves(carry):
        tensors.append(ops.copy(x) if id(x) in seen else x)
        seen.add(id(x))
    return unflatten_as(carry, tensors)


def _distinct(stored_already, tensors):
    """Return the tensors that are not stored yet, each once, and the index of each tensor."""
    stored, indices = [*stored_already], []
    known = {id(x): n for n, x in enumerate(stored)}
    for x in tensors:
        if id(x) not in known:
            known[id(x)] = len(stored)
            stored.append(x)
        indices.append(known[id(x)])
    return stored[len(stored_already) :], indices
