"""Stacked RNN cells with residual connections."""

from collections.abc import Iterable
from typing import Unpack

import keras
from keras import tree

from keras_attention._spec import Description, raise_value_error
from keras_attention._typing import LayerOptions, Nested, Tensor
from keras_attention.backend import ops
from keras_attention.decoder._cells import check_cells, output_size, query_of

__all__ = ["ResidualRNNCells"]


@keras.saving.register_keras_serializable(package="keras_attention")
class ResidualRNNCells(keras.layers.StackedRNNCells):
    """Stacks RNN cells, and adds the input of each cell but the first to its output.

        y_1 = h_1                  h_1 = cell_1(x)
        y_n = y_{n-1} + h_n        h_n = cell_n(y_{n-1})

    The output is y_N, the sum of all h_n. Residual connections let deep stacks train. Use it as a
    cell: in an `AttentionRNN`, or in `keras.layers.RNN`.

    Args:
        cells: at least two RNN cells with the same number of units. The first state of each must be
            its output, as in the cells of Keras.

    Call arguments:
        inputs: x, `(B, D)`. states: the states of all cells, a list.

    Returns:
        y_N, `(B, U)`, and the new states.

    Raises:
        ValueError: there are fewer than two cells, one occurs twice, or their outputs differ in
            size.

    Example:
        >>> import keras, numpy
        >>> from keras_attention import ResidualRNNCells
        >>> cells = ResidualRNNCells([keras.layers.GRUCell(7) for _ in range(3)])
        >>> keras.layers.RNN(cells, return_sequences=True)(numpy.ones((2, 5, 3))).shape
        TensorShape([2, 5, 7])

    Reference: https://arxiv.org/abs/1609.08144, section 3.1. There, residual connections start
    higher up; here at the second cell.
    """

    def __init__(self, cells: Iterable[keras.layers.Layer], **kwargs: Unpack[LayerOptions]) -> None:
        cells = check_cells(
            kwargs.get("name") or "ResidualRNNCells",
            "cells",
            list(cells) if isinstance(cells, Iterable) else cells,
            "a list of Keras RNN cells, such as [keras.layers.GRUCell(256) for _ in range(2)]",
        )
        super().__init__(cells, **kwargs)
        sizes = [*map(output_size, cells)]
        if len(sizes) < 2 or len(set(sizes)) > 1:
            expected = "`cells` must be at least two cells with the same number of units, because "
            received = Description(f"{len(sizes)} of {sizes} units")
            raise_value_error(self.name, f"{expected}their outputs are added", received)

    def call(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, inputs: Tensor, states: Nested, training: bool = False
    ) -> tuple[Tensor, list]:
        total, new = None, []
        for cell, state in zip(self.cells, states, strict=True):
            nested = tree.is_nested(state)
            hidden, state = cell(inputs if total is None else total, state if nested else [state])
            total = hidden if total is None else ops.add(total, hidden)
            new.append(state if nested else tree.flatten(state)[0])
        return total, new

    def query(self, states: Nested) -> Tensor:
        """Return the output that belongs to the states: the query before the cell."""
        first, *others = map(query_of, self.cells, states)
        return sum(others, first)
