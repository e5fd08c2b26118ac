"""The additive score and its gradient, in the form that is fastest where they run."""

import functools
import math

import keras
from keras import ops

from keras_attention._typing import Tensor
from keras_attention.ops._blocked import (
    WHOLE,
    blocked_gradient,
    blocked_score,
    score_by_sample,
    second_gradient,
    small_score,
    sum_pairs,
    whole_gradient,
    whole_score,
)
from keras_attention.ops._differentiable import differentiable
from keras_attention.ops._gradients import in_loop, run_after
from keras_attention.ops._graphs import in_compiled_code, in_graph
from keras_attention.ops._tanh_sums import score_sum, slope_sum, tanh_sum
from keras_attention.ops._tanh_terms import suits_exponentials
from keras_attention.ops._xla import (
    may_compile,
    pad_axis,
    round_up_length,
    run_as_graph,
    run_compiled,
    sizes_may_change,
    trace_once,
    where_to_run,
)

# Up to this many tanh, eager code and PyTorch store them: few operations count more than memory,
# but a loop of the caller may store as many at every step.
SMALL_EAGER = 2**18
# Below this number of tanh, all pairs at once are faster; see benchmarks/speed.py.
SMALLEST = {"tensorflow": 2**20, "jax": 2**17}


def differentiable_score(query: Tensor, key: Tensor, vector: Tensor) -> Tensor:
    """`ops.additive_score` for inputs of one dtype, float32 or float64."""
    sizes = *query.shape, key.shape[1]
    if keras.backend.backend() != "jax" and None not in sizes:
        count = math.prod(sizes)
        if not in_graph() and count <= SMALL_EAGER:
            return small_score(query, key, vector)
        if in_graph() and query.shape[1] == 1 and count <= WHOLE and not in_loop():
            # For one query the tanh may be stored: that is faster than recomputing it.
            form = score_by_sample if in_compiled_code() else whole_score
            return form(query, key, vector)
    return differentiable(functools.partial(_choose, *SCORE_FORMS), _gradient, query, key, vector)


def _gradient(query, key, vector, upstream):
    """The gradients of query, key and vector."""
    query = run_after(upstream, query)
    gradient = functools.partial(_choose, *GRADIENT_FORMS)
    if keras.backend.backend() != "tensorflow":
        return gradient(query, key, vector, upstream)
    # TensorFlow cannot differentiate compiled loops, so the second derivative is written out.
    return differentiable(gradient, second_gradient, query, key, vector, upstream)


def _choose(whole, grouped, blocked, query, key, vector, *upstream):
    """Calls the form that is fastest for these sizes, where this code runs."""
    place = where_to_run(query, key)
    inputs = (query, key, vector, *upstream)

    def slow():
        # Many small operations are faster in a graph than in eager code.
        of_sequence, units = (None, None, query.shape[-1]), (query.shape[-1],)
        shapes = (of_sequence, of_sequence, units, (None, None, None))
        return run_as_graph(blocked, shapes[: len(inputs)], *inputs)

    # One query has as many pairs as there are keys, so there is no memory to save.
    one_step = query.shape[1] == 1
    if place == "nowhere" or (one_step and not in_compiled_code()):
        return slow()
    if one_step:
        return whole(*inputs)

    def fast():
        if place == "inside":
            return trace_once(grouped, *inputs)
        if sizes_may_change(query, key):
            return _call_padded(grouped, *inputs)
        return run_compiled(grouped, *inputs)

    (batch, steps, units), length = ops.shape(query), ops.shape(key)[1]
    sizes = (batch, steps, length, units)
    smallest = SMALLEST[keras.backend.backend()]
    if all(isinstance(size, int) for size in sizes):
        if math.prod(sizes) < smallest:
            return whole(*inputs)
        rounded = batch, round_up_length(steps), round_up_length(length), units
        return fast() if may_compile(grouped, *rounded, query.dtype) else slow()
    # The product may have more than 31 bits, so it is computed in floating point.
    size = math.prod(ops.cast(size, "float32") for size in sizes)
    results = ops.cond(size < smallest, lambda: whole(*inputs), fast)
    # A conditional loses the sizes that are known.
    if not upstream:
        return ops.reshape(results, (batch, steps, length))
    return tuple(ops.reshape(x, ops.shape(y)) for x, y in zip(results, inputs, strict=False))


def _call_padded(function, query, key, vector, *upstream):
    """Pads the time axes to one of few lengths, so that XLA compiles few programs."""
    steps, length = ops.shape(query)[1], ops.shape(key)[1]
    # A length that the graph knows never changes, so it needs no rounding.
    known = [in_graph() and isinstance(size, int) for size in (steps, length)]
    more = [
        0 if fixed else round_up_length(size) - size
        for fixed, size in zip(known, (steps, length), strict=True)
    ]
    query, key = pad_axis(query, 1, more[0]), pad_axis(key, 1, more[1])
    if not upstream:
        return run_compiled(function, query, key, vector)[:, :steps, :length]
    upstream = pad_axis(pad_axis(upstream[0], 1, more[0]), 2, more[1])
    of_query, of_key, of_vector = run_compiled(function, query, key, vector, upstream)
    return of_query[:, :steps], of_key[:, :length], of_vector


def grouped_score(query: Tensor, key: Tensor, vector: Tensor) -> Tensor:
    """The score, as sums over groups of features."""

    def score(query, key, exponential):
        return score_sum(query, key, vector, exponential)

    return _in_best_form(score, query, key)


def grouped_gradient(
    query: Tensor, key: Tensor, vector: Tensor, upstream: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of query, key and vector, as sums over groups of memory and query steps."""
    reverse = ops.transpose(upstream, (0, 2, 1))
    axes = (None, 1, 2)

    def gradient(query, key, exponential):
        slopes = SLOPES[exponential]
        of_vector = tanh_sum(query, key, upstream, axes, exponential)
        return (
            vector * trace_once(slopes, query, key, upstream),
            vector * trace_once(slopes, key, query, reverse),
            sum_pairs(of_vector),
        )

    return _in_best_form(gradient, query, key)


SLOPES = {
    exponential: functools.partial(slope_sum, axes=(None, 1, 2), exponential=exponential)
    for exponential in (False, True)
}


def _in_best_form(function, query, key):
    exponentials = ops.exp(2.0 * query), ops.exp(2.0 * key)
    return ops.cond(
        suits_exponentials(*exponentials),
        lambda: function(*exponentials, True),
        lambda: function(query, key, False),
    )


# For small inputs, compiled by XLA, and without XLA.
SCORE_FORMS = whole_score, grouped_score, blocked_score
GRADIENT_FORMS = whole_gradient, grouped_gradient, blocked_gradient
