"""The additive score that XLA compiles for a CPU: sums over blocks, with no tensor of all pairs.

The score is a sum over features. Its gradients are sums over memory steps for the query, and over
query steps for the key:

    sum_n w_n tanh(a_n + b_n)        `_tanh_sum`
    sum_n w_n tanh'(a_n + b_n)       `_slope_sum`, with tanh' = 1 - tanh^2

The axis n is the outer loop. Each of its steps adds a block of terms, written out one by one. XLA
turns a block into a single loop over the other axes, which uses the vector units and all cores and
stores one sum.

The terms have two forms. The direct form is tanh(a + b) itself. The exponential form is a fifth of
the work:

    r = 1 / (1 + e^2a e^2b),        tanh(a + b) = 1 - 2r,        tanh'(a + b) = 4 (r - r^2)

The exponentials of a and of b are computed before the loop, and two terms share a division:

    w1 r1 + w2 r2 = (w1 d2 + w2 d1) / (d1 d2),        d = 1 / r

The exponential form is valid while no product overflows: for a + b up to 22 and weights up to 1e19.
A sum far below zero does no harm: its exponential vanishes, and tanh is -1. The error is that of
rounding sum |w|, which is visible in sums that are much smaller. That happens where all a and b are
small, so these use the direct form, as do values outside the valid range. There, rounding a + b
costs nothing even if a and b are huge: where tanh is not yet flat they nearly cancel, and the
difference of two such values is exact.

Below, `exponential` says that a and b, or query and key, hold e^2a and e^2b.
"""

import functools
import math

from keras_attention._typing import Tensor
from keras_attention.backend import Function, execution_context, ops, run_traced
from keras_attention.ops.padding import pad_axis

__all__ = ["feature_blocked_gradient", "feature_blocked_score"]

# Terms in a step of a loop, measured on two cores: `python benchmarks/speed.py --only "additive
# score"`.
# XLA reads blocks of less than 16 from memory value by value, which takes four times as long. Sums
# of 4 to 31 terms have two blocks: six times as fast on JAX as one term for a step. Shorter sums
# need no loop.
BLOCK = 16
SHORTEST = 4

# Sums over features without a loop, in slices of whole vector registers (8 of float32). On
# TensorFlow they are faster by a fifth while the sum stays in the cache, B Tq Tk 8 elements or
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


def feature_blocked_score(query: Tensor, key: Tensor, vector: Tensor) -> Tensor:
    """Compute the score, as sums over blocks of features."""

    def score(query, key, exponential):
        if exponential and _suits_slices(query, key):
            return ops.sum(vector) - 2.0 * _sum_of_slices(_reciprocals, query, key, vector)
        weight = ops.reshape(vector, (1, 1, -1))
        return _tanh_sum(query, ops.transpose(key, (0, 2, 1)), weight, 2, exponential)

    return _select_implementation(score, query, key)


def feature_blocked_gradient(
    query: Tensor, key: Tensor, vector: Tensor, grad_output: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute the gradients of query, key and vector, as sums over blocks of steps."""
    reverse = ops.transpose(grad_output, (0, 2, 1))

    def gradient(query, key, exponential):
        slopes = SLOPES[exponential]
        grad_vector = _tanh_sum(query, key, grad_output, None, exponential)
        return (
            vector * run_traced(slopes, query, key, grad_output),
            vector * run_traced(slopes, key, query, reverse),
            ops.sum(ops.sum(grad_vector, 1), 0),
        )

    return _select_implementation(gradient, query, key)


def _select_implementation(function, query, key):
    exponentials = ops.exp(2.0 * query), ops.exp(2.0 * key)
    return ops.cond(
        _suits_exponentials(*exponentials),
        lambda: function(*exponentials, True),
        lambda: function(query, key, False),
    )


def _suits_exponentials(first, second):
    """Return True if the exponential form is valid and accurate, as a boolean scalar."""
    highest, other = ops.max(first, initial=0.0), ops.max(second, initial=0.0)
    lowest = ops.minimum(ops.min(first, initial=math.inf), ops.min(second, initial=math.inf))
    product, highest = highest * other, ops.maximum(highest, other)
    # Comparisons with NaN are False, which chooses the direct form. It keeps the NaN.
    inside = ops.logical_and(highest <= LARGEST, product <= LARGEST_PRODUCT)
    large = ops.logical_or(highest > SMALL, lowest < 1 / SMALL)
    return ops.logical_and(inside, large)


def _suits_slices(query, key):
    """Return True if a sum of slices is faster than a loop over blocks."""
    units = query.shape[-1]
    count, size = _slices(units)
    sizes = (*query.shape[:2], key.shape[1], size)
    known = all(isinstance(n, int) for n in sizes)
    if not known or execution_context(query).backend != "tensorflow":
        return False
    # The second condition: at most a fifth of the work is for padding.
    return math.prod(sizes) < LARGEST_SLICE and 4 * count * size <= 5 * units


def _slices(units):
    """Return the number of slices, up to 32, and their width, a multiple of a vector register."""
    count = min(MOST_SLICES, -(-units // LANES))
    return count, -(-units // (count * LANES)) * LANES


def _sum_of_slices(make_terms, query, key, weight):
    """Sum over features without a loop: add a few wide slices, then sum over the result."""
    units = weight.shape[0]
    count, size = _slices(units)
    sources = ops.expand_dims(query, 2), ops.expand_dims(key, 1), weight
    slices = []
    for x in sources:
        # The padding adds nothing, because the weights are padded with zeros too.
        x = ops.pad(x, [[0, 0]] * (len(x.shape) - 1) + [[0, count * size - units]])
        slices.append([x[..., n : n + size] for n in range(0, count * size, size)])
    return ops.sum(_tree_sum(make_terms(*slices)), -1)


def _tanh_sum(a, b, weight, axis, exponential):
    """Compute sum_n w_n tanh(a_n + b_n).

    The three tensors have rank 3. The axis n is axis 1 of b, axis 2 of the weight, and `axis` of a:
    2, or None if a has none. It has size 1 in the result, to which the tensors broadcast.
    """
    if not exponential:
        return _sum_in_blocks(_tanhs, a, b, weight, axis)
    total = _sum_in_blocks(_reciprocals, a, b, weight, axis)
    return ops.sum(weight, 2, keepdims=True) - 2.0 * total


def _slope_sum(a, b, weight, axis, exponential):
    """Compute sum_n w_n (1 - tanh(a_n + b_n)^2); arguments and result as for `_tanh_sum`."""
    if not exponential:
        return _sum_in_blocks(_slopes, a, b, weight, axis)
    return 4.0 * _sum_in_blocks(_reciprocal_slopes, a, b, weight, axis)


# Stable objects, so that each is traced once.
SLOPES: dict[bool, Function] = {
    exponential: functools.partial(_slope_sum, axis=None, exponential=exponential)
    for exponential in (False, True)
}


def _sum_in_blocks(make_terms, a, b, weight, axis):
    sources, axes = (a, b, weight), (axis, 1, 2)
    shape = ops.shape(a) if axis is None else (*ops.shape(a)[:2], ops.shape(b)[2])
    total = ops.zeros(shape, a.dtype)

    def add(total, pieces, size):
        terms = make_terms(*map(_split, pieces, axes, [size] * len(axes)))
        return total + _tree_sum(terms) if terms else total

    length = b.shape[1]
    if isinstance(length, int) and length < SHORTEST:
        return add(total, sources, length)
    if not isinstance(length, int):
        size = BLOCK
        count = (ops.shape(b)[1] + size - 1) // size
    else:
        # XLA inlines a loop of one step. Sums that share terms would then store them: all pairs.
        count = max(2, length // BLOCK)
        size = 2 * -(-length // (2 * count))
    blocks = [
        x if n is None else _in_blocks(x, n, count, size)
        for x, n in zip(sources, axes, strict=True)
    ]

    def body(i, total):
        pieces = [x if n is None else x[i] for x, n in zip(blocks, axes, strict=True)]
        return add(total, pieces, size)

    return ops.fori_loop(0, count, body, total)


def _tree_sum(terms):
    """Add terms as a tree: rounding errors stay smaller and the additions do not wait in turn."""
    while len(terms) > 1:
        terms = [sum(terms[n + 1 : n + 2], terms[n]) for n in range(0, len(terms), 2)]
    return terms[0]


def _split(x, axis, size):
    """Split a block into its terms, or repeat a tensor that has no axis n."""
    if axis is None:
        return [x] * size
    return ops.split(x, size, axis) if size else []


def _in_blocks(x, axis, count, size):
    """Cut the axis into blocks, which come first: `(count, ..., size, ...)`."""
    shape = ops.shape(x)
    # The padding adds nothing, because the weights are padded with zeros too.
    x = pad_axis(x, axis, count * size - shape[axis])
    x = ops.reshape(x, (*shape[:axis], count, size, *shape[axis + 1 :]))
    return ops.moveaxis(x, axis, 0)


def _tanhs(a, b, w):
    """Compute w tanh(a + b) in the direct form."""
    return [x * ops.tanh(y + z) for x, y, z in zip(w, a, b, strict=True)]


def _slopes(a, b, w):
    """Compute w tanh'(a + b) in the direct form."""
    return [x * (1.0 - ops.square(ops.tanh(y + z))) for x, y, z in zip(w, a, b, strict=True)]


def _reciprocals(a, b, w):
    """Compute w r in the exponential form; two terms share a denominator."""
    d = [1.0 + x * y for x, y in zip(a, b, strict=True)]
    terms = [
        (w[n] * d[n + 1] + w[n + 1] * d[n]) / (d[n] * d[n + 1]) for n in range(0, len(d) - 1, 2)
    ]
    return terms + [w[n] / d[n] for n in range(len(d) // 2 * 2, len(d))]


def _reciprocal_slopes(a, b, w):
    """Compute w (r - r^2) in the exponential form; two r share a division."""
    d = [1.0 + x * y for x, y in zip(a, b, strict=True)]
    r = []
    for n in range(0, len(d) - 1, 2):
        both = 1.0 / (d[n] * d[n + 1])
        r += [d[n + 1] * both, d[n] * both]
    r += [1.0 / d[n] for n in range(len(r), len(d))]
    return [x * (y - y * y) for x, y in zip(w, r, strict=True)]
