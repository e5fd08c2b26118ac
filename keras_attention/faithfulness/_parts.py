"""The parts of an input, and the most important of them."""

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from keras_attention._spec import check_number, refuse

# From inputs (B, ...) to the probabilities of the classes (B, C).
Predict: TypeAlias = Callable[[Any], Any]


def present_parts(inputs, importance, pad, name="importance"):
    """Marks the parts that are not padding."""
    shape = np.shape(importance)
    if len(shape) < 2 or shape != inputs.shape[: len(shape)]:
        expected = f"`{name}` must have the shape of the inputs, {inputs.shape}, or of first axes"
        refuse("faithfulness", expected, shape)
    present = inputs != pad
    return present.any(axis=tuple(range(len(shape), inputs.ndim)))


def most_important(importance, parts, share, name="importance"):
    """Marks the share of the parts with the largest importance, the first of equal ones."""
    if check_number("faithfulness", "share", share, 0) > 1 or share == 0:
        remedy = "Write share=0.1 for the top 10%."
        refuse("faithfulness", "`share` must be more than 0 and at most 1", share, remedy)
    importance, flat = as_rows(np.asarray(importance, "float64")), as_rows(parts)
    if np.isnan(importance[flat]).any():
        raise ValueError(f"faithfulness: `{name}` holds NaN. Replace it; a part needs a number.")
    # Otherwise the rounding of a product such as 0.1 * 30 would choose one more.
    count = np.ceil(np.round(share * flat.sum(axis=1), 9))
    order = np.argsort(np.where(flat, -importance, np.inf), axis=1, kind="stable")
    chosen = np.zeros_like(flat)
    np.put_along_axis(chosen, order, np.arange(flat.shape[1]) < count[:, None], axis=1)
    return chosen.reshape(parts.shape)


def as_rows(x):
    """One row for each sample."""
    return x.reshape(len(x), -1)
