"""Checks of shapes. Unknown sizes, None or symbolic, are not compared."""

import keras

from keras_attention._checks import described, is_floating


def check_query_value(layer, query_shape, value_shape, key_shape=None):
    """The shapes of a call layer(query, value, key)."""
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
            "for self-attention pass the same tensor twice."
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
                f"{layer}: {missing}`{name}` must be one tensor of shape (batch, steps, features) "
                f"with a known number of features; received {shape and tuple(shape)}. Call {call}."
            )
    check_batch(layer, **shapes)


def check_features(layer, **shapes):
    """Whether sequences, checked by `check_sequences`, have the same width."""
    _check_equal(layer, "number of features", 2, **shapes)


def check_batch(layer, **shapes):
    _check_equal(layer, "batch size", 0, **shapes)


def check_width(layer, name, shape, size):
    """Whether an input has the width that the layer was built for."""
    if shape[-1] != size:
        raise ValueError(
            f"{layer}: the layer was built for a `{name}` of {size} features; received "
            f"{tuple(shape)}. Check the order of the arguments, or use another layer for another "
            "width."
        )


def check_scores(layer, scores, wanted):
    tensor = hasattr(scores, "shape") and hasattr(scores, "dtype")
    if not tensor or not fits(tuple(scores.shape), wanted) or not is_floating(scores):
        raise ValueError(
            f"{layer}: `score` must return floating-point numbers of shape (batch, query steps, "
            f"memory steps), here {wanted}; it returned {described(scores)}."
        )


def shape_of(tensor):
    """The shape of a tensor, None for None; the checks refuse the list that a list returns."""
    if isinstance(tensor, (list, tuple)):
        return [tuple(one.shape) for one in tensor]
    return None if tensor is None else tuple(tensor.shape)


def fits(given, wanted):
    """Whether shapes may be equal."""
    return len(given) == len(wanted) and not any(
        isinstance(g, int) and isinstance(w, int) and g != w
        for g, w in zip(given, wanted, strict=True)
    )


def check_longest(layer, shape, max_length):
    """The memory of a layer with weights for the first `max_length` steps."""
    if isinstance(shape[1], int) and shape[1] > max_length and not _are_sizes_invented():
        raise ValueError(
            f'{layer}: score_mode="location" has weights for max_length={max_length} memory steps; '
            f"received a memory of {shape[1]}. Give a larger max_length."
        )


def _are_sizes_invented():
    """Keras builds a functional model on PyTorch by running it with tensors of invented sizes."""
    # Keras has no way to ask whether it does so now, but a scope records the one around it.
    with keras.SymbolicScope() as scope:
        return keras.backend.backend() == "torch" and scope.original_scope is not None


def _check_equal(layer, what, axis, **shapes):
    known = {n: s[axis] for n, s in shapes.items() if s is not None and isinstance(s[axis], int)}
    if len(set(known.values())) > 1:
        found = ", ".join(f"`{name}` {size}" for name, size in known.items())
        raise ValueError(
            f"{layer}: the {what} must be the same in {' and '.join(f'`{n}`' for n in known)}; "
            f"received {found}."
        )
