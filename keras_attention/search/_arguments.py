"""Checks of the arguments of a search."""

import inspect
import math
import numbers
from typing import Any

from keras_attention._checks import as_python, is_integer

# Larger numbers are mistakes. The buffers would not fit into memory, every step ranks the square of
# the width, and a larger penalty overflows for the longest sequence.
LONGEST, WIDEST, LARGEST_PENALTY = 2**20, 2**12, 5
LARGEST_FACTOR = 10**6  # the factor of a coverage penalty


def check_positive(name: str, value: Any, most: int) -> None:
    if not is_integer(value) or not 1 <= value <= most:
        raise ValueError(
            f"{name}={value!r:.80} must be a positive Python int, at most {most}."
            f"{as_python(name, value)}"
        )


def check_count(name: str, value: Any, most: int) -> None:
    if not is_integer(value) or not 0 <= value <= most:
        raise ValueError(
            f"{name}={value!r:.80} must be an integer from 0 to {most}; 0 turns it off."
            f"{as_python(name, value)}"
        )


def check_at_least_zero(name: str, value: Any, most: int) -> None:
    number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not number or not 0 <= value <= most:
        raise ValueError(
            f"{name}={value!r:.80} must be a finite number, 0 or more, and at most {most}; 0 turns "
            "the penalty off."
        )


def check_above_zero(name: str, value: Any, most: float) -> None:
    number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not number or not 0 < value <= most or value == math.inf:
        wanted = "a finite number above 0" + (f" and at most {most}" if most < math.inf else "")
        raise ValueError(f"{name}={value!r:.80} must be {wanted}.")


def check_step(
    step: Any, form: str = "step(tokens, state, memory) -> (logits, state, weights)"
) -> None:
    form = f"step must be a function {form}"
    if not callable(step):
        raise ValueError(f"{form}; received {step!r:.80}.")
    try:
        signature = inspect.signature(getattr(step, "call", step))
    except (TypeError, ValueError):  # functions that are not written in Python may have none
        return
    try:
        signature.bind(None, None, None)
    except TypeError:
        raise ValueError(f"{form}; received one that takes {signature}.") from None
