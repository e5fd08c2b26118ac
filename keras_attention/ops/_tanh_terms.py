"""The terms of the sums in `_tanh_sums`, in two forms.

The direct form is tanh(a + b) itself. The exponential form is a fifth of the work:

    r = 1 / (1 + e^2a e^2b),        tanh(a + b) = 1 - 2r,        tanh'(a + b) = 4 (r - r^2)

The exponentials of a and of b are computed before the loop, and two terms share a division:

    w1 r1 + w2 r2 = (w1 d2 + w2 d1) / (d1 d2),        d = 1 / r

The exponential form is valid while no product overflows: for a + b up to 22 and weights up to 1e19.
A sum far below zero does no harm: its exponential vanishes, and tanh is -1. The error is that of
rounding sum |w|, which is visible in sums that are much smaller. That happens where all a and b are
small, so these use the direct form, as do numbers outside the valid range. There, rounding a + b
costs nothing even if a and b are huge: where tanh is not yet flat they nearly cancel, and the
difference of two such numbers is exact.

In the lists of terms, `a` and `b` hold e^2a and e^2b for the exponential form.
"""

import math

from keras import ops

from keras_attention._typing import Tensor

# Bounds of e^2a and e^2b. The product d1 d2 must stay below 3.4e38, the largest float32. Below
# a = -43 the exponential e^2a vanishes; then e^2b must be too small to matter.
LARGEST_PRODUCT = math.exp(2 * 22)
LARGEST = math.exp(2 * 30)
SMALL = math.exp(2 / 8)


def suits_exponentials(first: Tensor, second: Tensor) -> Tensor:
    """Whether the exponential form is valid and accurate, as a boolean scalar.

    Args:
        first, second: e^2a and e^2b, of any shapes.
    """
    low, high = zip(*(_range(x) for x in (first, second)), strict=True)
    # Comparisons with NaN are False, which chooses the direct form. It keeps the NaN.
    inside = ops.logical_and(ops.maximum(*high) <= LARGEST, high[0] * high[1] <= LARGEST_PRODUCT)
    large = ops.logical_or(ops.maximum(*high) > SMALL, ops.minimum(*low) < 1 / SMALL)
    return ops.logical_and(inside, large)


def _range(x):
    """The smallest and the largest number."""
    return ops.min(x, initial=math.inf), ops.max(x, initial=0.0)


def tanh_terms(a: list[Tensor], b: list[Tensor], w: list[Tensor]) -> list[Tensor]:
    """w tanh(a + b) in the direct form."""
    return [x * ops.tanh(y + z) for x, y, z in zip(w, a, b, strict=True)]


def slope_terms(a: list[Tensor], b: list[Tensor], w: list[Tensor]) -> list[Tensor]:
    """w tanh'(a + b) in the direct form."""
    return [x * (1.0 - ops.square(ops.tanh(y + z))) for x, y, z in zip(w, a, b, strict=True)]


def reciprocal_terms(a: list[Tensor], b: list[Tensor], w: list[Tensor]) -> list[Tensor]:
    """w r in the exponential form; two terms share a denominator."""
    d = [1.0 + x * y for x, y in zip(a, b, strict=True)]
    terms = [
        (w[n] * d[n + 1] + w[n + 1] * d[n]) / (d[n] * d[n + 1]) for n in range(0, len(d) - 1, 2)
    ]
    return terms + [w[n] / d[n] for n in range(len(d) // 2 * 2, len(d))]


def reciprocal_slope_terms(a: list[Tensor], b: list[Tensor], w: list[Tensor]) -> list[Tensor]:
    """w (r - r^2) in the exponential form; two r share a division."""
    d = [1.0 + x * y for x, y in zip(a, b, strict=True)]
    r = []
    for n in range(0, len(d) - 1, 2):
        both = 1.0 / (d[n] * d[n + 1])
        r += [d[n + 1] * both, d[n] * both]
    r += [1.0 / d[n] for n in range(len(r), len(d))]
    return [x * (y - y * y) for x, y in zip(w, r, strict=True)]
