"""The cells that the decoder knows: GRU, LSTM and stacks of them, as products and gates.

A known cell multiplies its inputs of all steps before the loop, and its gradient comes from
`ops._recurrence`. The decoder calls every other cell as it is.
"""

from typing import Any

import keras
from keras import ops

from keras_attention._typing import Nested, Tensor
from keras_attention.layers.decoder.residual_cells import ResidualRNNCells
from keras_attention.ops._graphs import value_of
from keras_attention.ops._parts import Part, products
from keras_attention.ops._recurrence import Call
from keras_attention.ops.products import project


def is_known(cell: Any, training: bool | None) -> bool:
    """Whether the decoder knows a cell, or all cells of a stack."""
    # A subclass may compute anything.
    return all(type(one) in _KINDS and _is_plain(one, training) for one in _cells_of(cell))


def _cells_of(cell):
    stacks = keras.layers.StackedRNNCells, ResidualRNNCells
    return cell.cells if type(cell) in stacks else [cell]


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
        self.residual = type(cell) is ResidualRNNCells
        batch, size = ops.shape(inputs)[1], inputs.shape[-1]
        self.cells = []
        for one in _cells_of(cell):
            width = size + fed if not self.cells else self.cells[-1].cell.units
            keep = _dropout_of_inputs(one, (batch, width), training)
            self.cells.append(_KINDS[type(one)](one, None if self.cells else size, keep))
        self.projected = self.cells[0].project(inputs)
        self.parts: list[Part] = [part for cell in self.cells for part in cell.products]

    def __call__(
        self, call: Call, projected: Tensor, fed: Tensor | None, states: Nested
    ) -> tuple[Tensor, Nested]:
        """One step: the output of the last cell, and the new states."""
        states = states if self.stacked else [states]
        below, total, new = fed, projected, []
        for cell, state in zip(self.cells, states, strict=True):
            if below is not None and cell.keep is not None:
                below = below * cell.keep
            hidden, state = cell.step(call, total, below, state)
            below = ops.add(below, hidden) if self.residual and new else hidden
            new.append(state)
            total = None
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
        cell: the Keras cell.
        size: the features of the inputs that are known before the loop; None for an upper cell.
        keep: the dropout of the inputs, `(B, features)`, or None.
    """

    def __init__(self, cell, size, keep):
        self.cell, self.first = cell, size is not None
        weights = cell.kernel, cell.recurrent_kernel, cell.bias
        self.kernel, self.recurrent, self.bias = (
            None if x is None else ops.cast(value_of(x), cell.compute_dtype) for x in weights
        )
        size = size or 0
        self.known, self.keep = (None, None) if keep is None else (keep[:, :size], keep[:, size:])
        self.known_kernel, lower = self.kernel[:size], self.kernel[size:]
        self.has_lower = lower.shape[0] > 0
        self.products = self.make_products([lower] if self.has_lower else [])

    def bias_in_step(self):
        """The bias of the inputs, unless `project` adds it."""
        return None if self.first else self.input_bias()

    def widened(self, x):
        """Gates run in at least float32: only products and states are of half precision."""
        return ops.cast(x, "float64" if self.cell.compute_dtype == "float64" else "float32")

    def rounded(self, x):
        return ops.cast(x, self.cell.compute_dtype)

    def project(self, inputs):
        inputs = inputs if self.known is None else inputs * self.known
        projected, bias = project(inputs, self.known_kernel), self.input_bias()
        return projected if bias is None else ops.add(projected, bias)


class _GRU(_Gated):
    """z, r = s(x + h W), n = tanh(x_n + r (h W)_n) or tanh(x_n + (r h) W_n), h' = n + z (h - n)."""

    def input_bias(self):
        return self.bias[0] if self.bias is not None and self.cell.reset_after else self.bias

    def make_products(self, lower):
        found = [products(lower, self.bias_in_step())] if lower else []
        if self.cell.reset_after:
            bias = None if self.bias is None else self.bias[1]
            return [*found, products([self.recurrent], bias)]
        gates = 2 * self.cell.units
        kernels = self.recurrent[:, :gates], self.recurrent[:, gates:]
        return found + [products([kernel]) for kernel in kernels]

    def step(self, call, total, below, state):
        hidden = state[0] if isinstance(state, (list, tuple)) else state
        parts = iter(self.products)
        if self.has_lower:
            (more,) = call(next(parts), below)
            total = more if total is None else ops.add(total, more)
        (inner,) = call(next(parts), hidden)
        update, reset, new = ops.split(self.widened(total), 3, axis=-1)
        inner = ops.split(self.widened(inner), 3 if self.cell.reset_after else 2, axis=-1)
        update = self.cell.recurrent_activation(ops.add(update, inner[0]))
        reset = self.cell.recurrent_activation(ops.add(reset, inner[1]))
        if self.cell.reset_after:
            more = reset * inner[2]
        else:
            (more,) = call(next(parts), self.rounded(reset * self.widened(hidden)))
        new = self.cell.activation(ops.add(new, more))
        hidden = self.rounded(new + update * (self.widened(hidden) - new))
        return hidden, [hidden] if isinstance(state, (list, tuple)) else hidden


class _LSTM(_Gated):
    """i, f, g, o = x + h W, c' = s(f) c + s(i) tanh(g), h' = s(o) tanh(c')."""

    def input_bias(self):
        return self.bias

    def make_products(self, lower):
        return [products([*lower, self.recurrent], self.bias_in_step())]

    def step(self, call, total, below, state):
        hidden, memory = state
        (inner,) = call(self.products[0], *([below] if self.has_lower else []), hidden)
        inner, memory = self.widened(inner), self.widened(memory)
        total = inner if total is None else ops.add(self.widened(total), inner)
        write, forget, new, read = ops.split(total, 4, axis=-1)
        gate, activation = self.cell.recurrent_activation, self.cell.activation
        memory = gate(forget) * memory + gate(write) * activation(new)
        hidden = self.rounded(gate(read) * activation(memory))
        return hidden, [hidden, self.rounded(memory)]


_KINDS = {keras.layers.GRUCell: _GRU, keras.layers.LSTMCell: _LSTM}
