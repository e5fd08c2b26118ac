"""How a window is read, and the table of measured sizes that decides it.

| where                        | form                                                     |
| ---------------------------- | -------------------------------------------------------- |
| short memory                 | all scores, with a mask (`attention/scoring.py`)           |
| XLA compiles, narrow windows | `cpu`, one row of every window after the other           |
| XLA compiles for a GPU       | `gpu`, all rows of the windows in one kernel             |
| elsewhere                    | `plain`, a copy of all windows                           |

Why `cpu`: there XLA gathers a row, uses it and drops it. From a copy of all windows it would gather
all rows before it uses the first, and again for every use of the results.
"""

from collections.abc import Callable
from typing import NamedTuple

from keras_attention._typing import Tensor
from keras_attention.backend.context import Place

__all__ = ["Form", "is_short", "longest_whole", "one_by_one"]

# The table of measured sizes, on two cores. `python benchmarks/speed.py --only windows` repeats the
# measurements.

# Windows are gathered from a memory at least this many times as long, compiled or not.
WORTHWHILE = {True: 10, False: 40}

# Without compilation, windows of more features are gathered from longer memories only: copied
# windows must not need more memory than the scores of the whole memory.
FEATURES = 160

# Wider windows are copied, because every step of the loop adds to the scores of all places.
WIDEST = 64


class Form(NamedTuple):
    """The products of one form; the arguments end with the positions, as in `reference`.

    Attributes:
        dot, tanh, weighted_sum: see `reference`.
        tanh_gradient: the gradients of query, key and vector. Its last argument is the upstream
            gradient.
        scatter: `scatter(a, x, position, memory)` is the inverse of gathering: it adds a[b,i,w]
            x[b,i] to row s[b,i,w] of zeros, as many as the memory has. Many rows may meet in one
            place, and half precision cannot count that far, so it counts in float32.
    """

    dot: Callable
    tanh: Callable
    tanh_gradient: Callable
    weighted_sum: Callable
    scatter: Callable


def is_short(x: Tensor, memory: Tensor, position: Tensor) -> bool:
    """Whether products with the whole memory are cheaper on a GPU than gathering the windows.

    Both move their results: Tk numbers for a query, or the W D numbers of its window.
    """
    length, width = memory.shape[1], position.shape[-1]
    return isinstance(length, int) and length <= width * x.shape[-1]


def one_by_one(place: Place, width: int) -> bool:
    """Whether the rows of windows are read one after the other."""
    return place.compiled and width <= WIDEST


def longest_whole(place: Place, width: int, features: int) -> int:
    """The longest memory that is read whole, for windows of this width."""
    if place.compiles_parts:
        return WORTHWHILE[True] * width
    return max(WORTHWHILE[False], WORTHWHILE[False] * features // FEATURES) * width
