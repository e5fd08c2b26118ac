"""The cells that the decoder knows: GRU, LSTM and stacks of them, as products and gates.

A known cell multiplies its inputs of all steps before the loop, and its gradient comes from
`ops._recurrence`. The decoder calls every other cell as it is.
"""

from typing import Any

import keras
from keras import ops

from keras_attention._typing import Nested, Tensor
from keras_attention.ops._graphs import value_of
from keras_attention.ops._recurrence import Call, Part, product
from keras_attention.ops.products import project


def is_known(cell: Any, training: bool | None) -> bool:
    """Whether the decoder knows a cell, or all cells of a stack."""
    # A subclass may compute anything.
    return all(type(one) in _KINDS and _is_plain(one, training) for one in _cells_of(cell))


def _cells_of(cell):
    return cell.cells if type(cell) is keras.layers.StackedRNNCells else [cell]


def _is_plain(cell, training):
    # With `implementation=1`, which dropout of the state needs, every gate has its own dropout.
    dropout = training and (cell.dropout > 0 or cell.recurrent_dropout > 0)
    return cell.implementation == 2 or not dropout


class KnownCells:
    """One or several known cells, the lowest first.

    Args:
        cell: the Keras cell, or stacked cells.
        inputs: the inputs of all steps, `(T, B, D)`.
        fed: the features that a step adds to its inputs: the context or the fed vector.
        training: whether dropout is active.

    Attributes:
        projected: the products of the inputs, `(T, B, G)`.
        parts: the products of a step, in the order in which it computes them.
    """

    def __init__(self, cell: Any, inputs: Tensor, fed: int, training: bool | None) -> None:
        self.stacked = _cells_of(cell)[0] is not cell
        batch, size = ops.shape(inputs)[1], inputs.shape[-1]
        self.cells = []
        for one in _cells_of(cell):
            width = size + fed if not self.cells else self.cells[-1].cell.units
            keep = _dropout_of_inputs(one, (batch, width), training)
            self.cells.append(_KINDS[type(one)](one, 0 if self.cells else size, keep))
        self.projected = self.cells[0].project(inputs)
        self.parts: list[Part] = []
        for n, cell in enumerate(self.cells):
            self.parts += [*([cell.lower] if n > 0 or fed else []), *cell.products]

    def __call__(
        self, call: Call, projected: Tensor, fed: Tensor | None, states: Nested
    ) -> tuple[Tensor, Nested]:
        """One step: the output of the last cell, and the new states."""
        states = states if self.stacked else [states]
        hidden, total, new = fed, projected, []
        for cell, state in zip(self.cells, states, strict=True):
            if hidden is not None:
                (more,) = call(cell.lower, hidden if cell.keep is None else hidden * cell.keep)
                total = more if total is None else ops.add(total, more)
            hidden, state = cell.step(call, total, state)
            new.append(state)
            total = None
        return hidden, new if self.stacked else new[0]


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
        cell: the Keras cell.
        size: the features of the inputs that are known before the loop, the first of all.
        keep: the dropout of the inputs, `(B, features)`, or None.
    """

    def __init__(self, cell, size, keep):
        self.cell, self.size = cell, size
        weights = cell.kernel, cell.recurrent_kernel, cell.bias
        self.kernel, self.recurrent, self.bias = (
            None if x is None else value_of(x) for x in weights
        )
        self.known, self.keep = (None, None) if keep is None else (keep[:, :size], keep[:, size:])
        self.lower = product(self.kernel[size:], None if size else self.input_bias())
        self.products = self.make_products()

    def project(self, inputs):
        inputs = inputs if self.known is None else inputs * self.known
        projected, bias = project(inputs, self.kernel[: self.size]), self.input_bias()
        return projected if bias is None else ops.add(projected, bias)


class _GRU(_Gated):
    """z, r = s(x + h W), n = tanh(x_n + r (h W)_n) or tanh(x_n + (r h) W_n), h' = n + z (h - n)."""

    def input_bias(self):
        return self.bias[0] if self.bias is not None and self.cell.reset_after else self.bias

    def make_products(self):
        if self.cell.reset_after:
            return [product(self.recurrent, None if self.bias is None else self.bias[1])]
        gates = 2 * self.cell.units
        return [product(self.recurrent[:, :gates]), product(self.recurrent[:, gates:])]

    def step(self, call, total, state):
        hidden = state[0] if isinstance(state, (list, tuple)) else state
        (inner,) = call(self.products[0], hidden)
        update, reset, new = ops.split(total, 3, axis=-1)
        inner = ops.split(inner, 3 if self.cell.reset_after else 2, axis=-1)
        update = self.cell.recurrent_activation(ops.add(update, inner[0]))
        reset = self.cell.recurrent_activation(ops.add(reset, inner[1]))
        if self.cell.reset_after:
            more = reset * inner[2]
        else:
            (more,) = call(self.products[1], reset * hidden)
        new = self.cell.activation(ops.add(new, more))
        hidden = new + update * (hidden - new)
        return hidden, [hidden] if isinstance(state, (list, tuple)) else hidden


class _LSTM(_Gated):
    """i, f, g, o = x + h W, c' = s(f) c + s(i) tanh(g), h' = s(o) tanh(c')."""

    def input_bias(self):
        return self.bias

    def make_products(self):
        return [product(self.recurrent)]

    def step(self, call, total, state):
        hidden, memory = state
        (inner,) = call(self.products[0], hidden)
        write, forget, new, read = ops.split(ops.add(total, inner), 4, axis=-1)
        gate, activation = self.cell.recurrent_activation, self.cell.activation
        memory = gate(forget) * memory + gate(write) * activation(new)
        hidden = gate(read) * activation(memory)
        return hidden, [hidden, memory]


_KINDS = {keras.layers.GRUCell: _GRU, keras.layers.LSTMCell: _LSTM}
