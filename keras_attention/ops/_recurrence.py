"""A recurrence with a gradient of its own: few tensors are stored, and products are large.

The step of a decoder is made of parts with weights, such as products and the attention, and of
what lies between them, such as gates. The forward pass stores the carry, the results of all parts
and what else a part asks for. The backward pass has two stages:

1. A loop from the last step to the first finds the gradients of the carries and of the results
   of all parts. It takes the stored results instead of computing the parts again.
2. The gradients of the weights of a part follow from all of its arguments and results at once. A
   product of all steps is several times as fast as the sum of the products of each step, and
   nothing of the size of the weights is added up in the loop. The gradients of the weights of a
   part that is `summed` are added up in the first stage instead.
"""

from collections.abc import Callable

import keras
from keras import ops

from keras_attention._typing import Nested, Tensor
from keras_attention.ops._gradients import vector_jacobian
from keras_attention.ops._graphs import in_compiled_code, in_graph, treated_as_compiled
from keras_attention.ops._loops import leaves, pack_like, scan
from keras_attention.ops._parts import (
    Part,
    gradients_of_weights,
    known_results,
    with_added,
)
from keras_attention.ops._xla import (
    compile_choice,
    compiled_alone,
    compiling,
    where_to_run,
)

# call(part, *arguments) -> the results of the part
Call = Callable[..., list[Tensor]]
# step(call, carry, inputs) -> (carry, outputs)
Step = Callable[[Call, Nested, Nested], tuple[Nested, Nested]]


def recur(
    step: Step,
    parts: list[Part],
    carry: Nested,
    inputs: Nested,
    unroll: bool,
    training: bool,
    steps: Tensor | None = None,
) -> tuple[Nested, Nested]:
    """Runs a recurrence over the first axis of the inputs.

    Args:
        step: one step. It calls every part once, in the order of the list. Everything else that it
            uses is constant: no gradient flows to it.
        parts: the parts.
        carry: what goes from step to step: floating-point tensors in any nesting.
        inputs: what every step reads beside its carry: masks and positions `(T, ...)`, in any
            nesting. No gradient flows to them.
        unroll: see `scan`.
        training: whether gradients will be needed. They are right otherwise, too.
        steps: see `scan`; only where `runs_alone`.

    Returns:
        The last carry, and the outputs of all steps.
    """

    if not training or keras.backend.backend() == "torch":
        added = [part.added for part in parts]

        def body(carry, x):
            added, inputs = x
            rest = iter(added)

            def call(part, *arguments):
                return with_added(part.once(part.weights, *arguments)[0], next(rest))

            return step(call, carry, inputs)

        return scan(body, carry, (added, inputs), unroll=unroll)
    return _Recurrence(step, parts, unroll, steps)(carry, inputs)


def runs_alone(*tensors: Tensor) -> bool:
    """Whether XLA compiles a recurrence in a TensorFlow graph that it does not compile itself."""
    return in_graph() and not in_compiled_code() and where_to_run(*tensors) == "alone"


class _Recurrence:
    """Runs a recurrence in training, and gives it its gradient."""

    def __init__(self, step, parts, unroll, steps):
        self.step, self.parts, self.unroll, self.steps = step, parts, unroll, steps

    def __call__(self, carry, inputs):
        choice, compiled = compile_choice(), in_compiled_code()
        self.inputs = inputs
        # JAX refuses to differentiate tensors that a custom gradient takes from outside.
        weights, added = zip(*((part.weights, part.added) for part in self.parts), strict=True)
        given = carry, weights, added
        forward, backward = self.forward, self.backward
        if runs_alone(*leaves(given)):
            forward, backward, compiled = compiled_alone(forward), compiled_alone(backward), True
        structure = []

        # Not `differentiable`, because this gradient reads what the forward pass stored.
        @ops.custom_gradient
        def run(*tensors):
            results, stored = forward(*pack_like(given, tensors))
            structure[:] = [results]

            def grad(*upstream):
                _, weights, _ = pack_like(given, tensors)
                of_results = pack_like(results, leaves(upstream))
                with compiling(choice), treated_as_compiled(compiled):
                    return tuple(leaves(backward(weights, stored, of_results)))

            return tuple(leaves(results)), grad

        found = run(*leaves(given))
        return pack_like(structure[0], list(found))

    def forward(self, carry, weights, added):
        def body(carry, x):
            added, inputs = x
            found = []

            def call(part, *arguments):
                n = len(found)
                results, stored = part.once(weights[n], *arguments)
                found.append((with_added(results, added[n]), stored))
                return found[n][0]

            new, outputs = self.step(call, carry, inputs)
            return new, (outputs, carry, *zip(*found, strict=True))

        last, (outputs, *kept) = scan(
            body, carry, (added, self.inputs), unroll=self.unroll, steps=self.steps
        )
        return (last, outputs), kept

    def backward(self, weights, kept, upstream):
        all_carries, all_results, all_stored = kept
        of_last, of_outputs = upstream
        prepared = [part.prepare(x) for part, x in zip(self.parts, weights, strict=True)]
        summed = [x if part.summed else [] for part, x in zip(self.parts, weights, strict=True)]
        arguments = []

        def body(carried, x):
            of_carry, totals = carried
            (carry, results, stored), inputs, of_outputs = x

            def run(carry, zeros, summed):
                origins = _Origins()
                origins.add(carry, all_carries)
                origins.add(inputs, self.inputs)
                found, new = [], []

                def call(part, *given):
                    n = len(found)
                    # An argument that is stored already is not stored again.
                    found.append([] if part.summed else [origins.find(x) for x in given])
                    new.append([x for x, y in zip(given, found[n], strict=False) if y is None])
                    known = known_results(
                        part, prepared[n], results[n], stored[n], zeros[n], summed[n], *given
                    )
                    origins.add(known, all_results[n])
                    return known

                output = self.step(call, carry, inputs)
                arguments[:] = found
                return output, new

            # The gradient of a zero that is added to a result is the gradient of the result.
            zeros = [[ops.zeros_like(x) for x in xs] for xs in results]
            (of_carry, of_results, more), new = vector_jacobian(
                run, (carry, zeros, summed), (of_carry, of_outputs)
            )
            totals = pack_like(totals, [*map(ops.add, leaves(totals), leaves(more))])
            return (of_carry, totals), (of_results, new)

        inputs = kept, self.inputs, of_outputs
        totals = pack_like(summed, [ops.zeros_like(x) for x in leaves(summed)])
        (of_carry, totals), (of_results, new) = scan(
            body, (of_last, totals), inputs, reverse=True, unroll=self.unroll, steps=self.steps
        )
        new = iter(leaves(new))
        arguments = [[next(new) if x is None else x for x in xs] for xs in arguments]
        given = zip(self.parts, weights, all_stored, arguments, of_results, strict=True)
        of_weights = [
            total if part.summed else gradients_of_weights(part, *rest)
            for total, (part, *rest) in zip(totals, given, strict=True)
        ]
        of_added = [x[: len(part.added)] for x, part in zip(of_results, self.parts, strict=True)]
        return of_carry, of_weights, of_added


class _Origins:
    """Maps a tensor of one step to the stored tensor that it is a slice of."""

    def __init__(self):
        self.known = {}

    def add(self, of_step, of_all):
        for x, y in zip(leaves(of_step), leaves(of_all), strict=True):
            self.known[id(x)] = x, y  # x stays alive, so no other tensor gets its id

    def find(self, x):
        return self.known.get(id(x), (x, None))[1]
