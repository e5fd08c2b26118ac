"""Weighted sums of tanh(a + b) over one axis, without a tensor of all pairs.

The sums of additive attention run over features for a score, over memory steps for the gradient of
a query, and over query steps for that of a key:

    sum_n w_n tanh(a_n + b_n)        `tanh_sum`
    sum_n w_n tanh'(a_n + b_n)       `slope_sum`, with tanh' = 1 - tanh^2

The axis n is the outer loop, in groups of 16 or more terms that are written out. Of such a group
XLA makes one loop over what is left, uses the vector units and all cores, and keeps one sum.
(Smaller groups it reads from memory number by number, and takes four times as long.) A score that
is not too large is summed without a loop on TensorFlow, `score_sum`.

The terms come in two forms. With r = 1 / (1 + e^2a e^2b), tanh(a + b) = 1 - 2r and
tanh' = 4 (r - r^2); the exponentials of a and of b are taken before the loop, and two terms share
a division:

    w1 r1 + w2 r2 = (w1 d2 + w2 d1) / (d1 d2),        d = 1 / r

This is a fifth of the work of tanh, and holds while no product overflows, for a + b up to 22 and
weights up to 1e19. Sums far below do no harm: their exponential vanishes, and tanh is -1. The error
is that of rounding sum |w|, which shows in sums that are much smaller: where all a and b are small,
and beyond the range, the other form is taken, tanh(a + b) itself. Rounding a + b costs nothing,
even if a and b are huge: where tanh is not yet flat they nearly cancel, and the difference of two
such numbers is exact.
"""

import math

import keras
from keras import ops

GROUP = 16
LANES = 8  # numbers of float32 in a vector register
LARGEST_SLICE = 2**22  # numbers in the sum of slices, at most

# Bounds of e^2a and e^2b: d1 d2 must stay below 3.4e38; and where one exponential vanishes, below
# 1e-38 in float32 or -43 of its argument, the other must be too small to matter.
LARGEST_PRODUCT = math.exp(2 * 22)
LARGEST = math.exp(2 * 30)
SMALL = math.exp(2 / 8)


def suits_exponentials(first, second):
    """Whether the exponential form holds for e^2a and e^2b: a boolean scalar.

    Args:
        first, second: e^2a and e^2b, of any shape.
    """
    low, high = zip(*(_range(x) for x in (first, second)), strict=True)
    # Each comparison is False for NaN, which so goes to the form that keeps it.
    inside = ops.logical_and(ops.maximum(*high) <= LARGEST, high[0] * high[1] <= LARGEST_PRODUCT)
    large = ops.logical_or(ops.maximum(*high) > SMALL, ops.minimum(*low) < 1 / SMALL)
    return ops.logical_and(inside, large)


def _range(x):
    """The smallest and the largest number."""
    return ops.min(x, initial=math.inf), ops.max(x, initial=0.0)


def score_sum(query, key, weight, exponential):
    """sum_u w_u tanh(q_u + k_u) of every query with every key.

    Args:
        query: `(B, Tq, U)`. key: `(B, Tk, U)`. weight: `(U,)`. As `a` and `b` of `tanh_sum`.
        exponential: the form, see above.

    Returns:
        `(B, Tq, Tk)`.
    """
    if exponential and _suits_slices(query, key):
        return ops.sum(weight) - 2.0 * _sum_of_slices(_reciprocal_terms, query, key, weight)
    weight = ops.reshape(weight, (1, 1, -1))
    return tanh_sum(query, ops.transpose(key, (0, 2, 1)), weight, (2, 1, 2), exponential)


def _suits_slices(query, key):
    """Whether a sum of slices is faster than a loop of groups.

    In TensorFlow it is, by a fifth, while the sum of the slices, `(B, Tq, Tk, 8)`, or wider for
    more than 256 features, stays in the cache. On JAX it is four times slower.
    """
    units = query.shape[-1]
    count, size = _slices(units)
    sizes = (*query.shape[:2], key.shape[1], size)
    known = all(isinstance(n, int) for n in sizes)
    if keras.backend.backend() != "tensorflow" or not known:
        return False
    # And little of the work is for padding.
    return math.prod(sizes) < LARGEST_SLICE and 4 * count * size <= 5 * units


def _slices(units):
    """How many, and how wide: up to 32, as wide as vector registers or a multiple of it."""
    count = min(32, -(-units // LANES))
    return count, -(-units // (count * LANES)) * LANES


def _sum_of_slices(make_terms, query, key, weight):
    """The sum over features without a loop: of a few wide slices, written out, then over one."""
    units = weight.shape[0]
    count, size = _slices(units)
    sources = ops.expand_dims(query, 2), ops.expand_dims(key, 1), weight
    slices = []
    for x in sources:
        # Zeros add nothing: the weights are padded too.
        x = ops.pad(x, [[0, 0]] * (len(x.shape) - 1) + [[0, count * size - units]])
        slices.append([x[..., n : n + size] for n in range(0, count * size, size)])
    return ops.sum(_tree_sum(make_terms(*slices)), -1)


def tanh_sum(a, b, weight, axes, exponential):
    """sum_n w_n tanh(a_n + b_n).

    Args:
        a, b, weight: tensors of rank 3, which broadcast to each other. With `exponential` the
            exponentials e^2a and e^2b are given instead of a and b.
        axes: the axis n in each of the three, or None in one that has none.
        exponential: the form, see above.

    Returns:
        The sum, of rank 3, with the axes that the three have in common.
    """
    if not exponential:
        return _sum_in_groups(_tanh_terms, a, b, weight, axes)
    total = _sum_in_groups(_reciprocal_terms, a, b, weight, axes)
    return ops.sum(weight, axes[2], keepdims=True) - 2.0 * total


def slope_sum(a, b, weight, axes, exponential):
    """sum_n w_n (1 - tanh(a_n + b_n)^2). Args, Returns: as of `tanh_sum`."""
    if not exponential:
        return _sum_in_groups(_slope_terms, a, b, weight, axes)
    return 4.0 * _sum_in_groups(_reciprocal_slope_terms, a, b, weight, axes)


def _tanh_terms(a, b, w):
    return [x * ops.tanh(y + z) for x, y, z in zip(w, a, b, strict=True)]


def _slope_terms(a, b, w):
    return [x * (1.0 - ops.square(ops.tanh(y + z))) for x, y, z in zip(w, a, b, strict=True)]


def _reciprocal_terms(a, b, w):
    """w r, two of them over one denominator."""
    d = [1.0 + x * y for x, y in zip(a, b, strict=True)]
    terms = [
        (w[n] * d[n + 1] + w[n + 1] * d[n]) / (d[n] * d[n + 1]) for n in range(0, len(d) - 1, 2)
    ]
    return terms + [w[n] / d[n] for n in range(len(d) // 2 * 2, len(d))]


def _reciprocal_slope_terms(a, b, w):
    """w (r - r^2), two r from one division."""
    d = [1.0 + x * y for x, y in zip(a, b, strict=True)]
    r = []
    for n in range(0, len(d) - 1, 2):
        both = 1.0 / (d[n] * d[n + 1])
        r += [d[n + 1] * both, d[n] * both]
    r += [1.0 / d[n] for n in range(len(r), len(d))]
    return [x * (y - y * y) for x, y in zip(w, r, strict=True)]


def _sum_in_groups(make_terms, a, b, weight, axes):
    sources = (a, b, weight)
    total = ops.zeros(_common_shape(sources, axes), a.dtype)

    def add(total, pieces, size):
        terms = make_terms(*(_split(x, n, size) for x, n in zip(pieces, axes, strict=True)))
        return total + _tree_sum(terms) if terms else total

    length = next(x.shape[n] for x, n in zip(sources, axes, strict=True) if n is not None)
    if isinstance(length, int) and length < 2 * GROUP:
        return add(total, sources, length)
    if not isinstance(length, int):
        length = next(ops.shape(x)[n] for x, n in zip(sources, axes, strict=True) if n is not None)
        size = GROUP
        count = (length + size - 1) // size
    else:
        count = length // GROUP
        size = 2 * -(-length // (2 * count))
    grouped = [
        x if n is None else _in_groups(x, n, count, size)
        for x, n in zip(sources, axes, strict=True)
    ]

    def body(i, total):
        pieces = [x if n is None else x[i] for x, n in zip(grouped, axes, strict=True)]
        return add(total, pieces, size)

    return ops.fori_loop(0, count, body, total)


def _tree_sum(terms):
    """As a tree: rounding errors grow less than in a chain, and no addition waits for the last."""
    while len(terms) > 1:
        terms = [sum(terms[n + 1 : n + 2], terms[n]) for n in range(0, len(terms), 2)]
    return terms[0]


def _split(x, axis, size):
    """The terms of a group, each with the axis, of size 1, or the same tensor for all."""
    if axis is None:
        return [x] * size
    before = (slice(None),) * axis
    return [x[(*before, slice(n, n + 1))] for n in range(size)]


def _in_groups(x, axis, count, size):
    """The axis in groups of that size, which come first: `(count, ..., size, ...)`."""
    shape = list(ops.shape(x))
    missing = count * size - shape[axis]
    if not isinstance(missing, int) or missing:
        # Zeros add nothing: the weights are padded too.
        padding = ops.zeros((*shape[:axis], missing, *shape[axis + 1 :]), x.dtype)
        x = ops.concatenate([x, padding], axis)
    x = ops.reshape(x, (*shape[:axis], count, size, *shape[axis + 1 :]))
    return ops.moveaxis(x, axis, 0)


def _common_shape(sources, axes):
    """What the sources broadcast to, without the axis n, which becomes 1 there."""
    shapes = [list(ops.shape(x)) for x in sources]
    for shape, axis in zip(shapes, axes, strict=True):
        if axis is not None:
            shape[axis] = 1
    # A size of 1 gives way to any other; a tensor stands for a size that may be anything.
    return [
        next((size for size in sizes if not (isinstance(size, int) and size == 1)), 1)
        for sizes in zip(*shapes, strict=True)
    ]
