"""Checks of the parts of a decoder."""

from typing import Any

from keras_attention._spec import check_choice, is_cell, made, refuse
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
            raise ValueError(
                f"{layer}: `{name}` has an `activity_regularizer`, and its loss cannot leave the "
                "loop of a decoder. Give it to the decoder: AttentionRNN(cell, attention, "
                "activity_regularizer=...)."
            )
        if getattr(part, "compute_dtype", dtype) != dtype:
            raise ValueError(
                f"{layer}: cell, attention and decoder must compute in one dtype; the decoder "
                f"computes in {dtype}, `{name}` in {part.compute_dtype}. Give all the same `dtype`."
            )


def check_cells(layer: str, name: str, given: Any, wanted: str) -> list:
    """Lists the cells of an argument. None may occur twice: the places would share its weights."""
    cells = list(given) if isinstance(given, (list, tuple)) else [given]
    wrong = [one for one in cells if isinstance(one, type) or not is_cell(one)]
    if wrong or not cells:
        refuse(layer, f"`{name}` must be {wanted}", given, (wrong and _cell_of(wrong[0])) or "")
    if len({id(one) for one in cells}) < len(cells):
        raise ValueError(
            f"{layer}: `{name}` holds one cell more than once. Make each: "
            f"[keras.layers.GRUCell(256) for _ in range({len(cells)})]."
        )
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
    if hidden.shape[-1] != output_size(cell):
        raise ValueError(
            f"{layer}: the cell {name} returns an output of {hidden.shape[-1]} features, but its "
            f"`output_size`, or its first state without one, has {output_size(cell)}. Give the "
            f"cell the attribute `output_size = {hidden.shape[-1]}`."
        )
    if states is None or has_query(cell) or query_of(cell, states) is hidden:
        return
    raise ValueError(
        f'{layer}: with query="previous" the query is the output of the cell at the step before. '
        f"The output of the cell {name} is not its first state, so the decoder cannot find it in "
        "the states. Give the cell a method `query(states)` that returns it, keep the output as "
        'the first state, or use query="current".'
    )
