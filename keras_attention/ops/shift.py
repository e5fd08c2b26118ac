"""Convolutions and recurrences over the positions of a memory, each with a gradient of its own."""

from functools import partial

from keras_attention._typing import Tensor
from keras_attention.backend import custom_vjp, ops

__all__ = ["fold", "linear_recurrence", "shift", "unfold"]


def unfold(x: Tensor, before: int, width: int) -> Tensor:
    """Gather the neighbours of each position, zero beyond the ends: y[b,j,w] = x[b, j+w-before].

    A product with a kernel `(width, U)` is a convolution.

    Args:
        x: `(B, Tk)`.
        before: the number of neighbours before the position.
        width: the number of neighbours, the position itself included.

    Returns:
        y, `(B, Tk, width)`.
    """
    return custom_vjp(
        partial(_unfold, before, width), lambda _, grad_output: (fold(grad_output, before),), x
    )


def fold(y: Tensor, before: int) -> Tensor:
    """Sum the neighbours' entries for each position, the adjoint of `unfold`.

        x[b,i] = sum_w y[b, i - w + before, w]

    Args:
        y: `(B, Tk, width)`. before: see `unfold`.

    Returns:
        x, `(B, Tk)`.
    """
    width = y.shape[2]
    return custom_vjp(
        partial(_fold, before), lambda _, grad_output: (unfold(grad_output, before, width),), y
    )


def _unfold(before, width, x):
    length = ops.shape(x)[1]
    # One zero more than needed: from an empty axis, JAX takes an array of the wrong shape.
    padded = ops.pad(x, [[0, 0], [before, width - before]])
    index = ops.expand_dims(ops.arange(length, dtype="int32"), 1) + ops.arange(width, dtype="int32")
    return ops.take(padded, index, axis=1)


def _fold(before, y):
    batch, length, width = ops.shape(y)
    padded = ops.pad(y, [[0, 0], [width - 1 - before, before + 1], [0, 0]])
    flat = ops.reshape(padded, (batch, (length + width) * width))
    column = ops.arange(width, dtype="int32")
    row = ops.expand_dims(ops.arange(length, dtype="int32"), 1) - column + (width - 1)
    return ops.sum(ops.take(flat, row * width + column, axis=1), axis=2)


def shift(x: Tensor, steps: int = 1) -> Tensor:
    """Move everything to later positions: y[b,j] = x[b, j - steps], zero at the start."""
    return ops.pad(x[:, : ops.shape(x)[1] - steps], [[0, 0], [steps, 0]])


def linear_recurrence(factors: Tensor, terms: Tensor) -> Tensor:
    """Run a recurrence over positions in about log2(Tk) passes over all of them.

        y[b,j] = f[b,j] y[b,j-1] + t[b,j],    y[b,-1] = 0

    It takes no quotient and no logarithm, so underflow is harmless.

    Args:
        factors: f, `(B, Tk)`, in [0, 1]. terms: t, `(B, Tk)`.

    Returns:
        y, `(B, Tk)`.
    """

    def gradient(factors, terms, grad_output):
        later = ops.pad(factors[:, 1:], [[0, 0], [0, 1]])
        of_terms = _reversed(linear_recurrence(_reversed(later), _reversed(grad_output)))
        return of_terms * shift(linear_recurrence(factors, terms)), of_terms

    return custom_vjp(_recurrence, gradient, factors, terms)


def _reversed(x):
    return ops.flip(x, axis=1)


def _recurrence(factors, terms):
    """Double the length over which the recurrence has run, until it is that of the memory."""
    length = ops.shape(terms)[1]
    if isinstance(length, int):
        if length < 2:
            # On PyTorch, a function with a gradient of its own must not return its input.
            return terms + ops.zeros_like(terms)
        step = 1
        while step < length:
            # Zeros stand for the factors before the start, too: they only meet terms of zero.
            terms = terms + factors * shift(terms, step)
            factors = factors * shift(factors, step)
            step *= 2
        return terms
    position = ops.arange(length, dtype="int32")

    def double(step, factors, terms):
        index, inside = ops.maximum(position - step, 0), position >= step
        earlier = [
            ops.where(inside, ops.take(x, index, axis=1), ops.zeros_like(x))
            for x in (factors, terms)
        ]
        return 2 * step, factors * earlier[0], terms + factors * earlier[1]

    # In a graph, only one of the two may have a static batch size.
    init = ops.ones((), "int32"), factors + ops.zeros_like(terms), terms + ops.zeros_like(factors)
    return ops.while_loop(lambda step, *_: step < length, double, init)[2]
