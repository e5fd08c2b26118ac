"""Sizes, states and dropout of an RNN cell, or of stacked cells."""

import keras
from keras import ops, tree

from keras_attention.ops._xla import in_graph


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


def last_cell(cell):
    """The cell itself, or the last of stacked cells."""
    stacked = isinstance(cell, keras.layers.StackedRNNCells)
    return last_cell(cell.cells[-1]) if stacked else cell


def query_of(cell, states):
    """The query that belongs to the states of a cell.

    It is `cell.query(states)` if the cell has such a method, otherwise its first state. The last of
    stacked cells makes the query.
    """
    if isinstance(cell, keras.layers.StackedRNNCells):
        return query_of(cell.cells[-1], states[-1])
    states = states if tree.is_nested(states) else [states]
    return cell.query(states) if has_query(cell) else states[0]


def has_query(cell):
    return callable(getattr(last_cell(cell), "query", None))


def query_size(cell, query):
    """The features of the query: the output of the cell, or what `query_of` returns."""
    if query == "current":
        return output_size(cell)
    states = tree.map_structure(lambda size: keras.KerasTensor((None, size)), state_sizes(cell))
    return query_of(cell, states).shape[-1]


def output_size(cell):
    return getattr(cell, "output_size", None) or tree.flatten(state_sizes(last_cell(cell)))[0]


class BoundCell:
    """Wraps a step function as a cell for `keras.layers.RNN`. Its closure holds the memory.

    The cell lives as long as the call, so there is nothing to clear.
    """

    def __init__(self, step, state_size, compute_dtype):
        self.call = step
        self.state_size = state_size
        self.compute_dtype = compute_dtype

    def __call__(self, inputs, states):
        return self.call(inputs, states)


class DropoutMasks:
    """Draws the dropout masks of cells outside the loop, and resets them afterwards.

    `keras.layers.RNN` does this for its own cell, but not for the cell inside a `BoundCell`.
    """

    def __init__(self, cell, batch_size, input_size):
        stacked = isinstance(cell, keras.layers.StackedRNNCells)
        self.cells = cell.cells if stacked else [cell]
        self.batch_size, self.input_size = batch_size, input_size

    def __enter__(self):
        width = self.input_size
        for cell in self.cells:
            if hasattr(cell, "get_dropout_mask"):
                cell.get_dropout_mask(self._like(cell, width))
                state_size = tree.flatten(state_sizes(cell))[0]
                cell.get_recurrent_dropout_mask(self._like(cell, state_size))
            width = output_size(cell)

    def __exit__(self, *_):
        for cell in self.cells:
            if hasattr(cell, "reset_dropout_mask"):
                cell.reset_dropout_mask()
                cell.reset_recurrent_dropout_mask()

    def _like(self, cell, width):
        return ops.ones((self.batch_size, width), dtype=cell.compute_dtype)


def run_at_least_once(run, sequences, memory, states, mask):
    """Calls `run`, a recurrent loop, even without a sample or without a step.

    It passes zeros in place of a missing sample or step, and cuts the results, so gradients exist.

    Args:
        run: takes the other arguments and returns (outputs, weights or None, states).
    """
    steps = sequences.shape[1]
    given = sequences, memory, states, mask
    if any(x is not None and x.shape[0] == 0 for x in tree.flatten(given)):
        one = tree.map_structure(
            lambda x: None if x is None else ops.zeros((1, *ops.shape(x)[1:]), x.dtype), given
        )
        results = run_at_least_once(run, *one)
        return tree.map_structure(lambda x: None if x is None else x[:0], results)
    if steps is not None and steps > 0:
        return run(sequences, memory, states, mask)
    count = ops.shape(sequences)[1]
    more = 1 if steps == 0 else ops.maximum(1 - count, 0)
    missing = [ops.shape(sequences)[0], more, sequences.shape[-1]]
    padded = ops.concatenate([sequences, ops.zeros(missing, sequences.dtype)], axis=1)
    if mask is not None:
        mask = ops.concatenate([mask, ops.zeros(missing[:2], "bool")], axis=1)
    outputs, weights, last = run(padded, memory, states, mask)
    last = tree.map_structure(lambda old, new: ops.where(count > 0, new, old), states, last)
    return outputs[:, :count], None if weights is None else weights[:, :count], last


def with_constant_weights(layer, run):
    """Calls `run`, a recurrent loop, with the weights of the layer read once, before the loop.

    A TensorFlow graph that reads a weight inside a loop stores it for the gradient at every step,
    and a compiled graph copies it. Mixed precision casts weights inside the loop, so there they
    are not read before it.
    """
    weights = layer.weights
    floating = [weight.dtype for weight in weights if "float" in weight.dtype]
    mixed = any(dtype != layer.compute_dtype for dtype in floating)
    if mixed or not in_graph():
        return run()
    import tensorflow as tf

    read = [(weight, tf.convert_to_tensor(weight.value)) for weight in weights]
    with keras.StatelessScope(state_mapping=read, collect_losses=True) as scope:
        before = dict(scope.state_mapping)
        results = run()
        # The scope discards losses, and assignments such as the state of a random generator.
        lost = any(before.get(name) is not x for name, x in scope.state_mapping.items())
        lost = lost or bool(scope.losses)
    return run() if lost else results
