"""Dispatch of the products of windows.

| where                        | implementation                                             |
| ---------------------------- | ---------------------------------------------------------- |
| short memory                 | all scores, with a mask (`attention/scoring.py`)           |
| XLA compiles, narrow windows | `looped.py`, one row of every window after the other       |
| XLA compiles for a GPU       | `fused.py`, all rows of the windows in one kernel          |
| elsewhere                    | `gathered.py`, a copy of all windows                       |

Why `looped`: there XLA gathers a row, uses it and drops it. From a copy of all windows it would
gather all rows before it uses the first, and again for every use of the results.
"""

import functools

from keras_attention._typing import Tensor
from keras_attention.backend import ExecutionContext, execution_context, on_device
from keras_attention.ops.windows.fused import FUSED
from keras_attention.ops.windows.gathered import GATHERED
from keras_attention.ops.windows.looped import LOOPED
from keras_attention.ops.windows.products import Products

__all__ = ["max_dense_length", "products_for"]

# Sizes measured on two cores; `python benchmarks/speed.py --only windows` repeats the measurements.

# Windows are gathered from a memory at least this many times as long, compiled or not.
MIN_LENGTH_RATIO = {True: 10, False: 40}

# Without compilation, windows of more features are gathered from longer memories only: copied
# windows must not need more memory than the scores of the whole memory.
FEATURES = 160

# Wider windows are copied, because every step of the loop adds to the scores of all positions.
MAX_WIDTH = 64


def products_for(position: Tensor) -> Products:
    """Return the products for windows of these positions."""
    return _products(execution_context(position).compiled, position.shape[-1] <= MAX_WIDTH)


@functools.cache
def _products(compiled, narrow):
    """Return products that dispatch by device; cached, because compiled programs are."""
    on_cpu = LOOPED if compiled and narrow else GATHERED
    pairs = zip(on_cpu, FUSED if compiled else GATHERED, strict=True)
    return Products(*(functools.partial(on_device, *pair) for pair in pairs))


def max_dense_length(context: ExecutionContext, width: int, features: int) -> int:
    """Return the longest memory that is read whole, for windows of this width."""
    if context.compiled or context.nests_jit:
        return MIN_LENGTH_RATIO[True] * width
    return max(MIN_LENGTH_RATIO[False], MIN_LENGTH_RATIO[False] * features // FEATURES) * width
