"""Checks of arguments. An error says what was expected, what was given and how to fix it."""

import contextlib
import math
import numbers

import keras
import numpy as np

# Larger numbers are mistakes. They would stall, or fail far from the argument.
WIDEST = 2**20  # features: a kernel of 1024 rows then takes four gibibytes
LONGEST = 2**24  # steps and words: float32, which holds positions, cannot count further
DEEPEST = 100  # hops: Python traces each in a tenth of a second
UNROLLED = 1000  # steps of an unrolled loop: tracing this many takes a minute or two
LAST_SEED = 2**32 - 1  # the largest seed of JAX
LAST_TOKEN = 2**31 - 1


def check_choice(layer, name, value, choices, hint=""):
    if not isinstance(value, str) or value not in choices:
        options = ", ".join(repr(choice) for choice in choices)
        raise ValueError(
            f"{layer}: `{name}` must be one of {options}; received {value!r:.80}.{hint}"
        )
    return value


def unquoted(value):
    """The advice to leave out the quotes, for a string."""
    return ", without quotes" if isinstance(value, str) else ""


def check_bool(layer, name, value):
    if not isinstance(value, (bool, np.bool_)):
        raise ValueError(
            f"{layer}: `{name}` must be True or False, a boolean; received {value!r:.80}. Write "
            f"{name}=True or {name}=False{unquoted(value)}."
        )
    return bool(value)


def check_training(layer, value):
    """Accepts what Keras accepts: None, or a boolean, even as a number or a tensor."""
    if not (value is None or isinstance(value, numbers.Number) or hasattr(value, "dtype")):
        raise ValueError(
            f"{layer}: `training` must be None, True or False; received {value!r:.80}. Write "
            f"training=True or training=False{unquoted(value)}."
        )


def check_positive_int(layer, name, value, most=WIDEST, hint=""):
    if not is_integer(value) or not 1 <= value <= most:
        raise ValueError(
            f"{layer}: `{name}` must be a positive integer, at most {most}; received {value!r:.80} "
            f"of type {type(value).__name__}.{_as_integer(name, value, most)}{hint}"
        )
    return int(value)


def is_integer(value):
    """Whether the value is an integer, but not a boolean."""
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def _as_integer(name, value, most):
    """How to fix "64", 64.0 and the like."""
    with contextlib.suppress(TypeError, ValueError, OverflowError):
        if not isinstance(value, bool) and int(value) == float(value) and 1 <= int(value) <= most:
            return f" Write {name}={int(value)}."
    return ""


def check_rate(layer, name, value):
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not 0 <= value < 1:
        percent = isinstance(value, numbers.Real) and 1 < value < 100
        remedy = f"{value / 100:g} for {value:g} %" if percent else f"{name}=0.2, for example"
        raise ValueError(
            f"{layer}: `{name}` must be a number in [0, 1); received {value!r:.80}. Write "
            f"{remedy}{unquoted(value)}."
        )
    return float(value)


def check_number(layer, name, value, least=-math.inf):
    """A finite number, at least `least`."""
    number = not isinstance(value, bool) and isinstance(value, numbers.Real)
    if not number or not math.isfinite(value) or value < least:
        wanted = "a number" if least == -math.inf else f"a number of at least {least:g}"
        raise ValueError(
            f"{layer}: `{name}` must be {wanted}; received {value!r:.80}{unquoted(value)}."
        )
    return float(value)


def check_not_normalized(layer, normalizer):
    """Refuses a normalizer where weights are not normalised."""
    if normalizer != "softmax":
        raise ValueError(
            f"{layer}: takes no `normalizer`, because its weights are not normalised; received "
            f"{normalizer!r}. Leave it out."
        )


def check_seed(layer, seed):
    if seed is None:
        return None
    if not is_integer(seed) or not 0 <= seed <= LAST_SEED:
        raise ValueError(
            f"{layer}: `seed` must be an integer from 0 to {LAST_SEED}, or None; received "
            f"{seed!r:.80}."
        )
    return int(seed)


def check_token(name, token):
    if not is_integer(token) or not 0 <= token <= LAST_TOKEN:
        lookup = " Look it up in the vocabulary." if isinstance(token, str) else ""
        raise ValueError(
            f"{name}={token!r:.80} must be the index of a token, an integer from 0 to "
            f"{LAST_TOKEN}.{lookup or as_python(name, token)}"
        )


def as_python(name, value):
    """The remedy for a scalar tensor."""
    return f" Write int({name})." if getattr(value, "shape", None) == () else ""


def described(value):
    """Describes a value in an error: the dtype and shape of a tensor, otherwise the value."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if hasattr(value, "_fields"):  # a NamedTuple such as Memory, whose tensors would fill a page
        return type(value).__name__
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"{dtype_of(value)} of shape {tuple(value.shape)}"
    if isinstance(value, (list, tuple)) and any(hasattr(one, "shape") for one in value):
        inside = ", ".join(map(described, value))
        return f"[{inside}]" if isinstance(value, list) else f"({inside})"
    return f"{value!r:.200}"


def counted(value):
    """Describes a result that should be a tuple of another length."""
    several = isinstance(value, (tuple, list))
    return f"a {type(value).__name__} of {len(value)}" if several else described(value)


def dtype_of(x):
    """The name of a dtype, also of one that Keras does not know."""
    try:
        return keras.backend.standardize_dtype(x.dtype)
    except ValueError:
        return str(x.dtype)


def is_floating(x):
    """Whether a tensor holds floating-point numbers, of any precision."""
    return "float" in dtype_of(x)


def made(value):
    """How to fix a class given in place of a layer."""
    return f" Make one: {value.__name__}(...)." if isinstance(value, type) else ""


def is_cell(layer):
    """Whether a layer makes one step of a recurrence. An RNN has a `state_size` too."""
    return (
        hasattr(layer, "state_size") and callable(layer) and not isinstance(layer, keras.layers.RNN)
    )
