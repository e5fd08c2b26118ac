"""Makes the initial state of a decoder, and checks a state that the caller passes."""

from typing import Any

from keras import ops, tree

from keras_attention._spec import Spec, Words, dtype_of, fits, is_dense, kind_of, refuse
from keras_attention.layers.decoder._cells import as_states, state_sizes
from keras_attention.layers.types import DecoderState, Memory
from keras_attention.ops.loops import leaves

STEP = Spec(
    "memory: float[B Tk Dv]",
    "inputs: float[B D]",
    call="step(inputs, state, memory) without an axis of steps. Embed token ids first: "
    "embedding(tokens)",
)


def first_state(decoder: Any, memory: Memory, initial_state: Any) -> DecoderState:
    """The state before the first step; see `AttentionRNN.get_initial_state`."""
    attention, batch = decoder.attention, ops.shape(memory.value)[0]
    state = attention._first_state(memory) if attention.has_state else None
    cells, fed = _shapes(decoder)
    groups = {"cell state": cells, "fed vector": fed}
    if state is not None:
        groups["attention state"] = [tuple(x.shape[1:]) for x in leaves(state)]
    parts = initial_state if isinstance(initial_state, (list, tuple)) else ()
    for part in (initial_state, *parts):
        if isinstance(part, dict):
            expected = "`initial_state` must be a tensor or a list of tensors, in the order of the "
            names = Words(f"a dictionary of {', '.join(map(repr, part))}")
            refuse(decoder.name, f"{expected}cell, such as [h, c]", names)
    given = [] if initial_state is None else leaves(initial_state)
    position = ops.zeros((batch,), "int32")
    last = given[-1] if given and attention.uses_position else None
    # Without the position, the last tensor may be an integer state of the attention.
    complete = len(given) in (len(cells), sum(map(len, groups.values())))
    integers = hasattr(last, "dtype") and "int" in dtype_of(last) and len(last.shape) == 1
    if integers and not complete:
        *given, position = given
    check_states(decoder.name, "initial_state", given, groups, memory.value.shape[0])
    shapes = [*cells, *fed]
    if given[len(shapes) :]:
        state = attention._given_state(memory, given[len(shapes) :])
    for shape in shapes[len(given) :]:
        given.append(ops.zeros((batch, *shape), decoder.compute_dtype))
    vector = given[len(cells)] if fed else None
    return DecoderState(as_states(decoder.cell, given[: len(cells)]), vector, state, position)


def check_built(decoder: Any) -> None:
    if not decoder.built:
        raise ValueError(
            f"{decoder.name}: the layer has no weights yet. Call it once, or its build(), before "
            "decoding."
        )


def check_prepared(decoder: Any, memory: Any) -> None:
    check_built(decoder)
    if not isinstance(memory, Memory):
        expected = "`memory` must be what prepare(memory, memory_mask) returns, made once before "
        refuse(decoder.name, f"{expected}the first step", memory)


def check_step(decoder: Any, inputs: Any, state: Any, memory: Any) -> None:
    """The arguments of one step of a decoder; `_given_state` checks that of the attention."""
    check_prepared(decoder, memory)
    STEP.check(decoder.name, {"memory": memory.value, "inputs": inputs}, decoder._sizes)
    if not isinstance(state, DecoderState):
        expected = "`state` must be the DecoderState that get_initial_state(memory) or the previous"
        remedy = "Start from states of an encoder: get_initial_state(memory, initial_state)."
        refuse(decoder.name, f"{expected} step returned", state, remedy)
    if decoder.attention.has_state and state.attention is None:
        expected = "`state` must hold the state of the attention, as get_initial_state(memory) or "
        refuse(decoder.name, f"{expected}the previous step returned it", None)
    cells, fed = _shapes(decoder)
    groups = {"cell state": cells, "fed vector": fed}
    given = leaves((state.cells, state.fed))
    check_states(decoder.name, "state", given, groups, memory.value.shape[0])


def _shapes(decoder):
    """The shapes of the cell states, and of the fed vector if there is one, without the batch."""
    sizes = tree.flatten(state_sizes(decoder.cell))
    return [(size,) for size in sizes], [(decoder._attention_size,)] * decoder.input_feeding


def check_states(layer: str, name: str, given: list, groups: dict, batch: Any) -> None:
    """A flat list of states.

    Args:
        name: the argument that holds the states.
        groups: the shapes of the states of each kind, without the batch. An initial state may hold
            nothing, only the first kind, or all.
        batch: the batch size of the memory.
    """
    vectors = len(groups["cell state"]) + len(groups["fed vector"])
    vectors = vectors if "attention state" in groups else len(given)
    initial = name == "initial_state"
    for n, state in enumerate(given):
        if not hasattr(state, "shape") or not hasattr(state, "dtype") or not is_dense(state):
            refuse(layer, f"`{name}` must hold tensors", state, "Leave it out to start from zeros.")
        kind = kind_of(state.dtype)
        if n < vectors and (kind == "bool" or (initial and kind != "float")):
            expected = f"`{name}` must hold vectors of floating-point numbers, as of an encoder"
            remedy = 'Cast other numbers: keras.ops.cast(state, "float32").'
            if kind == "bool":
                remedy = "Pass a mask by its name: `sequences_mask` or `memory_mask`."
            refuse(layer, expected, Words(f"dtype {dtype_of(state)}"), remedy)
    shapes = [shape for group in groups.values() for shape in group]
    allowed = {0, len(groups["cell state"]), len(shapes)} if initial else {len(shapes)}
    pairs = zip(given, shapes, strict=False)
    if len(given) in allowed and all(fits(tuple(x.shape), (batch, *size)) for x, size in pairs):
        return
    wanted = ", ".join(
        f"{len(group)} {kind}{'s' * (len(group) > 1)} [{', '.join(map(_with_batch, group))}]"
        for kind, group in groups.items()
        if group
    )
    found = [tuple(x.shape) for x in given]
    remedy = _remedy(found, shapes) if initial else ""
    if any(not fits(shape[:1], (batch,)) for shape in found):
        remedy = f"The batch size must be {batch}, as in the memory."
    refuse(layer, f"`{name}` must hold {wanted}", Words(f"{len(found)}, {found}"), remedy)


def _remedy(found, shapes):
    """How to fix an initial state of these shapes."""
    sizes = [size for (size, *_), shape in zip(shapes, found, strict=False) if shape[1:] != (size,)]
    if sizes and len(found) <= len(shapes) and all(len(shape) == 2 for shape in found):
        return f"Project a state of another size: keras.layers.Dense({sizes[0]})(state)."
    return (
        "A list of the cell states alone suffices; a GRU has one, an LSTM has two. Leave "
        "`initial_state` out to start from zeros."
    )


def _with_batch(shape):
    return f"(batch, {', '.join(map(str, shape))})"
