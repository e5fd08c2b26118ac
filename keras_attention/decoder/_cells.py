"""The cells of a decoder: their sizes, states, queries and dropout."""

import contextlib

import keras
from keras import tree

from keras_attention._spec import Description, instance_hint, is_cell, raise_value_error
from keras_attention._typing import Nested, Tensor
from keras_attention.attention.checked_layer import updates_weights
from keras_attention.attention.scoring import ScoringMixin
from keras_attention.backend import execution_context, ops, value_of
from keras_attention.ops.random import generator_states


def state_sizes(cell):
    """Return the sizes of the states: a list, nested for stacked cells of several states."""
    sizes = cell.state_size
    return _plain(sizes) if tree.is_nested(sizes) else [sizes]


def as_states(cell, states):
    """Pack the states, nested or flat, into plain lists."""
    flat = tree.flatten(states)
    return tree.pack_sequence_as(state_sizes(cell), flat)


def _plain(sizes):
    return [_plain(size) for size in sizes] if tree.is_nested(sizes) else sizes


def cells_of(cell):
    """Return the cells of a stack, the lowest first; or the cell itself, in a list."""
    return cell.cells if isinstance(cell, keras.layers.StackedRNNCells) else [cell]


def last_cell(cell):
    """Return the cell itself, or the last of stacked cells."""
    last = cells_of(cell)[-1]
    return last if last is cell else last_cell(last)


def query_of(cell, states):
    """Return the query that belongs to the states of a cell.

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
    """Return True if a cell, or the last of a stack, has a `query`."""
    return any(callable(getattr(x, "query", None)) for x in (cell, last_cell(cell)))


def query_size(cell, query):
    """Return the features of the query: the output of the cell, or what `query_of` returns."""
    if query == "current":
        return output_size(cell)
    states = tree.map_structure(lambda size: keras.KerasTensor((None, size)), state_sizes(cell))
    tensor: Tensor = query_of(cell, states)
    return tensor.shape[-1]


def output_size(cell):
    """Return the features of a cell's output; of its first state, if the cell does not say."""
    return getattr(cell, "output_size", None) or tree.flatten(state_sizes(last_cell(cell)))[0]


@contextlib.contextmanager
def dropout_masks(cell, batch_size, width):
    """Sample dropout masks of cells before the loop, and reset them afterwards."""
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


def with_constant_weights(layer, run):
    """Call `run`, a recurrent loop, with the weights of the layer read once, before the loop.

    A TensorFlow graph that reads a weight inside a loop stores it for the gradient at every step,
    and a compiled graph copies it. They are not read before it under mixed precision, which casts
    weights inside the loop, when unrolling, and where steps may assign weights.
    """
    floating = [weight.dtype for weight in layer.weights if "float" in weight.dtype]
    mixed = any(dtype != layer.compute_dtype for dtype in floating)
    changing = layer.unroll or getattr(layer.cell, "non_trainable_weights", None)
    changing = changing or updates_weights(getattr(layer, "attention", layer))
    if mixed or changing or not execution_context().graph:
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


def check_cells(layer: str, name: str, argument: object, wanted: str) -> list:
    """List the cells of an argument. None may occur twice: both would share its weights."""
    cells = list(argument) if isinstance(argument, (list, tuple)) else [argument]
    wrong = [one for one in cells if isinstance(one, type) or not is_cell(one)]
    if wrong or not cells:
        remedy = _cell_of(wrong[0]) if wrong else ""
        raise_value_error(layer, f"`{name}` must be {wanted}", argument, remedy)
    if len({id(one) for one in cells}) < len(cells):
        remedy = f"Make each: [keras.layers.GRUCell(256) for _ in range({len(cells)})]."
        expected = f"`{name}` must not hold one cell more than once"
        raise_value_error(layer, expected, argument, remedy)
    return cells


def _cell_of(part):
    """Return how to fix an argument that is no cell."""
    if isinstance(part, ScoringMixin):
        return "Call AttentionRNN(cell, attention), the cell first."
    if hasattr(part, "state_size") and not isinstance(part, type):
        cell = f"{type(part).__name__}Cell(units)"
        return f"It runs over whole sequences; pass a cell, such as keras.layers.{cell}."
    return instance_hint(part)


def check_output(
    layer: str, cell: keras.layers.Layer, hidden: Tensor, states: Nested = None
) -> None:
    """Check the output of the cell. With `states`, the new ones, it must be the next query."""
    size = output_size(cell)
    wrong_size = hidden.shape[-1] != size
    if not wrong_size and (states is None or query_of(cell, states) is hidden or has_query(cell)):
        return
    name = getattr(last_cell(cell), "name", type(cell).__name__)
    if wrong_size:
        expected = f"the cell {name} must return {size} features, its `output_size` or first state"
        received = Description(f"an output of {hidden.shape[-1]} features")
        remedy = f"Give the cell the attribute `output_size = {hidden.shape[-1]}`."
        raise_value_error(layer, expected, received, remedy)
    expected = 'with query="previous" the query is the output of the cell at the step before, '
    expected += f"which the cell {name} must keep as its first state"
    remedy = 'Or give the cell a method `query(states)` that returns it, or use query="current".'
    raise_value_error(layer, expected, Description("another first state"), remedy)
