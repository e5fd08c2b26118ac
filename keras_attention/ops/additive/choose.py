"""Which form of the additive score runs where. The measured sizes that decide are the constants.

| where                                | form, file                                             |
| ------------------------------------ | ------------------------------------------------------ |
| eager code or PyTorch, few pairs,    | `reference.py`, the equation, in the fewest operations |
| or one query                         |                                                        |
| one query in a graph, outside a loop | `whole`, `plain.py`, whose tanh is stored              |
| XLA compiles for a CPU, many pairs   | `grouped`, `cpu.py`, sums over groups of features      |
| the same, few pairs or one query     | `whole`, `plain.py`, whose gradient repeats the tanh   |
| XLA compiles for a GPU               | `fused`, `gpu.py`, passes over all pairs               |
| XLA compiles nothing                 | `blocked`, `plain.py`, a block of queries at a time    |

Why `grouped`: there XLA turns a group of features into one loop over all pairs. The loop uses the
vector units and all cores, and stores one number for a pair. From the equation, XLA would make a
tensor of U numbers for each pair.
"""

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

from keras_attention._typing import Tensor
from keras_attention.backend.compilation import (
    bound,
    pad_axis,
    round_up_length,
    run_as_graph,
    run_compiled,
    trace_once,
)
from keras_attention.backend.context import Place, on_device
from keras_attention.backend.operations import ops

__all__ = ["Forms", "run"]


# The table of measured sizes, on two cores. They count numbers of the tensor of all pairs,
# B Tq Tk U, unless noted otherwise. `python benchmarks/speed.py --only additive` repeats the
# measurements, unless a reason is given.

# Fewer numbers are computed whole, even where XLA compiles: a loop costs more than it saves.
SMALLEST = {"tensorflow": 2**20, "jax": 2**17}

# Eager code and PyTorch store up to SMALL_EAGER tanh: fewer operations matter more than memory.
# Of one query, all places but the loops of a graph store up to STORED tanh, which takes half the
# time of recomputing them. `python benchmarks/sweep.py --only "additive, one step"` measures it.
SMALL_EAGER = 2**18
STORED = 2**22

# Without XLA, every operation has a fixed price, and a block that fits into the cache of a core
# is faster than a larger one. Up to WHOLE numbers are one block, and so are samples of at most
# SMALLEST_SAMPLE: they are not worth a step in a loop.
BLOCK = 2**20
WHOLE = 2**22
SMALLEST_SAMPLE = 2**16

# Terms in a step of a loop. XLA reads groups of less than 16 from memory number by number,
# which takes four times as long. Sums of 4 to 31 terms have two groups: six times as fast on
# JAX as one term for a step. Shorter sums need no loop.
GROUP = 16
SHORTEST = 4

# Sums over features without a loop, in slices of whole vector registers (8 of float32). On
# TensorFlow they are faster by a fifth while the sum stays in the cache, B Tq Tk 8 numbers or
# more; on JAX they are four times slower.
LANES = 8
MOST_SLICES = 32
LARGEST_SLICE = 2**22

# Bounds of e^2a and e^2b, from their range: the product d1 d2 of two denominators must stay
# below 3.4e38, the largest float32. Below a = -43 the exponential e^2a vanishes; then e^2b must
# be too small to matter. Where all are near 1, rounding would be visible.
LARGEST_PRODUCT = math.exp(2 * 22)
LARGEST = math.exp(2 * 30)
SMALL = math.exp(2 / 8)


class Forms(NamedTuple):
    """The forms of one function: for small inputs, compiled for a CPU or a GPU, and without XLA."""

    whole: Callable
    grouped: Callable
    fused: Callable
    blocked: Callable


def run(
    place: Place, forms: Forms, query: Tensor, key: Tensor, vector: Tensor, *grad_output: Tensor
):
    """Calls the form that is fastest in this place, for these sizes."""
    inputs = (query, key, vector, *grad_output)
    if place.backend == "jax":
        on_cpu = functools.partial(_run_by_size, place, forms, bound(forms.grouped, place))
        return on_device(place, on_cpu, bound(run_compiled, forms.fused), *inputs)
    if place.device == "cpu":
        return _run_by_size(place, forms, bound(forms.grouped, place), *inputs)
    if place.xla == "inside":
        return forms.fused(*inputs)
    return _run_by_size(place, forms, forms.fused, *inputs)


def _run_by_size(place, forms, compiled, query, key, vector, *grad_output):
    """Calls the whole form for few pairs, and otherwise the one that XLA compiles, if it does."""
    inputs = (query, key, vector, *grad_output)

    def slow():
        # Many small operations are faster in a graph than in eager code.
        of_sequence, units = (None, None, query.shape[-1]), (query.shape[-1],)
        shapes = (of_sequence, of_sequence, units, (None, None, None))
        return run_as_graph(place, forms.blocked, shapes[: len(inputs)], *inputs)

    # One query has as many pairs as there are keys, so there is no memory to save.
    one_step = query.shape[1] == 1
    if place.xla == "nowhere" or (one_step and not place.compiled):
        return slow()
    if one_step:
        return forms.whole(*inputs)

    def fast():
        if place.xla == "inside":
            return trace_once(place, compiled, *inputs)
        if place.fixed:
            return run_compiled(compiled, *inputs)
        return _run_padded(place, compiled, *inputs)

    (batch, steps, units), length = ops.shape(query), ops.shape(key)[1]
    sizes = (batch, steps, length, units)
    smallest = SMALLEST[place.backend]
    if all(isinstance(size, int) for size in sizes):
        if math.prod(sizes) < smallest:
            return forms.whole(*inputs)
        rounded = batch, round_up_length(steps), round_up_length(length), units
        return fast() if place.may_compile(forms.grouped, *rounded, query.dtype) else slow()
    # The product may have more than 31 bits, so it is computed in floating point.
    size = math.prod(ops.cast(size, "float32") for size in sizes)
    results = ops.cond(size < smallest, lambda: forms.whole(*inputs), fast)
    # A conditional loses the sizes that are known.
    if not grad_output:
        return ops.reshape(results, (batch, steps, length))
    return tuple(ops.reshape(x, ops.shape(y)) for x, y in zip(results, inputs, strict=False))


def _run_padded(place, grouped, query, key, vector, *grad_output):
    """Pads the time axes to one of few lengths, so that XLA compiles few programs."""
    steps, length = ops.shape(query)[1], ops.shape(key)[1]
    # A length that the graph knows never changes, so it needs no rounding.
    more = [
        0 if place.graph and isinstance(size, int) else round_up_length(size) - size
        for size in (steps, length)
    ]
    query, key = pad_axis(query, 1, more[0]), pad_axis(key, 1, more[1])
    if not grad_output:
        return run_compiled(grouped, query, key, vector)[:, :steps, :length]
    grad_output = pad_axis(pad_axis(grad_output[0], 1, more[0]), 2, more[1])
    grad_query, grad_key, grad_vector = run_compiled(grouped, query, key, vector, grad_output)
    return grad_query[:, :steps], grad_key[:, :length], grad_vector
