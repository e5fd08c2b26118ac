"""What a decoder runs at every step, as sites of a recurrence: its cells and its attention.

GRU and LSTM cells, and stacks of them, become products and gates; they multiply their inputs of all
steps before the loop. The decoder calls every other cell as it is.
"""

import functools
from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from keras_attention._place import value_of
from keras_attention._typing import Nested, Tensor
from keras_attention.layers.base import as_in_a_call, float_weights, with_weights
from keras_attention.layers.decoder._cells import cells_of
from keras_attention.layers.decoder.residual_cells import ResidualRNNCells
from keras_attention.layers.types import Attended, Memory
from keras_attention.ops.gradients import vector_jacobian
from keras_attention.ops.loops import leaves, map_leaves, pack_like, swap_steps
from keras_attention.ops.products import multiply
from keras_attention.recurrence import Site, automatic, product


def has_sites(cell: Any, training: bool | None) -> bool:
    """Whether the loop can run this cell, or every cell of this stack, as sites."""
    if isinstance(cell, keras.layers.StackedRNNCells) and type(cell).call not in STACKS:
        return False
    if not all(type(x).call in KINDS and _is_plain(x, training) for x in cells_of(cell)):
        return False
    return not any(map(_has_more_weights, [cell, *cells_of(cell)]))


def _has_more_weights(cell):
    """Whether a cell, by its `query` or an activation, has weights that no site knows."""
    if any([isinstance(x, keras.layers.Layer) for x in vars(cell).values()]):
        return True  # it may get its weights later
    of_sites = [x for one in cells_of(cell) for x in (one.kernel, one.recurrent_kernel, one.bias)]
    return not {*map(id, cell.weights)} <= {*map(id, of_sites)}


def _is_plain(cell, training):
    # With `implementation=1`, which dropout of the state needs, every gate has its own dropout.
    dropout = training and (cell.dropout > 0 or cell.recurrent_dropout > 0)
    return cell.implementation == 2 or not dropout


class CellSites:
    """One or several cells, the lowest first.

    Args:
        cell: the Keras cell, or stacked cells.
        inputs: the inputs of all steps, `(T, B, D)`.
        fed: the features that a step adds to its inputs: the context or the fed vector.
        training: whether dropout is active.

    Attributes:
        sites: the sites of a step, by name.
    """

    def __init__(self, cell: Any, inputs: Tensor, fed: int, training: bool | None) -> None:
        cells = cells_of(cell)
        self.stacked = cells[0] is not cell
        self.residual = type(cell).call is ResidualRNNCells.call
        batch, size = ops.shape(inputs)[1], inputs.shape[-1]
        self.cells, self.sites = [], {}
        for n, one in enumerate(cells):
            width = self.cells[-1].cell.units if n else size + fed
            keep = _dropout_of_inputs(one, (batch, width), training)
            kind = KINDS[type(one).call]
            self.cells.append(kind(f"cell {n}", one, None if n else inputs, keep))
            self.sites |= self.cells[-1].sites

    def __call__(self, call: Any, fed: Tensor | None, states: Nested) -> tuple[Tensor, Nested]:
        """One step: the output of the last cell, and the new states."""
        states = states if self.stacked else [states]
        below, new = fed, []
        for cell, state in zip(self.cells, states, strict=True):
            dropped = below if below is None or cell.keep is None else below * cell.keep
            hidden, state = cell.step(call, [] if dropped is None else [dropped], state)
            below = ops.add(below, hidden) if self.residual and new else hidden
            new.append(state)
        return below, new if self.stacked else new[0]


def _dropout_of_inputs(cell, shape, training):
    """The factors of the inputs of a cell, the same at every step, or None."""
    if not training or cell.dropout == 0:
        return None
    keep = cell.get_dropout_mask(ops.ones(shape, cell.compute_dtype))
    cell.reset_dropout_mask()
    return keep


class _Gated:
    """A cell whose gates follow from products.

    Args:
        name: what the names of its sites begin with.
        cell: the Keras cell.
        inputs: the inputs of all steps, `(T, B, D)`; None for an upper cell.
        keep: the dropout of the inputs, `(B, features)`, or None.
    """

    def __init__(self, name, cell, inputs, keep):
        self.name, self.cell, self.inputs = name, cell, inputs
        weights = leaves([cell.kernel, cell.recurrent_kernel, cell.bias])
        kernel, self.recurrent, *self.biases = [self.rounded(value_of(x)) for x in weights]
        size = 0 if inputs is None else inputs.shape[-1]
        self.of_inputs, self.lower = kernel[:size], kernel[size:]
        self.keep = None if keep is None else keep[:, size:]
        if keep is not None and inputs is not None:
            self.inputs = inputs * keep[:, :size]
        self.sites = self.make_sites()

    def product(self, columns, biases, of_state=True):
        """The site of some columns: the products of the inputs, and of the state or without it."""
        kernels = [self.lower] * (self.lower.shape[0] > 0) + [self.recurrent] * of_state
        biases, added = [x[columns] for x in biases], []
        if self.inputs is not None:
            terms = multiply(self.inputs, self.of_inputs[:, columns]), *biases
            biases, added = [], [functools.reduce(ops.add, terms)]
        return product([x[:, columns] for x in kernels], biases, added)

    def widened(self, x):
        """Gates run in at least float32. Products, their sums and states keep the compute dtype."""
        return ops.cast(x, "float64" if self.cell.compute_dtype == "float64" else "float32")

    def rounded(self, x):
        return ops.cast(x, self.cell.compute_dtype)


class _GRU(_Gated):
    """z, r = s(x + h W), n = tanh(x_n + r (h W)_n) or tanh(x_n + (r h) W_n), h' = n + z (h - n)."""

    def make_sites(self):
        biases, gates = self.biases, slice(0, 2 * self.cell.units)
        if self.cell.reset_after:
            biases = [x[n] for x in biases for n in range(2)]  # of the inputs and of the state
        new = slice(gates.stop, None)
        return {
            f"{self.name} gates": self.product(gates, biases),
            f"{self.name} new": self.product(new, biases[:1], of_state=False),
            f"{self.name} state": product([self.recurrent[:, new]], [x[new] for x in biases[1:]]),
        }

    def step(self, call, below, state):
        hidden = state[0] if isinstance(state, (list, tuple)) else state
        (gates,) = call(f"{self.name} gates", *below, hidden)
        (new,) = call(f"{self.name} new", *below)
        gate, activation = self.cell.recurrent_activation, self.cell.activation
        update, reset = map(gate, ops.split(self.widened(gates), 2, axis=-1))
        if self.cell.reset_after:
            (more,) = call(f"{self.name} state", hidden)
            more = reset * self.widened(more)
        else:
            (more,) = call(f"{self.name} state", self.rounded(reset * self.widened(hidden)))
        new = activation(ops.add(self.widened(new), self.widened(more)))
        hidden = self.rounded(new + update * (self.widened(hidden) - new))
        return hidden, [hidden] if isinstance(state, (list, tuple)) else hidden


class _LSTM(_Gated):
    """i, f, g, o = x + h W, c' = s(f) c + s(i) tanh(g), h' = s(o) tanh(c')."""

    def make_sites(self):
        return {self.name: self.product(slice(None), self.biases)}

    def step(self, call, below, state):
        hidden, memory = state
        (total,) = call(self.name, *below, hidden)
        write, forget, new, read = ops.split(self.widened(total), 4, axis=-1)
        gate, activation = self.cell.recurrent_activation, self.cell.activation
        memory = gate(forget) * self.widened(memory) + gate(write) * activation(new)
        hidden = self.rounded(gate(read) * activation(memory))
        return hidden, [hidden, self.rounded(memory)]


# By the call of a class, because a subclass with a call of its own may do anything.
STACKS = {keras.layers.StackedRNNCells.call, ResidualRNNCells.call}
KINDS = {keras.layers.GRUCell.call: _GRU, keras.layers.LSTMCell.call: _LSTM}


def attention_sites(
    decoder: Any, memory: Memory, return_scores: bool, training: bool | None
) -> tuple[dict[str, Site], Callable[..., Attended]]:
    """The sites of the attention: "attention", and "combine" if the attention has such a site.

    The weights of "attention" are the keys and values of the memory, and the weights of the layer.

    Returns:
        The sites, and a function that attends with them in one step:
        `read(call, query, state, drawn, position)`.
    """
    attention, count = decoder.attention, len(leaves(memory[:2]))
    combining = attention._combine_site()

    def run(weights, stored, query, state, drawn, position):
        key, value = pack_like(memory[:2], list(weights[:count]))

        def attend():
            with with_weights(attention, weights[count:]):
                return attention._attend(
                    query,
                    memory._replace(key=key, value=value),
                    state,
                    position=position,
                    return_attention_scores=return_scores,
                    training=training,
                    drawn=drawn,
                    drop=False,
                    combine=combining is None,
                    stored=stored,
                )

        return as_in_a_call(attention, attend)

    def of_weights(weights, stored, upstream, *arguments):
        # The query of one step has an axis of its own; the queries of all steps are a sequence.
        stored = map_leaves(lambda x: ops.squeeze(swap_steps(x), 2), stored)
        arguments, upstream = map_leaves(swap_steps, (arguments, upstream))

        def function(weights):
            return run(weights, stored, *arguments)[0], None

        return vector_jacobian(function, (weights,), upstream)[0][0]

    def weights():
        return [*leaves(memory[:2]), *map(value_of, float_weights(attention))]

    def read(call, query, state, drawn, position):
        position = position if attention.uses_position else None
        attended = call("attention", query, state, drawn, position)
        if combining is None:
            return attended
        return attended._replace(output=combining[1](call, query, attended.output))

    if attention.has_state:
        # The loop adds up their gradients, in the dtype of the variables.
        sites = {"attention": automatic(weights(), run)}
    else:
        # Cast here, the weights are not cast at every step.
        sites = {"attention": automatic(as_in_a_call(attention, weights), run, of_weights)}
    return sites if combining is None else {**sites, "combine": combining[0]}, read
