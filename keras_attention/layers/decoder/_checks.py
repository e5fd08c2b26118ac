"""Checks of the arguments of a decoder."""

from keras_attention._checks import UNROLLED, check_choice, described, is_cell, made
from keras_attention._shapes import check_sequences, check_width, shape_of
from keras_attention.layers.base import check_initialised
from keras_attention.layers.decoder._cells import has_query, last_cell, output_size, query_of
from keras_attention.layers.scoring import ScoringMixin
from keras_attention.layers.tensors import check_mask, check_tensor, check_vectors
from keras_attention.layers.types import Memory

QUERIES = "previous", "current"


def check_parts(layer, dtype, cell, attention):
    """The cell or cells and the attention. `dtype` is the compute dtype of the decoder."""
    one = "a Keras RNN cell with a `state_size`, such as keras.layers.GRUCell(256)"
    cells = check_cells(layer, "cell", cell, f"{one}, or a list of cells")
    if not isinstance(attention, ScoringMixin):
        raise ValueError(
            f"{layer}: `attention` must be one layer built on ScoringMixin, called as "
            "layer(query, value), such as BahdanauAttention(256); received "
            f"{described(attention)}.{made(attention)}"
        )
    check_initialised(attention)
    for name, part in (*(("cell", one) for one in cells), ("attention", attention)):
        if getattr(part, "activity_regularizer", None) is not None:
            raise ValueError(
                f"{layer}: `{name}` has an `activity_regularizer`, and its loss cannot leave the "
                "loop of a decoder. Give the regularizer to the decoder, whose outputs it then "
                "regularizes: AttentionRNN(cell, attention, activity_regularizer=...)."
            )
        if getattr(part, "compute_dtype", dtype) != dtype:
            raise ValueError(
                f"{layer}: cell, attention and decoder must compute in one dtype; the "
                f"decoder computes in {dtype}, `{name}` in {part.compute_dtype}. "
                "Give all of them the same `dtype`."
            )


def check_widths(attention, query_shape, memory_shape):
    """Whether an attention, which may have been built before, fits the cell and the memory."""
    shapes = {"query": query_shape, "value": memory_shape, "key": memory_shape}
    for name, size in getattr(attention, "_sizes", {}).items():
        check_width(attention.name, name, shapes[name], size)


def check_cells(layer, name, given, wanted):
    """Lists the cells of an argument. None may occur twice: the places would share its weights."""
    cells = list(given) if isinstance(given, (list, tuple)) else [given]
    wrong = [one for one in cells if isinstance(one, type) or not is_cell(one)]
    if wrong or not cells:
        raise ValueError(
            f"{layer}: `{name}` must be {wanted}; received {described(given)}."
            + (made(wrong[0]) or _cell_of(wrong[0]) if wrong else "")
        )
    if len({id(one) for one in cells}) < len(cells):
        raise ValueError(
            f"{layer}: `{name}` holds one cell more than once. Make each: "
            f"[keras.layers.GRUCell(256) for _ in range({len(cells)})]."
        )
    return cells


def _cell_of(given):
    """How to fix another layer given in place of a cell."""
    if isinstance(given, ScoringMixin):
        return " Call AttentionRNN(cell, attention), the cell first."
    if hasattr(given, "state_size"):
        cell = f"{type(given).__name__}Cell(units)"
        return f" It runs over whole sequences; pass a cell, such as keras.layers.{cell}."
    return ""


def default_query(attention):
    """The query of a decoder that names none."""
    return check_choice(attention.name, "decoder_query", attention.decoder_query, QUERIES)


def check_output(layer, cell, hidden, states=None):
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


def check_prepared(layer, memory):
    if not isinstance(memory, Memory):
        raise ValueError(
            f"{layer}: `memory` must be what prepare(memory, memory_mask) returns, made "
            f"once before the first step; received {described(memory)}."
        )


def check_memory(decoder, memory, mask):
    """A memory that is to be prepared, and its mask."""
    name, call = decoder.name, "prepare(memory, memory_mask=mask)"
    check_tensor(name, "memory", memory, f" Call {call}.")
    check_vectors(name, "memory", memory, " Pass a mask by its name: `memory_mask`.")
    check_sequences(name, call, memory=shape_of(memory))
    check_width(name, "memory", memory.shape, decoder._memory_size)
    check_mask(name, "memory_mask", mask, [tuple(memory.shape)[:2]])


def check_shapes(layer, unroll, sequences_shape, memory_shape):
    """The shapes of a call, whose loop may be unrolled."""
    shapes = {"sequences": sequences_shape, "memory": memory_shape}
    check_sequences(layer, "layer(sequences, memory)", **shapes)
    steps = sequences_shape[1]
    if unroll and not (isinstance(steps, int) and steps <= UNROLLED):
        raise ValueError(
            f"{layer}: `unroll=True` copies the loop for every step. It needs a known number of "
            f"steps, at most {UNROLLED}; received {tuple(sequences_shape)}. Give the number to "
            "keras.Input, or leave `unroll` out."
        )


def check_built(layer):
    if not layer.built:
        raise ValueError(
            f"{layer.name}: the layer has no weights yet. Call it once, or its build(), before "
            "decoding."
        )
