"""Dispatch of the additive score to implementations.

| where                                | implementation                                         |
| ------------------------------------ | ------------------------------------------------------ |
| eager code or PyTorch, few pairs,    | `reference.py`, the equation, in the fewest operations |
| or one query                         |                                                        |
| one query in a graph, outside a loop | `dense.py`, whose tanh is stored                       |
| XLA compiles for a CPU, many pairs   | `feature_blocked.py`, sums over blocks of features     |
| the same, few pairs or one query     | `dense.py`, whose gradient repeats the tanh            |
| XLA compiles for a GPU               | `fused.py`, passes over all pairs                      |
| XLA compiles nothing                 | `query_tiled.py`, a tile of queries at a time          |

Why feature blocks: there XLA turns a block of features into one loop over all pairs. The loop uses
the vector units and all cores, and stores one value for a pair. From the equation, XLA would make a
tensor of U values for each pair.
"""

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import keras

from keras_attention._typing import Tensor
from keras_attention.backend import (
    ExecutionContext,
    custom_vjp,
    differentiate_as,
    execution_context,
    in_loop,
    may_compile,
    on_device,
    ops,
    run_after,
    run_compiled,
    run_traced,
)
from keras_attention.ops.additive.dense import dense_gradient, dense_score, score_by_sample
from keras_attention.ops.additive.feature_blocked import (
    feature_blocked_gradient,
    feature_blocked_score,
)
from keras_attention.ops.additive.fused import fused_gradient, fused_score
from keras_attention.ops.additive.query_tiled import query_tiled_gradient, query_tiled_score
from keras_attention.ops.additive.reference import score
from keras_attention.ops.matmul import cast
from keras_attention.ops.padding import pad_axis, round_up_length

__all__ = ["additive_score"]

# Numbers of elements of the tensor of all pairs, B Tq Tk U, measured on two cores.
# `python benchmarks/speed.py --only "additive score"` repeats them, unless another is given.

# Up to SMALLEST elements are computed densely, even where XLA compiles: a loop costs more than it
# saves.
SMALLEST = {"tensorflow": 2**20, "jax": 2**17}

# Eager code and PyTorch store up to SMALL_EAGER tanh: fewer operations matter more than memory.
# Of one query, everything but the loops of a graph stores up to STORED tanh, which takes half the
# time of recomputing them. `python benchmarks/speed.py --only "additive, one step"` measures it.
SMALL_EAGER = 2**18
STORED = 2**22


class Implementations(NamedTuple):
    """The implementations of the score, or of its gradient."""

    dense: Callable
    feature_blocked: Callable
    fused: Callable
    query_tiled: Callable


SCORE = Implementations(dense_score, feature_blocked_score, fused_score, query_tiled_score)
GRADIENT = Implementations(
    dense_gradient, feature_blocked_gradient, fused_gradient, query_tiled_gradient
)


def additive_score(query: Tensor, key: Tensor, vector: Tensor) -> Tensor:
    """Score every query against every key, in a common space of U features.

        e[b,i,j] = sum_u v[u] tanh(q[b,i,u] + k[b,j,u])

    The tensor of size B Tq Tk U is never materialised when it is large. XLA sums over blocks of
    features on a CPU, and over all in one kernel on a GPU; the gradient recomputes the tanh.
    Without XLA, the sum runs over tiles of queries instead.

    Sizes: B samples, Tq query and Tk memory steps, U features.

    Args:
        query: q, `(B, Tq, U)`, already projected. Add the bias to it, if you use one.
        key: k, `(B, Tk, U)`, already projected.
        vector: v, `(U,)`.

    Returns:
        Scores `(B, Tq, Tk)` in the dtype of the inputs. Half-precision inputs are summed in
        float32. Second derivatives exist, but need memory for B Tq Tk U values.

    Example:
        >>> import numpy
        >>> from keras_attention.ops import additive_score
        >>> query, key = numpy.zeros((2, 3, 5)), numpy.ones((2, 7, 5))
        >>> scores = additive_score(query, key, numpy.ones(5))
        >>> tuple(scores.shape), round(float(scores[0, 0, 0]), 4)
        ((2, 3, 7), 3.808)

    Reference: https://arxiv.org/abs/1409.0473, appendix A.1.2.
    """
    # On JAX and PyTorch, the result type of Keras is never float64.
    dtypes = [*map(keras.backend.standardize_dtype, (query.dtype, key.dtype, vector.dtype))]
    wide = "float64" if "float64" in dtypes else "float32"
    dtype = wide if wide in dtypes else keras.backend.result_type(*dtypes)
    inputs = query, key, vector = cast(query, wide), cast(key, wide), cast(vector, wide)
    context = execution_context(query, key)
    if _stores_tanh(context, query, key):
        implementation = score
        if context.graph:
            implementation = score_by_sample if context.compiled else dense_score
        return cast(implementation(*inputs), dtype)
    run_here = functools.partial(run, context, SCORE)
    return cast(custom_vjp(run_here, _gradient, *inputs), dtype)


def _stores_tanh(context, query, key):
    """Return True to store the tanh for the gradient, which is faster than recomputing them."""
    sizes = *query.shape, key.shape[1]
    if context.backend == "jax" or None in sizes:
        return False
    count = math.prod(sizes)
    if query.shape[1] == 1 and count <= STORED:
        return not in_loop()
    return count <= SMALL_EAGER and not context.graph


def _gradient(query, key, vector, grad_output):
    """Compute the gradients of query, key and vector."""
    query = run_after(grad_output, query)
    gradient = functools.partial(run, execution_context(query, key), GRADIENT)
    return differentiate_as(dense_gradient, gradient, query, key, vector, grad_output)


def run(context: ExecutionContext, implementations: Implementations, *inputs: Tensor) -> Tensor:
    """Call the implementation that is fastest in this context, for these sizes.

    Args:
        inputs: query, key, vector, and for the gradient that of the scores.
    """
    _, feature_blocked, fused, _ = implementations
    if context.compiled_by == "caller" and context.device == "gpu":
        return fused(*inputs)
    on_cpu = functools.partial(_run_by_size, context, implementations, feature_blocked)
    compiled = functools.partial(run_compiled, fused)
    if not context.compiled:
        compiled = functools.partial(_run_by_size, context, implementations, fused)
    return on_device(on_cpu, compiled, *inputs)


def _run_by_size(context, implementations, compiled, query, key, vector, *grad_output):
    """Call the dense implementation for few pairs, otherwise the compiled one, if any."""
    inputs = (query, key, vector, *grad_output)

    def tiled():
        if context.graph:
            return implementations.query_tiled(*inputs)
        sequence, units = (None, None, query.shape[-1]), (query.shape[-1],)
        shapes = sequence, sequence, units, (None, None, None)
        return run_traced(implementations.query_tiled, *inputs, shapes=shapes[: len(inputs)])

    # One query has as many pairs as there are keys, so there is no memory to save.
    one_step = query.shape[1] == 1
    if context.compiled_by is None or (one_step and not context.compiled):
        return tiled()
    if one_step:
        return implementations.dense(*inputs)

    def fast():
        if context.compiled_by == "caller":
            return run_traced(compiled, *inputs)
        if context.static:
            return run_compiled(compiled, *inputs)
        return _run_padded(context, compiled, *inputs)

    (batch, steps, units), length = ops.shape(query), ops.shape(key)[1]
    sizes = (batch, steps, length, units)
    smallest = SMALLEST[context.backend]
    if all(isinstance(size, int) for size in sizes):
        if math.prod(sizes) < smallest:
            return implementations.dense(*inputs)
        rounded = batch, round_up_length(steps), round_up_length(length), units
        return fast() if may_compile(compiled, *rounded, query.dtype) else tiled()
    # The product may have more than 31 bits, so it is computed in floating point.
    size = math.prod(ops.cast(size, "float32") for size in sizes)
    results = ops.cond(size < smallest, lambda: implementations.dense(*inputs), fast)
    # `ops.cond` loses static sizes.
    if not grad_output:
        return ops.reshape(results, (batch, steps, length))
    return tuple(ops.reshape(x, ops.shape(y)) for x, y in zip(results, inputs, strict=False))


def _run_padded(context, compiled, query, key, vector, *grad_output):
    """Pad the time axes to one of few lengths, so that XLA compiles few programs."""
    steps, length = ops.shape(query)[1], ops.shape(key)[1]
    # A static length needs no rounding.
    more = [
        0 if context.graph and isinstance(size, int) else round_up_length(size) - size
        for size in (steps, length)
    ]
    query, key = pad_axis(query, 1, more[0]), pad_axis(key, 1, more[1])
    if not grad_output:
        return run_compiled(compiled, query, key, vector)[:, :steps, :length]
    grad_output = pad_axis(pad_axis(grad_output[0], 1, more[0]), 2, more[1])
    grad_query, grad_key, grad_vector = run_compiled(compiled, query, key, vector, grad_output)
    return grad_query[:, :steps], grad_key[:, :length], grad_vector
