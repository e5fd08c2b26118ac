"""Checks of the arguments of a search."""

import inspect

from keras_attention._checks import is_integer

# Larger numbers are mistakes: their buffers would not fit into memory. Every step ranks the square
# of the width, and a larger penalty than this is not finite for the longest sequence.
LONGEST, WIDEST, LARGEST_PENALTY, LAST_TOKEN = 2**20, 2**12, 5, 2**31 - 1


def check_positive(name, value, most):
    if not is_integer(value) or not 1 <= value <= most:
        raise ValueError(
            f"{name}={value!r:.80} must be a positive integer, and a Python one, at most {most}."
            f"{as_python(name, value)}"
        )


def as_python(name, value):
    """The remedy for a tensor without axes."""
    return f" Write int({name})." if getattr(value, "shape", None) == () else ""


def check_step(step):
    form = "step must be a function step(tokens, state, memory) -> (logits, state, weights)"
    if not callable(step):
        raise ValueError(f"{form}; received {step!r:.80}.")
    try:
        signature = inspect.signature(getattr(step, "call", step))
    except (TypeError, ValueError):  # what is not written in Python may not tell
        return
    try:
        signature.bind(None, None, None)
    except TypeError:
        raise ValueError(f"{form}; received one that takes {signature}.") from None
