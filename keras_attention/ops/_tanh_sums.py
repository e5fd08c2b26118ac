"""Weighted sums of tanh(a + b) over one axis, without a tensor of all pairs.

The score of additive attention is a sum over features. Its gradients are sums over memory steps for
the query, and over query steps for the key:

    sum_n w_n tanh(a_n + b_n)        `tanh_sum`
    sum_n w_n tanh'(a_n + b_n)       `slope_sum`, with tanh' = 1 - tanh^2

The axis n is the outer loop. Each of its steps adds a group of terms, written out one by one. XLA
turns a group into a single loop over the other axes, which uses the vector units and all cores and
stores one sum. Long sums have groups of 16 or more terms: XLA reads smaller ones from memory number
by number, which takes four times as long. Sums of 4 to 31 terms have two groups. On TensorFlow,
`score_sum` needs no loop if the scores are not too large.

`_tanh_terms` explains the two forms of the terms.
"""

import math
from typing import TypeAlias

import keras
from keras import ops

from keras_attention._typing import Tensor
from keras_attention.ops._tanh_terms import (
    reciprocal_slope_terms,
    reciprocal_terms,
    slope_terms,
    tanh_terms,
)

# The axis n in each of three tensors, or None in a tensor without it.
Axes: TypeAlias = tuple[int | None, int | None, int | None]

GROUP = 16
SHORTEST = 4  # a shorter sum needs no loop
LANES = 8  # float32 numbers in a vector register
LARGEST_SLICE = 2**22  # most numbers in a sum of slices


def score_sum(query: Tensor, key: Tensor, weight: Tensor, exponential: bool) -> Tensor:
    """Computes sum_u w_u tanh(q_u + k_u) for every query and every key.

    Args:
        query: q, `(B, Tq, U)`, or e^2q for the exponential form.
        key: k, `(B, Tk, U)`, or e^2k for the exponential form.
        weight: w, `(U,)`.
        exponential: whether to use the exponential form.

    Returns:
        `(B, Tq, Tk)`.
    """
    if exponential and _suits_slices(query, key):
        return ops.sum(weight) - 2.0 * _sum_of_slices(reciprocal_terms, query, key, weight)
    weight = ops.reshape(weight, (1, 1, -1))
    return tanh_sum(query, ops.transpose(key, (0, 2, 1)), weight, (2, 1, 2), exponential)


def _suits_slices(query, key):
    """Whether a sum of slices is faster than a loop of groups.

    On TensorFlow it is faster by a fifth, while the sum of the slices stays in the cache: it has
    size `(B, Tq, Tk, 8)`, or more for over 256 features. On JAX it is four times slower.
    """
    units = query.shape[-1]
    count, size = _slices(units)
    sizes = (*query.shape[:2], key.shape[1], size)
    known = all(isinstance(n, int) for n in sizes)
    if keras.backend.backend() != "tensorflow" or not known:
        return False
    # The second condition: at most a fifth of the work is for padding.
    return math.prod(sizes) < LARGEST_SLICE and 4 * count * size <= 5 * units


def _slices(units):
    """The number of slices, up to 32, and their width, a multiple of a vector register."""
    count = min(32, -(-units // LANES))
    return count, -(-units // (count * LANES)) * LANES


def _sum_of_slices(make_terms, query, key, weight):
    """Sums over features without a loop: adds a few wide slices, then sums over the result."""
    units = weight.shape[0]
    count, size = _slices(units)
    sources = ops.expand_dims(query, 2), ops.expand_dims(key, 1), weight
    slices = []
    for x in sources:
        # The padding adds nothing, because the weights are padded with zeros too.
        x = ops.pad(x, [[0, 0]] * (len(x.shape) - 1) + [[0, count * size - units]])
        slices.append([x[..., n : n + size] for n in range(0, count * size, size)])
    return ops.sum(_tree_sum(make_terms(*slices)), -1)


def tanh_sum(a: Tensor, b: Tensor, weight: Tensor, axes: Axes, exponential: bool) -> Tensor:
    """Computes sum_n w_n tanh(a_n + b_n).

    Args:
        a, b: tensors of rank 3, or e^2a and e^2b for the exponential form.
        weight: w, a tensor of rank 3. The three broadcast to each other apart from the axis n.
        axes: the axis n in each of the three, or None in a tensor without it.
        exponential: whether to use the exponential form.

    Returns:
        The sum, of rank 3: the shape to which the three broadcast, with size 1 for each axis n.
    """
    if not exponential:
        return _sum_in_groups(tanh_terms, a, b, weight, axes)
    total = _sum_in_groups(reciprocal_terms, a, b, weight, axes)
    return ops.sum(weight, axes[2], keepdims=True) - 2.0 * total


def slope_sum(a: Tensor, b: Tensor, weight: Tensor, axes: Axes, exponential: bool) -> Tensor:
    """Computes sum_n w_n (1 - tanh(a_n + b_n)^2); arguments and result as for `tanh_sum`."""
    if not exponential:
        return _sum_in_groups(slope_terms, a, b, weight, axes)
    return 4.0 * _sum_in_groups(reciprocal_slope_terms, a, b, weight, axes)


def _sum_in_groups(make_terms, a, b, weight, axes):
    sources = (a, b, weight)
    total = ops.zeros(_common_shape(sources, axes), a.dtype)

    def add(total, pieces, size):
        terms = make_terms(*(_split(x, n, size) for x, n in zip(pieces, axes, strict=True)))
        return total + _tree_sum(terms) if terms else total

    length = next(x.shape[n] for x, n in zip(sources, axes, strict=True) if n is not None)
    if isinstance(length, int) and length < SHORTEST:
        return add(total, sources, length)
    if not isinstance(length, int):
        length = next(ops.shape(x)[n] for x, n in zip(sources, axes, strict=True) if n is not None)
        size = GROUP
        count = (length + size - 1) // size
    else:
        # XLA inlines a loop of one step. Sums that share terms would then store them: all pairs.
        count = max(2, length // GROUP)
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
    """Adds terms as a tree: rounding errors stay smaller and the additions do not wait in turn."""
    while len(terms) > 1:
        terms = [sum(terms[n + 1 : n + 2], terms[n]) for n in range(0, len(terms), 2)]
    return terms[0]


def _split(x, axis, size):
    """Splits a group into its terms, or repeats a tensor that has no axis n."""
    if axis is None:
        return [x] * size
    return ops.split(x, size, axis) if size else []


def _in_groups(x, axis, count, size):
    """Cuts the axis into groups, which come first: `(count, ..., size, ...)`."""
    shape = list(ops.shape(x))
    missing = count * size - shape[axis]
    if not isinstance(missing, int) or missing:
        # The padding adds nothing, because the weights are padded with zeros too.
        padding = ops.zeros((*shape[:axis], missing, *shape[axis + 1 :]), x.dtype)
        x = ops.concatenate([x, padding], axis)
    x = ops.reshape(x, (*shape[:axis], count, size, *shape[axis + 1 :]))
    return ops.moveaxis(x, axis, 0)


def _common_shape(sources, axes):
    """The shape to which the sources broadcast, with size 1 for each axis n."""
    shapes = [list(ops.shape(x)) for x in sources]
    for shape, axis in zip(shapes, axes, strict=True):
        if axis is not None:
            shape[axis] = 1
    # A size of 1 gives way to any other. An unknown size is a tensor and counts as another.
    return [
        next((size for size in sizes if not (isinstance(size, int) and size == 1)), 1)
        for sizes in zip(*shapes, strict=True)
    ]
