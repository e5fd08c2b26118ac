"""What a layer was given, checked before any work: each error names argument, need and remedy."""

import contextlib
import numbers

import keras
import numpy as np

# Larger numbers are mistakes. They would stall, or fail where nothing names the argument.
WIDEST = 2**20  # features: a kernel from 1024 features to this many takes four gibibytes
LONGEST = 2**24  # steps and words: float32, which holds positions, counts no further
DEEPEST = 100  # hops, each of which Python builds and traces, a tenth of a second each
UNROLLED = 1000  # steps of a loop that Python traces one by one, which takes a minute or two
LAST_SEED = 2**32 - 1  # JAX takes seeds of 32 bits


def check_choice(layer, name, value, choices, hint=""):
    if not isinstance(value, str) or value not in choices:
        options = ", ".join(repr(choice) for choice in choices)
        raise ValueError(
            f"{layer}: `{name}` must be one of {options}; received {value!r:.80}.{hint}"
        )
    return value


def unquoted(value):
    return ", without quotes" if isinstance(value, str) else ""


def check_renamed(layer, kwargs, names, arguments):
    """Refuses earlier names, a dictionary, of the arguments of a layer or of its attributes."""
    for old, new in names.items():
        if old in kwargs:
            given = f"{kwargs[old]!r:.80}"
            remedy = f"called `{new}`; write {new}={given}"
            if new not in arguments:
                remedy = f"the attribute `{new}`; write layer.{new} = {given} before training"
            raise ValueError(f"{layer}: `{old}` is now {remedy}.")


def check_bool(layer, name, value):
    if not isinstance(value, (bool, np.bool_)):
        raise ValueError(
            f"{layer}: `{name}` must be True or False, a boolean; received {value!r:.80}. Write "
            f"{name}=True or {name}=False{unquoted(value)}."
        )
    return bool(value)


def check_training(layer, value):
    """Whatever Keras takes: None, a boolean, also as a number or a tensor."""
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
    """Whether it is an integer, and not True or False."""
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def _as_integer(name, value, most):
    """The remedy for "64", 64.0 and the like."""
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


def check_seed(layer, seed):
    if seed is None:
        return None
    if not is_integer(seed) or not 0 <= seed <= LAST_SEED:
        raise ValueError(
            f"{layer}: `seed` must be an integer from 0 to {LAST_SEED}, or None; received "
            f"{seed!r:.80}."
        )
    return int(seed)


def check_query_value(layer, query_shape, value_shape, key_shape=None):
    """The shapes of a call `layer(query, value, key)`; a dimension is None where unknown."""
    if len(query_shape) > 0 and isinstance(query_shape[0], (list, tuple)):
        raise ValueError(
            f"{layer}: `query` must be one tensor; received a list of {len(query_shape)}. "
            "Call layer(query, value), not layer([query, value])."
        )
    check_memory(layer, value_shape, key_shape)
    check_query(layer, query_shape)
    check_batch(layer, query=query_shape, value=value_shape)
    for name, shape in (("query", query_shape), ("value", value_shape), ("key", key_shape)):
        if shape is not None and shape[-1] is None:
            raise ValueError(
                f"{layer}: the last dimension of `{name}`, its features, must be known; "
                f"received {tuple(shape)}. Give it to keras.Input."
            )


def check_memory(layer, value_shape, key_shape=None):
    if value_shape is None:
        raise ValueError(
            f"{layer}: `value` is missing: there is no memory to attend to. Call "
            "layer(query, value), value of shape (batch, memory steps, features); "
            "for self-attention give the same tensor twice."
        )
    for name, shape in (("value", value_shape), ("key", key_shape)):
        if shape is not None and len(shape) != 3:
            raise ValueError(
                f"{layer}: `{name}` must have shape (batch, memory steps, features); "
                f"received {tuple(shape)}. Call layer(query, value)."
            )
    check_batch(layer, value=value_shape, key=key_shape)
    _check_equal(layer, "number of memory steps", 1, value=value_shape, key=key_shape)


def check_query(layer, query_shape):
    if len(query_shape) not in (2, 3):
        raise ValueError(
            f"{layer}: `query` must have shape (batch, steps, features), or (batch, features) for "
            f"one step; received {tuple(query_shape)}."
        )


def check_sequences(layer, call, **shapes):
    """The shapes of a call such as "layer(sequences, memory)": sequences of one batch size."""
    for name, shape in shapes.items():
        one = shape is not None and not any(isinstance(size, (list, tuple)) for size in shape)
        if not one or len(shape) != 3 or shape[-1] is None:
            missing = f"`{name}` is missing: " if shape is None else ""
            raise ValueError(
                f"{layer}: {missing}`{name}` must be one tensor of shape (batch, steps, features), "
                f"its features known; received {shape and tuple(shape)}. Call {call}."
            )
    check_batch(layer, **shapes)


def check_features(layer, **shapes):
    """Whether sequences, which `check_sequences` has seen, are of one width."""
    _check_equal(layer, "number of features", 2, **shapes)


def check_batch(layer, **shapes):
    _check_equal(layer, "batch size", 0, **shapes)


def check_width(layer, name, shape, size):
    """Whether an input is as wide as the weights that were built for it."""
    if shape[-1] != size:
        raise ValueError(
            f"{layer}: the layer was built for a `{name}` of {size} features; received "
            f"{tuple(shape)}. Check the order of the arguments, or use another layer for another "
            "width."
        )


def check_scores(layer, scores, wanted):
    given = tuple(scores.shape) if hasattr(scores, "shape") else type(scores).__name__
    if isinstance(given, str) or not fits(given, wanted):
        raise ValueError(
            f"{layer}: `score` must return (batch, query steps, memory steps), here "
            f"{wanted}; it returned {given}."
        )


def described(value):
    """What was given, in a few words: the dtype and shape of a tensor, otherwise the value."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if type(value).__name__ == "Memory":
        return "Memory"
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"{dtype_of(value)} of shape {tuple(value.shape)}"
    return f"{value!r:.200}"


def dtype_of(x):
    try:
        return keras.backend.standardize_dtype(x.dtype)
    except ValueError:
        return str(x.dtype)


def made(value):
    """The remedy where a class was given in place of a layer."""
    return f" Make one: {value.__name__}(...)." if isinstance(value, type) else ""


def is_cell(layer):
    """Whether it makes one step of a recurrence, unlike an RNN, which has its state size too."""
    return (
        hasattr(layer, "state_size") and callable(layer) and not isinstance(layer, keras.layers.RNN)
    )


def shape_of(tensor):
    """Of a list of tensors the list of their shapes, which the checks refuse; of None None."""
    if isinstance(tensor, (list, tuple)):
        return [tuple(one.shape) for one in tensor]
    return None if tensor is None else tuple(tensor.shape)


def fits(given, wanted):
    """Whether shapes may be equal: what is not known, None or symbolic, is not compared."""
    return len(given) == len(wanted) and not any(
        isinstance(g, int) and isinstance(w, int) and g != w
        for g, w in zip(given, wanted, strict=True)
    )


def _check_equal(layer, what, axis, **shapes):
    known = {n: s[axis] for n, s in shapes.items() if s is not None and isinstance(s[axis], int)}
    if len(set(known.values())) > 1:
        found = ", ".join(f"`{name}` {size}" for name, size in known.items())
        raise ValueError(
            f"{layer}: the {what} must be the same in {' and '.join(f'`{n}`' for n in known)}; "
            f"received {found}."
        )
