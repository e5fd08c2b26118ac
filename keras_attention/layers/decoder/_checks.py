"""Checks of the parts of a decoder."""

from typing import Any

from keras_attention._spec import Words, check_choice, is_cell, made, refuse
from keras_attention.layers._base import check_initialised
from keras_attention.layers.decoder._cells import has_query, last_cell, output_size, query_of
from keras_attention.layers.scoring import ScoringMixin

QUERIES = "previous", "current"


def check_parts(layer: str, dtype: str, cell: Any, attention: Any) -> None:
    """The cell or cells and the attention. `dtype` is the compute dtype of the decoder."""
    one = "a Keras RNN cell with a `state_size`, such as keras.layers.GRUCell(256)"
    cells = check_cells(layer, "cell", cell, f"{one}, or a list of cells")
    if not isinstance(attention, ScoringMixin):
        expected = "`attention` must be one layer built on ScoringMixin, called as layer(query, "
        expected += "value), such as BahdanauAttention(256)"
        refuse(layer, expected, attention, made(attention))
    check_initialised(attention)
    for name, part in (*(("cell", one) for one in cells), ("attention", attention)):
        if getattr(part, "activity_regularizer", None) is not None:
            expected = f"`{name}` must have no `activity_regularizer`, which cannot leave the loop"
            remedy = "Give it to the decoder: AttentionRNN(..., activity_regularizer=...)."
            refuse(layer, expected, part.activity_regularizer, remedy)
        if getattr(part, "compute_dtype", dtype) != dtype:
            expected = "cell, attention and decoder must compute in one dtype"
            given = Words(f"{dtype} for the decoder, {part.compute_dtype} for `{name}`")
            refuse(layer, expected, given, "Give all of them the same `dtype`.")


def check_cells(layer: str, name: str, given: Any, wanted: str) -> list:
    """Lists the cells of an argument. None may occur twice: the places would share its weights."""
    cells = list(given) if isinstance(given, (list, tuple)) else [given]
    wrong = [one for one in cells if isinstance(one, type) or not is_cell(one)]
    if wrong or not cells:
        refuse(layer, f"`{name}` must be {wanted}", given, (wrong and _cell_of(wrong[0])) or "")
    if len({id(one) for one in cells}) < len(cells):
        remedy = f"Make each: [keras.layers.GRUCell(256) for _ in range({len(cells)})]."
        refuse(layer, f"`{name}` must not hold one cell more than once", given, remedy)
    return cells


def _cell_of(given):
    """How to fix what was given in place of a cell."""
    if isinstance(given, ScoringMixin):
        return "Call AttentionRNN(cell, attention), the cell first."
    if hasattr(given, "state_size") and not isinstance(given, type):
        cell = f"{type(given).__name__}Cell(units)"
        return f"It runs over whole sequences; pass a cell, such as keras.layers.{cell}."
    return made(given)


def default_query(attention: ScoringMixin) -> str:
    """The query of a decoder that names none."""
    return check_choice(attention.name, "decoder_query", attention.decoder_query, QUERIES)


def check_output(layer: str, cell: Any, hidden: Any, states: Any = None) -> None:
    """The output of the cell. With `states`, the new ones, it must be the next query."""
    name = last_cell(cell).name if hasattr(last_cell(cell), "name") else type(cell).__name__
    size = output_size(cell)
    if hidden.shape[-1] != size:
        expected = f"the cell {name} must return {size} features, its `output_size` or first state"
        remedy = f"Give the cell the attribute `output_size = {hidden.shape[-1]}`."
        refuse(layer, expected, Words(f"an output of {hidden.shape[-1]} features"), remedy)
    if states is None or has_query(cell) or query_of(cell, states) is hidden:
        return
    expected = 'with query="previous" the query is the output of the cell at the step before, '
    expected += f"which the cell {name} must keep as its first state"
    remedy = 'Or give the cell a method `query(states)` that returns it, or use query="current".'
    refuse(layer, expected, Words("another first state"), remedy)
