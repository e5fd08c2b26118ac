"""What a layer was given, checked before any work: each error names argument, need and remedy."""

import numbers

import keras


def check_choice(layer, name, value, choices):
    if value not in choices:
        options = ", ".join(repr(choice) for choice in choices)
        raise ValueError(f"{layer}: `{name}` must be one of {options}; received {value!r}.")
    return value


def check_positive_int(layer, name, value):
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < 1:
        raise ValueError(
            f"{layer}: `{name}` must be a positive integer; "
            f"received {value!r} of type {type(value).__name__}."
        )
    return int(value)


def check_rate(layer, name, value):
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not 0 <= value < 1:
        raise ValueError(f"{layer}: `{name}` must be a number in [0, 1); received {value!r}.")
    return float(value)


def check_seed(layer, seed):
    if seed is not None and (isinstance(seed, bool) or not isinstance(seed, numbers.Integral)):
        raise ValueError(f"{layer}: `seed` must be an integer or None; received {seed!r}.")
    return seed


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
                f"received {tuple(shape)}."
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
                f"received {tuple(shape)}."
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
            f"{tuple(shape)}. Use another layer for another width."
        )


def check_mask(layer, name, mask, shapes):
    """A mask is boolean and has one of the `shapes`; a dimension None there is not compared."""
    if mask is None:
        return
    dtype = getattr(mask, "dtype", type(mask).__name__)
    dtype = dtype if isinstance(dtype, str) else keras.backend.standardize_dtype(dtype)
    if dtype != "bool":
        raise ValueError(
            f"{layer}: `{name}` must be boolean, True where attention is allowed; received dtype "
            f'{dtype}. Convert it: keras.ops.cast({name}, "bool").'
        )
    given = tuple(mask.shape)
    if not any(fits(given, shape) for shape in shapes):
        wanted = " or ".join(str(tuple(shape)) for shape in shapes)
        raise ValueError(f"{layer}: `{name}` must have shape {wanted}; received {given}.")


def check_position(layer, position, uses_position, query_shape):
    """The number of a step is given for one step of a layer that uses it, and only there."""
    if (uses_position and len(query_shape) == 2) != (position is not None):
        raise ValueError(
            f"{layer}: `position`, the number of the step, is for a query of rank 2, one "
            f"step, of a layer that counts steps (local-m), and needed there; received "
            f"{position!r} with a query of shape {tuple(query_shape)}."
        )


def check_no_causal_mask(layer, use_causal_mask, query_shape):
    if use_causal_mask:
        raise ValueError(
            f"{layer}: `use_causal_mask=True` needs a query of rank 3, "
            f"(batch, steps, features); received one step, {tuple(query_shape)}."
        )


def check_scores(layer, given, wanted):
    if not fits(given, wanted):
        raise ValueError(
            f"{layer}: `score` must return (batch, query steps, memory steps), here "
            f"{wanted}; it returned {given}."
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
