"""Makes the initial state of a decoder, and checks a state that the caller passes."""

from typing import Any

from keras import ops, tree

from keras_attention._checks import described, dtype_of, is_floating
from keras_attention._shapes import check_batch, fits
from keras_attention.layers.decoder._cells import as_states, state_sizes
from keras_attention.layers.decoder._checks import check_prepared
from keras_attention.layers.tensors import check_tensor, check_vectors
from keras_attention.layers.types import DecoderState, Memory
from keras_attention.ops.loops import leaves


def first_state(decoder: Any, memory: Memory, initial_state: Any) -> DecoderState:
    """The state before the first step; see `AttentionRNN.get_initial_state`."""
    attention, batch = decoder.attention, ops.shape(memory.value)[0]
    state = attention._first_state(memory) if attention.has_state else None
    cells, fed = _shapes(decoder)
    groups = {"cell state": cells, "fed vector": fed}
    if state is not None:
        groups["attention state"] = [tuple(x.shape[1:]) for x in leaves(state)]
    _refuse_names(decoder.name, initial_state)
    given = [] if initial_state is None else leaves(initial_state)
    position = ops.zeros((batch,), "int32")
    last = given[-1] if given and attention.uses_position else None
    # Without the position, the last tensor may be an integer state of the attention.
    complete = len(given) in (len(cells), sum(map(len, groups.values())))
    integers = hasattr(last, "dtype") and "int" in dtype_of(last) and len(last.shape) == 1
    if integers and not complete:
        *given, position = given
    _check(decoder.name, "initial_state", given, groups, memory.value.shape[0])
    shapes = [*cells, *fed]
    if given[len(shapes) :]:
        state = attention._given_state(memory, given[len(shapes) :])
    for shape in shapes[len(given) :]:
        given.append(ops.zeros((batch, *shape), decoder.compute_dtype))
    vector = given[len(cells)] if fed else None
    return DecoderState(as_states(decoder.cell, given[: len(cells)]), vector, state, position)


def check_step(decoder: Any, inputs: Any, state: Any, memory: Any) -> None:
    """The arguments of one step of a decoder; `_given_state` checks that of the attention."""
    layer, size = decoder.name, decoder._input_size
    check_prepared(layer, memory)
    check_tensor(layer, "inputs", inputs)
    shape, batch = tuple(inputs.shape), memory.value.shape[0]
    if not fits(shape, (None, size)):
        ids = len(shape) == 1 and " Embed token ids first: embedding(tokens)."
        raise ValueError(
            f"{layer}: `inputs` of a step must have shape (batch, {size}), "
            f"without an axis of steps; received {shape}.{ids or ''}"
        )
    if not fits(shape, (batch, size)):
        raise ValueError(
            f"{layer}: `inputs` and `memory` of a step must have the same batch size; received "
            f"inputs of {shape[0]} and a memory of {batch}. In a search, read the memory that it "
            "passes to `step`: it is repeated for the beams."
        )
    check_vectors(layer, "inputs", inputs)
    if not isinstance(state, DecoderState):
        raise ValueError(
            f"{layer}: `state` must be the DecoderState that get_initial_state(memory) or the "
            f"previous step returned; received {described(state)}. Start from the states of an "
            "encoder with get_initial_state(memory, initial_state)."
        )
    if decoder.attention.has_state and state.attention is None:
        raise ValueError(
            f"{layer}: `state` lacks the state of the attention. Pass the result of "
            "get_initial_state(memory), or of the previous step."
        )
    cells, fed = _shapes(decoder)
    groups = {"cell state": cells, "fed vector": fed}
    _check(layer, "state", leaves((state.cells, state.fed)), groups, memory.value.shape[0])


def _shapes(decoder):
    """The shapes of the cell states, and of the fed vector if there is one, without the batch."""
    sizes = tree.flatten(state_sizes(decoder.cell))
    return [(size,) for size in sizes], [(decoder._attention_size,)] * decoder.input_feeding


def _check(layer, name, given, groups, batch):
    """A flat list of states.

    Args:
        name: the argument that holds the states.
        groups: the shapes of the states of each kind, without the batch. An initial state may hold
            nothing, only the first kind, or all.
        batch: the batch size of the memory.
    """
    vectors = len(groups["cell state"]) + len(groups["fed vector"])
    vectors = vectors if "attention state" in groups else len(given)
    for n, state in enumerate(given):
        if not hasattr(state, "shape") or not hasattr(state, "dtype"):
            raise ValueError(
                f"{layer}: `{name}` must hold tensors; received {described(state)}. Leave it out "
                "to start from zeros."
            )
        check_tensor(layer, name, state)
        if dtype_of(state) == "bool" and n < vectors:
            raise ValueError(
                f"{layer}: `{name}` must hold vectors; received dtype bool. Pass a mask by its "
                "name: `sequences_mask` or `memory_mask`."
            )
        if name == "initial_state" and not is_floating(state) and n < vectors:
            raise ValueError(
                f"{layer}: `{name}` must hold vectors of floating-point numbers, the states of an "
                f"encoder; received dtype {dtype_of(state)}. Cast other numbers: "
                'keras.ops.cast(state, "float32").'
            )
    shapes = [shape for group in groups.values() for shape in group]
    allowed = {len(shapes)} if name == "state" else {0, len(groups["cell state"]), len(shapes)}
    found = [tuple(state.shape) for state in given]
    if len(given) not in allowed or not all(
        fits(shape, (None, *wanted)) for shape, wanted in zip(found, shapes, strict=False)
    ):
        wanted = ", ".join(
            f"{len(group)} {kind}{'s' * (len(group) > 1)} [{', '.join(map(_with_batch, group))}]"
            for kind, group in groups.items()
            if group
        )
        remedy = _remedy(found, groups["cell state"]) if name == "initial_state" else ""
        raise ValueError(
            f"{layer}: `{name}` must hold {wanted}; received {len(given)}, {found}.{remedy}"
        )
    for shape in found:
        check_batch(layer, memory=(batch,), **{name: shape})


def _refuse_names(layer, given):
    """States by name have no order; their tensors would come in the order of the names."""
    parts = [given, *given] if isinstance(given, (list, tuple)) else [given]
    for part in parts:
        if isinstance(part, dict):
            names = ", ".join(map(repr, part))
            raise ValueError(
                f"{layer}: `initial_state` must be a tensor or a list of tensors, in the order of "
                f"the cell, such as [h, c]; received a dictionary of {names}."
            )


def _remedy(found, cells):
    """How to fix an initial state of these shapes."""
    if len(found) == len(cells) and all(len(shape) == 2 for shape in found):
        sizes = [size for (size,), shape in zip(cells, found, strict=True) if shape[1] != size]
        return f" Project a state of another size: keras.layers.Dense({sizes[0]})(state)."
    return (
        f" A list of the {len(cells)} cell states alone suffices; a GRU has one, an LSTM has two. "
        "Leave `initial_state` out to start from zeros."
    )


def _with_batch(shape):
    return f"(batch, {', '.join(map(str, shape))})"
