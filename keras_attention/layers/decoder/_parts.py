"""Checks of the arguments of a decoder."""

import inspect

from keras_attention._checks import UNROLLED, described, dtype_of, is_cell, made
from keras_attention._shapes import check_batch, check_sequences, fits
from keras_attention.layers._tensors import check_tensor
from keras_attention.layers._types import DecoderState, Memory
from keras_attention.layers.decoder._cells import has_query, last_cell, output_size, query_of
from keras_attention.layers.scoring import ScoringMixin
from keras_attention.ops._loops import leaves


def check_parts(layer, dtype, cell, attention):
    """The cell or cells and the attention. `dtype` is the compute dtype of the decoder."""
    cells = list(cell) if isinstance(cell, (list, tuple)) else [cell]
    wrong = [one for one in cells if isinstance(one, type) or not is_cell(one)]
    if wrong or not cells:
        raise ValueError(
            f"{layer}: `cell` must be a Keras RNN cell with a `state_size`, such as "
            f"keras.layers.GRUCell(256), or a list of cells; received {described(cell)}."
            + (made(wrong[0]) or _cell_of(wrong[0]) if wrong else "")
        )
    if len({id(one) for one in cells}) < len(cells):
        raise ValueError(
            f"{layer}: `cell` holds one cell more than once. Make each: "
            f"[keras.layers.GRUCell(256) for _ in range({len(cells)})]."
        )
    reads = isinstance(attention, ScoringMixin)
    reads = reads and {"query", "value"} <= inspect.signature(attention.call).parameters.keys()
    if not reads:
        raise ValueError(
            f"{layer}: `attention` must be one layer built on ScoringMixin, called as "
            "layer(query, value), such as BahdanauAttention(256); received "
            f"{described(attention)}.{made(attention)}"
        )
    for name, part in (*(("cell", one) for one in cells), ("attention", attention)):
        if getattr(part, "compute_dtype", dtype) != dtype:
            raise ValueError(
                f"{layer}: cell, attention and decoder must compute in one dtype; the "
                f"decoder computes in {dtype}, `{name}` in {part.compute_dtype}. "
                "Give all of them the same `dtype`."
            )


def _cell_of(given):
    """How to fix another layer given in place of a cell."""
    if isinstance(given, ScoringMixin):
        return " Call AttentionRNN(cell, attention), the cell first."
    if hasattr(given, "state_size"):
        cell = f"{type(given).__name__}Cell(units)"
        return f" It runs over whole sequences; pass a cell, such as keras.layers.{cell}."
    return ""


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


def check_states(layer, name, given, sizes, count, **batch):
    """A flat list of states: `count` of the cell, and possibly the fed vector of input feeding.

    batch: the batch size, by the name of the argument that has it.
    """
    for state in given:
        if not hasattr(state, "shape") or not hasattr(state, "dtype"):
            raise ValueError(
                f"{layer}: `{name}` must hold tensors; received {described(state)}. Leave it out "
                "to start from zeros."
            )
        check_tensor(layer, name, state)
        if dtype_of(state) == "bool":
            raise ValueError(
                f"{layer}: `{name}` must hold vectors; received dtype bool. Pass a mask by its "
                "name: `sequences_mask` or `memory_mask`."
            )
    allowed = {len(sizes)} if name == "state" else {0, count, len(sizes)}
    shapes = [tuple(state.shape) for state in given]
    if len(given) not in allowed or not all(
        fits(shape, (None, size)) for shape, size in zip(shapes, sizes, strict=False)
    ):
        wanted = ", ".join(f"(batch, {size})" for size in sizes[:count])
        fed = f", and the fed vector (batch, {sizes[-1]})" if len(sizes) > count else ""
        remedy = f" Leave `{name}` out to start from zeros." if name == "initial_state" else ""
        raise ValueError(
            f"{layer}: `{name}` must hold the {count} states of the cell, of shapes "
            f"[{wanted}]{fed}; received {len(given)}, {shapes}.{remedy}"
        )
    for shape in shapes:
        check_batch(layer, **{of: (size,) for of, size in batch.items()}, **{name: shape})


def check_step(layer, inputs, size, state, memory, sizes, count):
    """The arguments of one step of a decoder.

    Args:
        size: the features of the inputs.
        sizes, count: see `check_states`.
    """
    check_prepared(layer, memory)
    shape = tuple(getattr(inputs, "shape", ()))
    if not fits(shape, (memory.value.shape[0], size)):
        ids = len(shape) == 1 and " Embed token ids first: embedding(tokens)."
        raise ValueError(
            f"{layer}: `inputs` of a step must have shape (batch, {size}), "
            f"without an axis of steps, the batch as in the memory; received {shape}.{ids or ''}"
        )
    if not isinstance(state, DecoderState):
        raise ValueError(
            f"{layer}: `state` must be the DecoderState that get_initial_state(memory) or the "
            f"step before returned; received {described(state)}."
        )
    flat = leaves((state.cells, state.fed))
    check_states(layer, "state", flat, sizes, count, memory=memory.value.shape[0])


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
