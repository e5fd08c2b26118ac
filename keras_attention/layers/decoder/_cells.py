"""The cells of a decoder: their sizes, states and dropout, and the checks of their states."""

import contextlib
from typing import Any

import keras
from keras import ops, tree

from keras_attention._place import in_graph, value_of
from keras_attention._spec import (
    Words,
    dtype_of,
    fits,
    is_cell,
    is_dense,
    kind_of,
    made,
    refuse,
)
from keras_attention.layers.scoring import ScoringMixin
from keras_attention.layers.types import DecoderState, Memory
from keras_attention.ops.loops import leaves, map_leaves, pack_like
from keras_attention.ops.products import as_dtype
from keras_attention.ops.random import generator_states
from keras_attention.ops.xla import pad_axis


def state_sizes(cell):
    """The sizes of the states: a list, nested for stacked cells of several states each."""
    sizes = cell.state_size
    return _plain(sizes) if tree.is_nested(sizes) else [sizes]


def as_states(cell, states):
    """The states, nested or flat, in plain lists."""
    flat = tree.flatten(states)
    return tree.pack_sequence_as(state_sizes(cell), flat)


def _plain(sizes):
    return [_plain(size) for size in sizes] if tree.is_nested(sizes) else sizes


def cells_of(cell):
    """The cells of a stack, the lowest first; or the cell itself, in a list."""
    return cell.cells if isinstance(cell, keras.layers.StackedRNNCells) else [cell]


def last_cell(cell):
    """The cell itself, or the last of stacked cells."""
    last = cells_of(cell)[-1]
    return last if last is cell else last_cell(last)


def query_of(cell, states):
    """The query that belongs to the states of a cell.

    It is `cell.query(states)` if the cell has such a method, otherwise its first state. The last of
    stacked cells makes the query, if the stack has no such method.
    """
    states = states if tree.is_nested(states) else [states]
    if callable(getattr(cell, "query", None)):
        return cell.query(states)
    if isinstance(cell, keras.layers.StackedRNNCells):
        return query_of(cell.cells[-1], states[-1])
    return states[0]


def has_query(cell):
    """Whether a cell chooses its own query, by a method `query`."""
    return any(callable(getattr(x, "query", None)) for x in (cell, last_cell(cell)))


def query_size(cell, query):
    """The features of the query: the output of the cell, or what `query_of` returns."""
    if query == "current":
        return output_size(cell)
    states = tree.map_structure(lambda size: keras.KerasTensor((None, size)), state_sizes(cell))
    return query_of(cell, states).shape[-1]


def output_size(cell):
    """The features of a cell's output; of its first state, if the cell does not say."""
    return getattr(cell, "output_size", None) or tree.flatten(state_sizes(last_cell(cell)))[0]


@contextlib.contextmanager
def dropout_masks(cell, batch_size, width):
    """Draws the dropout masks of cells before the loop, and resets them afterwards."""
    cells = cells_of(cell)
    try:
        for one in cells:
            if hasattr(one, "get_dropout_mask"):
                sizes = width, tree.flatten(state_sizes(one))[0]
                inputs, state = (ops.ones((batch_size, n), one.compute_dtype) for n in sizes)
                one.get_dropout_mask(inputs)
                one.get_recurrent_dropout_mask(state)
            width = output_size(one)
        yield
    finally:
        for one in cells:
            if hasattr(one, "reset_dropout_mask"):
                one.reset_dropout_mask()
                one.reset_recurrent_dropout_mask()


def run_at_least_once(run, sequences, memory, state, mask):
    """Calls `run`, a recurrent loop, even without a sample or without a step.

    It passes zeros in place of a missing sample or step, and cuts the results, so gradients exist.

    Args:
        run: takes the other arguments and returns (outputs, weights or None, state).
    """
    steps = sequences.shape[1]
    given = sequences, memory, state, mask
    if any(x.shape[0] == 0 for x in leaves(given)):
        one = [ops.zeros((1, *ops.shape(x)[1:]), x.dtype) for x in leaves(given)]
        results = run_at_least_once(run, *pack_like(given, one))
        return pack_like(results, [x[:0] for x in leaves(results)])
    if steps is not None and steps > 0:
        return run(sequences, memory, state, mask)
    count = ops.shape(sequences)[1]
    more = 1 if steps == 0 else ops.maximum(1 - count, 0)
    mask = map_leaves(lambda x: pad_axis(x, 1, more), mask)
    outputs, weights, last = run(pad_axis(sequences, 1, more), memory, state, mask)
    pairs = zip(leaves(last), leaves(state), strict=True)
    last = pack_like(last, [ops.where(count > 0, *pair) for pair in pairs])
    return outputs[:, :count], map_leaves(lambda x: x[:, :count], weights), last


def with_constant_weights(layer, run):
    """Calls `run`, a recurrent loop, with the weights of the layer read once, before the loop.

    A TensorFlow graph that reads a weight inside a loop stores it for the gradient at every step,
    and a compiled graph copies it. They are not read before it under mixed precision, which casts
    weights inside the loop, when unrolling, and for cells with non-trainable weights.
    """
    floating = [weight.dtype for weight in layer.weights if "float" in weight.dtype]
    mixed = any(dtype != layer.compute_dtype for dtype in floating)
    changing = layer.unroll or getattr(layer.cell, "non_trainable_weights", None)
    if mixed or changing or not in_graph():
        return run()
    states = generator_states(layer)
    read = [(x, value_of(x)) for x in [*layer.weights, *states]]
    with keras.StatelessScope(read) as scope:
        result = run()
    for state, old in read[len(read) - len(states) :]:
        new = scope.get_current_value(state)
        if new is not old:
            state.assign(new)
    return result


def check_cells(layer: str, name: str, argument: Any, wanted: str) -> list:
    """Lists the cells of an argument. None may occur twice: the places would share its weights."""
    cells = list(argument) if isinstance(argument, (list, tuple)) else [argument]
    wrong = [one for one in cells if isinstance(one, type) or not is_cell(one)]
    if wrong or not cells:
        refuse(layer, f"`{name}` must be {wanted}", argument, (wrong and _cell_of(wrong[0])) or "")
    if len({id(one) for one in cells}) < len(cells):
        remedy = f"Make each: [keras.layers.GRUCell(256) for _ in range({len(cells)})]."
        refuse(layer, f"`{name}` must not hold one cell more than once", argument, remedy)
    return cells


def _cell_of(part):
    """How to fix what was given in place of a cell."""
    if isinstance(part, ScoringMixin):
        return "Call AttentionRNN(cell, attention), the cell first."
    if hasattr(part, "state_size") and not isinstance(part, type):
        cell = f"{type(part).__name__}Cell(units)"
        return f"It runs over whole sequences; pass a cell, such as keras.layers.{cell}."
    return made(part)


def check_output(layer: str, cell: Any, hidden: Any, states: Any = None) -> None:
    """The output of the cell. With `states`, the new ones, it must be the next query."""
    size = output_size(cell)
    wrong_size = hidden.shape[-1] != size
    if not wrong_size and (states is None or query_of(cell, states) is hidden or has_query(cell)):
        return
    name = getattr(last_cell(cell), "name", type(cell).__name__)
    if wrong_size:
        expected = f"the cell {name} must return {size} features, its `output_size` or first state"
        remedy = f"Give the cell the attribute `output_size = {hidden.shape[-1]}`."
        refuse(layer, expected, Words(f"an output of {hidden.shape[-1]} features"), remedy)
    expected = 'with query="previous" the query is the output of the cell at the step before, '
    expected += f"which the cell {name} must keep as its first state"
    remedy = 'Or give the cell a method `query(states)` that returns it, or use query="current".'
    refuse(layer, expected, Words("another first state"), remedy)


def first_state(decoder: Any, memory: Memory, initial_state: Any) -> DecoderState:
    """The state before the first step; see `AttentionRNN.get_initial_state`."""
    attention, value = decoder.attention, leaves(memory.value)[0]
    batch = ops.shape(value)[0]
    state = attention._first_state(memory) if attention.has_state else None
    cells, fed = decoder._state_shapes
    groups = {"cell state": cells, "fed vector": fed}
    if state is not None:
        groups["attention state"] = tuple(tuple(x.shape[1:]) for x in leaves(state))
    parts = initial_state if isinstance(initial_state, (list, tuple)) else ()
    for part in (initial_state, *parts):
        if isinstance(part, dict):
            expected = "`initial_state` must be a tensor or a list of tensors, in the order of the "
            names = Words(f"a dictionary of {', '.join(map(repr, part))}")
            refuse(decoder.name, f"{expected}cell, such as [h, c]", names)
    states = [] if initial_state is None else leaves(initial_state)
    position = ops.zeros((batch,), "int32")
    last = states[-1] if states and attention.uses_position else None
    # Without the position, the last tensor may be an integer state of the attention.
    complete = len(states) in (len(cells), sum(map(len, groups.values())))
    integers = hasattr(last, "dtype") and "int" in dtype_of(last) and len(last.shape) == 1
    if integers and not complete:
        *states, position = states
    check_states(decoder.name, "initial_state", states, groups, value.shape[0])
    shapes = [*cells, *fed]
    if states[len(shapes) :]:
        state = attention._given_state(memory, states[len(shapes) :])
    # An encoder may compute in another dtype.
    states = [as_dtype(x, decoder.compute_dtype) for x in states[: len(shapes)]]
    for shape in shapes[len(states) :]:
        states.append(ops.zeros((batch, *shape), decoder.compute_dtype))
    vector = states[len(cells)] if fed else None
    cells = tree.pack_sequence_as(decoder._state_sizes, states[: len(cells)])
    return DecoderState(cells, vector, state, position)


def check_prepared(decoder: Any, memory: Any) -> None:
    decoder._check_built("decoding")
    if not isinstance(memory, Memory):
        expected = "`memory` must be what prepare(memory, memory_mask) returns, made once before "
        refuse(decoder.name, f"{expected}the first step", memory)


def check_step(decoder: Any, inputs: Any, state: Any, memory: Any) -> None:
    """The arguments of one step of a decoder; `_given_state` checks that of the attention."""
    check_prepared(decoder, memory)
    tensors = {"memory": memory.value, "inputs": inputs}
    sizes = decoder.STEP.check(decoder.name, tensors, decoder._sizes)
    if not isinstance(state, DecoderState):
        expected = "`state` must be the DecoderState that get_initial_state(memory) or the previous"
        remedy = "Start from states of an encoder: get_initial_state(memory, initial_state)."
        refuse(decoder.name, f"{expected} step returned", state, remedy)
    if decoder.attention.has_state and state.attention is None:
        expected = "`state` must hold the state of the attention, as get_initial_state(memory) or "
        refuse(decoder.name, f"{expected}the previous step returned it", None)
    cells, fed = decoder._state_shapes
    groups = {"cell state": cells, "fed vector": fed}
    states = tree.flatten(state.cells if state.fed is None else (state.cells, state.fed))
    check_states(decoder.name, "state", states, groups, sizes.get("B"))


def state_shapes(decoder: Any) -> tuple[tuple, tuple]:
    """The shapes of the cell states, and of the fed vector if there is one, without the batch."""
    cells = tuple((size,) for size in tree.flatten(decoder._state_sizes))
    return cells, ((decoder._attention_size,),) * decoder.input_feeding


def check_states(layer: str, name: str, states: list, groups: dict, batch: Any) -> None:
    """A flat list of states.

    Args:
        name: the argument that holds the states.
        groups: the shapes of the states of each kind, in tuples, without the batch. An initial
            state may hold nothing, only the first kind, or all.
        batch: the batch size of the memory.
    """
    vectors = len(groups["cell state"]) + len(groups["fed vector"])
    vectors = vectors if "attention state" in groups else len(states)
    initial = name == "initial_state"
    for n, state in enumerate(states):
        if not hasattr(state, "shape") or not hasattr(state, "dtype") or not is_dense(state):
            refuse(layer, f"`{name}` must hold tensors", state, "Leave it out to start from zeros.")
        kind = kind_of(state.dtype)
        if n < vectors and (kind == "bool" or (initial and kind != "float")):
            expected = f"`{name}` must hold vectors of floating-point numbers, as of an encoder"
            remedy = 'Cast other numbers: keras.ops.cast(state, "float32").'
            if kind == "bool":
                remedy = "Pass a mask by its name: `sequences_mask` or `memory_mask`."
            refuse(layer, expected, Words(f"dtype {dtype_of(state)}"), remedy)
    shapes = sum(groups.values(), ())
    right = len(states) == len(shapes)
    right = right or (initial and len(states) in (0, len(groups["cell state"])))
    for state, size in zip(states, shapes, strict=False):
        right = right and fits(tuple(state.shape), (batch, *size))
    if right:
        return
    wanted = ", ".join(
        f"{len(group)} {kind}{'s' * (len(group) > 1)} [{', '.join(map(_with_batch, group))}]"
        for kind, group in groups.items()
        if group
    )
    received = [tuple(x.shape) for x in states]
    remedy = _remedy(received, shapes) if initial else ""
    if any(not fits(shape[:1], (batch,)) for shape in received):
        remedy = f"The batch size must be {batch}, as in the memory."
    refuse(layer, f"`{name}` must hold {wanted}", Words(f"{len(received)}, {received}"), remedy)


def _remedy(received, shapes):
    """How to fix an initial state of these shapes."""
    pairs = zip(shapes, received, strict=False)
    sizes = [size for (size, *_), shape in pairs if shape[1:] != (size,)]
    if sizes and len(received) <= len(shapes) and all(len(shape) == 2 for shape in received):
        return f"Project a state of another size: keras.layers.Dense({sizes[0]})(state)."
    return (
        "A list of the cell states alone suffices; a GRU has one, an LSTM has two. Leave "
        "`initial_state` out to start from zeros."
    )


def _with_batch(shape):
    return f"(batch, {', '.join(map(str, shape))})"
