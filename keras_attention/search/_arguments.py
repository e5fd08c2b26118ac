"""Checks of the arguments of a search."""

import inspect
import numbers
from typing import Any

from keras_attention._checks import is_integer

# Larger numbers are mistakes. The buffers would not fit into memory, every step ranks the square of
# the width, and a larger penalty overflows for the longest sequence.
LONGEST, WIDEST, LARGEST_PENALTY, LAST_TOKEN = 2**20, 2**12, 5, 2**31 - 1
LARGEST_FACTOR = 10**6  # the factor of a coverage penalty


def check_positive(name: str, value: Any, most: int) -> None:
    if not is_integer(value) or not 1 <= value <= most:
        raise ValueError(
            f"{name}={value!r:.80} must be a positive integer of Python, at most {most}."
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


def check_token(name: str, token: Any) -> None:
    if not is_integer(token) or not 0 <= token <= LAST_TOKEN:
        lookup = " Look it up in the vocabulary." if isinstance(token, str) else ""
        raise ValueError(
            f"{name}={token!r:.80} must be the index of a token, an integer from 0 to "
            f"{LAST_TOKEN}.{lookup or as_python(name, token)}"
        )


def as_python(name: str, value: Any) -> str:
    """The remedy for a scalar tensor."""
    return f" Write int({name})." if getattr(value, "shape", None) == () else ""


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
