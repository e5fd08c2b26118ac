"""The cells that the decoder knows: GRU, LSTM and stacks of them, as products and gates.

A known cell multiplies its inputs of all steps before the loop, and its gradient comes from
`ops._recurrence`. The decoder calls every other cell as it is.
"""

from typing import Any

import keras
from keras import ops

from keras_attention._typing import Nested, Tensor
from keras_attention.layers.decoder._gates import KINDS
from keras_attention.layers.decoder.residual_cells import ResidualRNNCells
from keras_attention.ops._parts import Part
from keras_attention.ops._recurrence import Call


def is_known(cell: Any, training: bool | None) -> bool:
    """Whether the decoder knows a cell, or all cells of a stack."""
    # A subclass may compute anything.
    return all(type(one) in KINDS and _is_plain(one, training) for one in _cells_of(cell))


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
        parts: the parts of a step, in the order in which it calls them.
    """

    def __init__(self, cell: Any, inputs: Tensor, fed: int, training: bool | None) -> None:
        self.stacked = _cells_of(cell)[0] is not cell
        self.residual = type(cell) is ResidualRNNCells
        batch, size = ops.shape(inputs)[1], inputs.shape[-1]
        self.cells = []
        for one in _cells_of(cell):
            width = size + fed if not self.cells else self.cells[-1].cell.units
            keep = _dropout_of_inputs(one, (batch, width), training)
            self.cells.append(KINDS[type(one)](one, None if self.cells else inputs, keep))
        self.parts: list[Part] = [part for cell in self.cells for part in cell.parts]

    def __call__(self, call: Call, fed: Tensor | None, states: Nested) -> tuple[Tensor, Nested]:
        """One step: the output of the last cell, and the new states."""
        states = states if self.stacked else [states]
        below, new = fed, []
        for cell, state in zip(self.cells, states, strict=True):
            if below is not None and cell.keep is not None:
                below = below * cell.keep
            hidden, state = cell.step(call, [] if below is None else [below], state)
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
