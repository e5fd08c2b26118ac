"""Checks of the arguments of a search."""

import inspect
from typing import Any

from keras_attention._spec import Words, refuse

# Larger numbers are mistakes. The buffers would not fit into memory, every step ranks the square of
# the width, and a larger penalty overflows for the longest sequence.
LONGEST, WIDEST, LARGEST_PENALTY = 2**20, 2**12, 5
LARGEST_FACTOR = 10**6  # the factor of a coverage penalty


def check_step(
    step: Any, form: str = "step(tokens, state, memory) -> (logits, state, weights)"
) -> None:
    expected = f"`step` must be a function {form}"
    if not callable(step):
        refuse("search", expected, step)
    try:
        signature = inspect.signature(getattr(step, "call", step))
    except (TypeError, ValueError):  # functions that are not written in Python may have none
        return
    try:
        signature.bind(None, None, None)
    except TypeError:
        refuse("search", expected, Words(f"one that takes {signature}"))
