"""A recurrence whose weight gradients are computed after the loop.

The problem. A step of a decoder multiplies small matrices by large kernels. Automatic
differentiation computes the gradient of every kernel at every step, so it adds up T products of the
size of the kernel. It also stores every intermediate result.

The idea. A step is made of *sites*, which hold the weights, and of elementwise code between them.
The forward pass stores what each site received and returned. The backward pass has two stages:

1. A loop from the last step to the first reads the stored results instead of computing them again,
   and differentiates the code between the sites. Each site turns the gradients of its results into
   gradients of its arguments.
2. After the loop, each site computes the gradients of its weights from all steps at once. For a
   product this is one large product, several times as fast as the sum of T small ones. An
   automatic site without gradients of its own for its weights does so on JAX with a GPU alone;
   elsewhere its loop adds up.

The cost. For each step, memory holds the carry, the arguments and results of the sites, and the
gradients of the results. A tensor that several of them share is stored once.

A plain recurrent network, h_t = tanh(x_t + h_{t-1} W), with one site:

    >>> import numpy
    >>> from keras import ops
    >>> from keras_attention.recurrence import product, recur
    >>> x, kernel = ops.ones((100, 2, 3)), ops.ones((3, 3))
    >>> sites = {"state": product([kernel], added=[x])}
    >>> def step(call, hidden, inputs, constants):
    ...     (total,) = call("state", hidden)
    ...     hidden = ops.tanh(total)
    ...     return hidden, hidden
    >>> last, outputs = recur(step, sites, ops.zeros((2, 3)), inputs=None)
    >>> tuple(outputs.shape)
    (100, 2, 3)

References: https://arxiv.org/abs/1604.01946 (products of all steps at once, for gradients of
kernels); https://arxiv.org/abs/1606.03401 (what to store in a backward pass through time).
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from keras_attention._spec import is_floating
from keras_attention._typing import Nested, Tensor
from keras_attention.backend import (
    DIFFERENTIATES_LOOPS,
    capture_compiling,
    execution_context,
    jit,
    leaves,
    linearize,
    ops,
    scan,
    tree_map,
    unflatten_as,
    vjp,
)
from keras_attention.ops.gradients import weight_gradients
from keras_attention.ops.matmul import kernel_gradient, stored_transposed, sum_of_rows
from keras_attention.ops.matmul import project as multiply

__all__ = ["Site", "automatic", "product", "recur"]

# Steps are differentiated side by side as long as the numbers of a site's weights, times the steps,
# are at most these. A temporary of that size has 512 MiB in float32, and a decoder of
# `benchmarks/gpu_programs.py` needs one group for its 50 steps.
MOST_SIDE_BY_SIDE = 2**27


class Site(NamedTuple):
    """A function with weights, which each step calls once.

    "One step" means tensors `(B, ...)`; "all steps" means `(T, B, ...)`. The weights have no axis
    of steps.

    Attributes:
        weights: floating-point tensors, in a list.
        apply: `apply(weights, *arguments)` returns `(results, residuals)` of one step. Arguments,
            results and residuals are tensors in any nesting. The residuals are stored for the two
            functions below.
        backward: `backward(prepared, residuals, grad_output, *arguments)` returns gradients of the
            floating-point arguments of one step, in a list in their order.
        grad_params: `grad_params(weights, residuals, grad_output, *arguments)` returns gradients of
            the weights from all steps at once. If it is None, `backward` returns them after those
            of the arguments, and the loop adds them up.
        prepare: computes `prepared` from the weights, once before the loop.
        added: one tensor of all steps for each of the first results. Each step adds its slice.
    """

    weights: list[Tensor]
    apply: Callable[..., tuple[Nested, Nested]]
    backward: Callable[..., list[Tensor]]
    grad_params: Callable[..., list[Tensor]] | None = None
    prepare: Callable[[list[Tensor]], Any] = list
    added: Sequence[Tensor] = ()


def product(
    kernels: list[Tensor], bias: Tensor | None = None, added: Sequence[Tensor] = ()
) -> Site:
    """The site x W + y V + ... + b, with one argument for each kernel and one result."""
    count = len(kernels)

    def apply(weights, *xs):
        products = [multiply(x, kernel) for x, kernel in zip(xs, weights[:count], strict=True)]
        return [functools.reduce(ops.add, [*products, *weights[count:]])], []

    def backward(transposed, _, grad_output, *xs):
        return [multiply(grad_output[0], kernel) for kernel in transposed]

    def grad_params(weights, _, grad_output, *xs):
        biases = [sum_of_rows(grad_output[0])] * (len(weights) - count)
        return [kernel_gradient(x, grad_output[0]) for x in xs] + biases

    return Site(
        weights=leaves([*kernels, bias]),
        apply=apply,
        backward=backward,
        grad_params=grad_params,
        prepare=lambda weights: [*map(stored_transposed, weights[:count])],
        added=added,
    )


def automatic(
    weights: list[Tensor],
    function: Callable[..., tuple[Nested, Nested]],
    grad_params: Callable[..., list[Tensor]] | None = None,
) -> Site:
    """The site of any function, differentiated automatically.

    Without `grad_params`, the loop adds up the gradients of the weights. On JAX with a GPU, which
    wants few large operations, they are computed after the loop, from many steps side by side.

    Args:
        weights, grad_params: see `Site`.
        function: `function(weights, residuals, *arguments)` returns `(results, residuals)` of one
            step. In the forward pass the residuals that it is given are None. The backward pass
            calls it again, with those that it returned.
    """
    if grad_params is None and execution_context(*weights).vectorizes:

        def again(weights, residuals, *arguments):
            return function(weights, residuals, *arguments)[0]

        def grad_params(weights, residuals, grad_output, *arguments):
            numbers = sum(math.prod(x.shape) for x in weights)
            size = MOST_SIDE_BY_SIDE // max(1, numbers)
            return weight_gradients(again, weights, grad_output, size, residuals, *arguments)

    def apply(weights, *arguments):
        return function(weights, None, *arguments)

    def backward(weights, residuals, grad_output, *arguments):
        def run(floats, *traced):
            rest = iter(floats)
            now = tree_map(lambda x: next(rest) if is_floating(x) else x, arguments)
            return function(*traced or [weights], residuals, *now)[0], None

        inputs = (_floats(arguments),) if grad_params else (_floats(arguments), list(weights))
        return leaves(vjp(run, inputs, grad_output)[0])

    return Site(weights, apply, backward, grad_params)


def _floats(arguments):
    return list(filter(is_floating, leaves(arguments)))


# call(name of the site, *arguments) -> results
Call = Callable[..., Nested]
# step(call, carry, inputs, constants) -> (carry, outputs)
Step = Callable[[Call, Nested, Nested, Nested], tuple[Nested, Nested]]


def recur(
    step: Step,
    sites: dict[str, Site],
    carry: Nested,
    inputs: Nested,
    constants: Nested = None,
    unroll: bool = False,
    training: bool = True,
    steps: Tensor | None = None,
) -> tuple[Nested, Nested]:
    """Runs a recurrence over the first axis of its inputs.

    Args:
        step: one step. It calls every site once, by its name. It and the sites use no other tensors
            than these arguments: JAX may run them again, after the code around them has ended.
        sites: the sites, by name.
        carry: what goes from step to step: floating-point tensors in any nesting.
        inputs: what a step reads beside its carry, such as masks, `(T, ...)` in any nesting. No
            gradient flows to them.
        constants: what every step reads, tensors in any nesting. No gradient flows to them.
        unroll: whether to copy the step T times, instead of a loop.
        training: whether gradients will be needed, so that XLA may compile the forward pass too.
        steps: how many steps to run, a scalar tensor. The outputs of the others are zero. Only
            where `ExecutionContext.compiles_loops` is true.

    Returns:
        The last carry, and the outputs of all steps.
    """
    if not DIFFERENTIATES_LOOPS:
        options = {"unroll": unroll, "steps": steps, "all_needed": training}
        options |= {"differentiated": False}  # it has a gradient of its own
        return _Recurrence(step, sites, options)(carry, inputs, constants, training)

    def body(carry, x):
        added, inputs = x

        def call(name, *arguments):
            results, _ = sites[name].apply(sites[name].weights, *arguments)
            return _plus_added(results, added[name])

        return step(call, carry, inputs, constants)

    added = {name: list(site.added) for name, site in sites.items()}
    return scan(body, carry, (added, inputs), unroll=unroll)


class _Recurrence:
    """A recurrence with its own gradient; see `recurrence/__init__.py`."""

    def __init__(self, step, sites, options):
        self.step, self.sites, self.options = step, sites, options
        self.places = None

    def __call__(self, carry, inputs, constants, training):
        compiling = capture_compiling()
        weights, added = {}, {}
        for name, site in self.sites.items():
            weights[name], added[name] = list(site.weights), list(site.added)
        given = (carry, weights, added), (inputs, constants)
        forward, backward = self.forward, self.backward
        if execution_context(*leaves(given[0])).compiles_loops:
            # Without training, the forward pass may be exported for a server without XLA.
            forward = jit(forward) if training else forward
            backward, compiling = jit(backward), compiling._replace(by_caller=True)
        structure = []

        @ops.custom_gradient
        def run(*tensors):
            (carry, weights, added), others = unflatten_as(given, tensors)
            results, stored = forward(carry, weights, added, *others)
            structure[:] = [results]
            # `backward` does not read the other outputs. Holding them would waste memory.
            read, first = leaves(self.places), len(leaves(inputs))
            outputs = [x if n in read else None for n, x in enumerate(leaves(results[1]), first)]

            def gradient(*grad_output):
                grad_output = unflatten_as(results, leaves(grad_output))
                with compiling.restored():
                    found = backward(weights, [*outputs, *stored], grad_output, *others)
                return (*leaves(found), *[None] * len(leaves(others)))

            return tuple(leaves(results)), gradient

        results = run(*leaves(given))
        return unflatten_as(structure[0], list(results))

    def forward(self, carry, weights, added, inputs, constants):
        """The results, and for every step what else `backward` reads, each tensor once."""

        def body(carry, x):
            added, inputs = x
            carry, arguments, results, residuals = _without_duplicates(carry), {}, {}, {}

            def call(name, *args):
                if name in results:
                    raise ValueError(f"A step called the site {name!r} twice; give it two sites.")
                returned, residuals[name] = self.sites[name].apply(weights[name], *args)
                arguments[name], results[name] = args, _plus_added(returned, added[name])
                return results[name]

            new, outputs = self.step(call, carry, inputs, constants)
            missing = self.sites.keys() - results.keys()
            if missing:
                raise ValueError(f"A step did not call the sites {sorted(missing)}.")
            of_step = carry, arguments, results, residuals
            stored_already = [*leaves(inputs), *leaves(outputs)]
            stored, places = _distinct(stored_already, leaves(of_step))
            places = unflatten_as(of_step, places)
            if self.places not in (None, places):
                raise ValueError("Every step must compute the same.")
            self.places = places
            return new, (outputs, stored)

        last, (outputs, stored) = scan(body, carry, (added, inputs), **self.options)
        return (last, outputs), stored

    def backward(self, weights, stored, grad_output, inputs, constants):
        """The gradients of the carry, of the weights and of what is added.

        Args:
            stored: the outputs, None in place of those that it does not read, then what `forward`
                stored.
            grad_output: the gradients of the results.
        """
        grad_last, grad_outputs = grad_output
        prepared, totals = {}, {}
        for name, site in self.sites.items():
            prepared[name] = site.prepare(weights[name])
            if site.grad_params is None:
                totals[name] = [*map(ops.zeros_like, weights[name])]

        def body(carried, x):
            (grad_carry, totals), (stored, inputs, grad_outputs) = carried, x
            grad_carry, grad_results, grad_params = self._step_back(
                prepared, stored, (grad_carry, grad_outputs), inputs, constants
            )
            totals = {name: [*map(ops.add, x, grad_params[name])] for name, x in totals.items()}
            return (grad_carry, totals), grad_results

        (grad_carry, totals), grad_results = scan(
            body, (grad_last, totals), (stored, inputs, grad_outputs), reverse=True, **self.options
        )
        grad_params, grad_added = dict(totals), {}
        _, arguments, _, residuals = self._stored_by_site(inputs, stored)
        for name, site in self.sites.items():
            grad_output = grad_results[name]
            grad_added[name] = leaves(grad_output)[: len(site.added)]
            if site.grad_params is not None:
                grad_params[name] = site.grad_params(
                    weights[name], residuals[name], grad_output, *arguments[name]
                )
        return grad_carry, grad_params, grad_added

    def _step_back(self, prepared, stored, grad_output, inputs, constants):
        """The gradients of one step: of its carry, of the results of its sites, of their weights.

        The step runs again with the stored results in place of its sites, so what lies between two
        sites is differentiated automatically. The gradients go back from the end of the step to the
        last site, through this site, from its arguments to the site before, and so on.
        """
        carry, arguments, results, residuals = self._stored_by_site(inputs, stored)

        def between(carry, results):
            calls_in_order = []

            def call(name, *args):
                calls_in_order.append((name, _floats(args)))
                return results[name]

            return [("step", self.step(call, carry, inputs, constants)), *calls_in_order]

        names, pull = linearize(between, carry, results)
        # The gradient of every tensor of the carry and of the results, so far; None stands for 0.
        gradients = pull(0, grad_output)
        places = unflatten_as((carry, results), list(range(len(gradients))))
        grad_results, grad_params = {}, {}
        for n in range(len(names) - 1, 0, -1):
            name = names[n]
            # No earlier site reads these results, so their gradients are complete.
            grad_results[name] = _at(places[1][name], gradients, results[name])
            grad_inputs = self.sites[name].backward(
                prepared[name], residuals[name], grad_results[name], *arguments[name]
            )
            count = len(_floats(arguments[name]))
            grad_params[name] = grad_inputs[count:]
            for place, more in enumerate(pull(n, grad_inputs[:count])):
                if more is not None:
                    before = gradients[place]
                    gradients[place] = more if before is None else ops.add(before, more)
        return _at(places[0], gradients, carry), grad_results, grad_params

    def _stored_by_site(self, inputs, stored):
        """The carry, and by site what it received, its results and its residuals."""
        tensors = [*leaves(inputs), *stored]
        return unflatten_as(self.places, map(tensors.__getitem__, leaves(self.places)))


def _plus_added(results: Nested, added: Sequence[Tensor]) -> Nested:
    """The results of a site, with the slices of `Site.added` for this step."""
    return [*map(ops.add, results, added), *results[len(added) :]] if added else results


def _at(places, gradients, tensors):
    """The gradients of these tensors, from their places in a list, with zeros for None."""
    pairs = zip(leaves(places), leaves(tensors), strict=True)
    found = [ops.zeros_like(x) if gradients[n] is None else gradients[n] for n, x in pairs]
    return unflatten_as(tensors, found)


def _without_duplicates(carry):
    """Copies a tensor that the carry holds twice, so that each place gets its own gradient."""
    seen, tensors = set(), []
    for x in leaves(carry):
        tensors.append(ops.copy(x) if id(x) in seen else x)
        seen.add(id(x))
    return unflatten_as(carry, tensors)


def _distinct(stored_already, tensors):
    """The tensors that are not stored yet, each once; and the place of each in both lists."""
    stored, places = [*stored_already], []
    numbers = {id(x): n for n, x in enumerate(stored)}
    for x in tensors:
        if id(x) not in numbers:
            numbers[id(x)] = len(stored)
            stored.append(x)
        places.append(numbers[id(x)])
    return stored[len(stored_already) :], places
