"""What a decoder must know of a Keras RNN cell, or of several stacked ones."""

import keras
from keras import ops, tree

from keras_attention.ops.compiled import makes_graph


def state_sizes(cell):
    """The sizes of the states: a list, nested for stacked cells of several states each."""
    sizes = cell.state_size
    return _plain(sizes) if tree.is_nested(sizes) else [sizes]


def as_states(cell, states):
    """States, nested or flat, in plain lists: what a layer holds are lists of Keras's own."""
    flat = tree.flatten(states)
    return tree.pack_sequence_as(state_sizes(cell), flat)


def _plain(sizes):
    return [_plain(size) for size in sizes] if tree.is_nested(sizes) else sizes


def top(cell, states):
    """The first state, or its size, of the last of stacked cells: in Keras's cells, its output."""
    state = states[-1 if isinstance(cell, keras.layers.StackedRNNCells) else 0]
    return state[0] if tree.is_nested(state) else state


def output_size(cell):
    return getattr(cell, "output_size", None) or top(cell, state_sizes(cell))


class BoundCell:
    """What `keras.layers.RNN` needs of a cell, for a step function with its memory in a closure.

    Nothing outlives the call, so nothing must be cleared after it.
    """

    def __init__(self, step, state_size, compute_dtype):
        self.call = step
        self.state_size = state_size
        self.compute_dtype = compute_dtype

    def __call__(self, inputs, states):
        return self.call(inputs, states)


class DropoutMasks:
    """Within this context a cell's own dropout masks exist, drawn outside the loop.

    `keras.layers.RNN` does this for cells that it sees; those in a `BoundCell` it does not see.
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
                cell.get_recurrent_dropout_mask(self._like(cell, top(cell, state_sizes(cell))))
            width = output_size(cell)

    def __exit__(self, *_):
        for cell in self.cells:
            if hasattr(cell, "reset_dropout_mask"):
                cell.reset_dropout_mask()
                cell.reset_recurrent_dropout_mask()

    def _like(self, cell, width):
        return ops.ones((self.batch_size, width), dtype=cell.compute_dtype)


def with_constant_weights(layer, run):
    """Calls `run`, a recurrent loop, with the weights of the layer read once, outside of the loop.

    A graph of TensorFlow that reads a weight inside of a loop keeps it for the gradient at every
    step, and a compiled one copies it there: the kernels of a cell once for each step. Not done in
    mixed precision, whose casts are inside, nor for cells with dropout outside of `BoundCell`.
    """
    weights = layer.weights
    mixed = any(weight.dtype != layer.compute_dtype for weight in weights)
    if mixed or not makes_graph():
        return run()
    import tensorflow as tf

    read = [(weight, tf.convert_to_tensor(weight.value)) for weight in weights]
    with keras.StatelessScope(state_mapping=read, collect_losses=True) as scope:
        before = dict(scope.state_mapping)
        results = run()
        # What a cell assigns, to the state of its random numbers for example, would be lost, and
        # so would losses that it adds.
        lost = any(before.get(name) is not x for name, x in scope.state_mapping.items())
        lost = lost or bool(scope.losses)
    return run() if lost else results
