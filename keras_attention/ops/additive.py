"""The additive score of projected queries and keys."""

import math

import keras
from keras import ops

from keras_attention.ops.blocks import (
    blocked_gradient,
    blocked_score,
    pairs,
    whole_gradient,
    whole_score,
)
from keras_attention.ops.compiled import (
    after,
    alone,
    as_graph,
    compiling,
    is_compiled,
    makes_graph,
    placement,
    round_up,
    save_for_gradient,
    shapes_vary,
    wanted,
)
from keras_attention.ops.tanh_sums import score_sum, slope_sum, suits_exponentials, tanh_sum

# Below so many tanh the sum as it is written is faster, see benchmarks/speed.py.
SMALLEST = {"tensorflow": 2**20, "jax": 2**17}


def additive_score(query, key, vector):
    """Compares every query with every key in a common space of width U.

        e[b,i,j] = sum_u v[u] tanh(q[b,i,u] + k[b,j,u])

    Nothing of size B Tq Tk U is kept, nor formed unless it is small: sums run over groups of
    features, and the gradient computes tanh again, in sums over groups of memory steps and of
    query steps. How, and how exact that is: `tanh_sums.py`. Where XLA does not compile, blocks of
    queries take the place of groups (`blocks.py`); when it does is said in `compiled.py`.

    Args:
        query: q, `(B, Tq, U)`, projected; a bias, where there is one, is added to it.
        key: k, `(B, Tk, U)`, projected.
        vector: v, `(U,)`.

    Returns:
        Scores `(B, Tq, Tk)` in the dtype of the inputs, which half-precision ones are rounded to
        at the end. Second derivatives exist; they need memory for B Tq Tk U numbers.
    """
    dtype = keras.backend.result_type(query.dtype, key.dtype, vector.dtype)
    wide = "float64" if dtype == "float64" else "float32"
    query, key, vector = (ops.cast(x, wide) for x in (query, key, vector))
    return ops.cast(_score(query, key, vector), dtype)


def _score(query, key, vector):
    inputs, choice = (query, key, vector), wanted()

    @ops.custom_gradient
    def score(*given):
        def grad(*args, upstream=None):
            # Elsewhere and later, with another context around it.
            with compiling(choice):
                if upstream is not None:  # PyTorch: the inputs, to be differentiated again
                    return _gradient(*args, upstream)
                return _gradient(*save_for_gradient(inputs, given), args[0])

        forms = (whole_score, grouped_score, blocked_score)
        # Or TensorFlow would make a gradient of its own for what is compiled; on JAX it would be
        # missing from the gradient of a gradient.
        of_tensorflow = keras.backend.backend() == "tensorflow"
        constants = map(ops.stop_gradient, given) if of_tensorflow else given
        return _choose(*forms, *constants), grad

    return score(*inputs)


def _gradient(query, key, vector, upstream):
    forms = (whole_gradient, grouped_gradient, blocked_gradient)
    query = after(upstream, query)
    if keras.backend.backend() != "tensorflow":
        return _choose(*forms, query, key, vector, upstream)

    # TensorFlow cannot differentiate loops that it compiles.
    @ops.custom_gradient
    def gradient(*inputs):
        constants = map(ops.stop_gradient, inputs)
        return _choose(*forms, *constants), lambda *given: _second_gradient(*inputs, *given)

    return gradient(query, key, vector, upstream)


def _choose(whole, grouped, blocked, query, key, vector, *upstream):
    """Calls the form that is best for the size, and for the place where it is to run."""
    place = placement(query, key)
    inputs = (query, key, vector, *upstream)
    # One query has no more pairs than there are keys: there is nothing to save.
    one_step = query.shape[1] == 1
    if place == "nowhere" or (one_step and not is_compiled()):
        # Many calls for small blocks: a graph makes them faster than Python.
        of_sequence, units = (None, None, query.shape[-1]), (query.shape[-1],)
        shapes = (of_sequence, of_sequence, units, (None, None, None))
        return as_graph(blocked, shapes[: len(inputs)], *inputs)
    if one_step:
        return whole(*inputs)

    def fast():
        if place == "inside":
            return grouped(*inputs)
        if shapes_vary(query, key):
            return _call_padded(grouped, *inputs)
        return alone(grouped, *inputs)

    (batch, steps, units), length = ops.shape(query), ops.shape(key)[1]
    sizes = (batch, steps, length, units)
    smallest = SMALLEST[keras.backend.backend()]
    if all(isinstance(size, int) for size in sizes):
        return whole(*inputs) if math.prod(sizes) < smallest else fast()
    # As a float, for the product may have more than 31 bits.
    size = math.prod(ops.cast(size, "float32") for size in sizes)
    results = ops.cond(size < smallest, lambda: whole(*inputs), fast)
    # A conditional forgets the sizes that are known.
    if not upstream:
        return ops.reshape(results, (batch, steps, length))
    return tuple(ops.reshape(x, ops.shape(y)) for x, y in zip(results, inputs, strict=False))


def _call_padded(function, query, key, vector, *upstream):
    """Calls it compiled, for a few lengths only, that all others are padded to."""
    steps, length = ops.shape(query)[1], ops.shape(key)[1]
    # What a graph knows needs no rounding: it does not vary.
    known = [makes_graph() and isinstance(size, int) for size in (steps, length)]
    more = [
        0 if fixed else round_up(size) - size
        for fixed, size in zip(known, (steps, length), strict=True)
    ]
    query, key = _pad(query, 1, more[0]), _pad(key, 1, more[1])
    if not upstream:
        return alone(function, query, key, vector)[:, :steps, :length]
    upstream = _pad(_pad(upstream[0], 1, more[0]), 2, more[1])
    of_query, of_key, of_vector = alone(function, query, key, vector, upstream)
    return of_query[:, :steps], of_key[:, :length], of_vector


def _pad(x, axis, count):
    if isinstance(count, int) and count == 0:
        return x
    shape = list(ops.shape(x))
    shape[axis] = count
    return ops.concatenate([x, ops.zeros(shape, x.dtype)], axis)


def grouped_score(query, key, vector):
    """The score by sums over groups of features."""

    def score(query, key, exponential):
        return score_sum(query, key, vector, exponential)

    return _in_best_form(score, query, key)


def grouped_gradient(query, key, vector, upstream):
    """Its gradient by sums over groups of memory steps and of query steps."""
    reverse = ops.transpose(upstream, (0, 2, 1))
    axes = (None, 1, 2)

    def gradient(query, key, exponential):
        of_vector = tanh_sum(query, key, upstream, axes, exponential)
        return (
            vector * slope_sum(query, key, upstream, axes, exponential),
            vector * slope_sum(key, query, reverse, axes, exponential),
            _sum_pairs(of_vector),
        )

    return _in_best_form(gradient, query, key)


def _in_best_form(function, query, key):
    exponentials = ops.exp(2.0 * query), ops.exp(2.0 * key)
    return ops.cond(
        suits_exponentials(*exponentials),
        lambda: function(*exponentials, True),
        lambda: function(query, key, False),
    )


def _sum_pairs(x):
    """`(B, Tq, .., U)` summed to `(U,)`, axis by axis: so rounding errors stay small."""
    while len(x.shape) > 1:
        x = ops.sum(x, -2)
    return x


def _second_gradient(query, key, vector, upstream, for_query, for_key, for_vector):
    """The gradient of sum(for_query of_query) + sum(for_key of_key) + sum(for_vector of_vector).

    That is g . e', with e' = sum_u v (1 - h^2) p + h p_v the change of the scores in the
    direction (p_q, p_k, p_v); h the tanh, g the upstream, and p = p_q + p_k.
    """
    hidden = pairs(query, key)
    direction = ops.expand_dims(for_query, 2) + ops.expand_dims(for_key, 1)
    slope = 1.0 - hidden * hidden
    change = ops.sum(vector * slope * direction + for_vector * hidden, -1)
    upstream = ops.expand_dims(upstream, 3)
    curved = upstream * slope * (for_vector - 2.0 * vector * hidden * direction)
    return (
        ops.sum(curved, 2),
        ops.sum(curved, 1),
        _sum_pairs(upstream * slope * direction),
        change,
    )
