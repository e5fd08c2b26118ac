"""What a decoder was given, checked before any work."""

import keras

from keras_attention.layers.checks import check_batch, fits
from keras_attention.layers.prepared import Memory
from keras_attention.layers.scoring import ScoringMixin


def check_parts(layer, dtype, cell, attention):
    """The cell, or list of cells, and the attention of a decoder that computes in a dtype."""
    cells = cell if isinstance(cell, (list, tuple)) else [cell]
    if not cells or not all(_is_cell(one) for one in cells):
        raise ValueError(
            f"{layer}: `cell` must be a Keras RNN cell with a `state_size`, such as "
            f"keras.layers.GRUCell(256), or a list of cells; received "
            f"{cell!r}."
        )
    if not isinstance(attention, ScoringMixin):
        raise ValueError(
            f"{layer}: `attention` must be a layer built on ScoringMixin, such as "
            f"BahdanauAttention(256); received {attention!r}."
        )
    for name, part in (*(("cell", one) for one in cells), ("attention", attention)):
        if getattr(part, "compute_dtype", dtype) != dtype:
            raise ValueError(
                f"{layer}: cell, attention and decoder must compute in one dtype; the "
                f"decoder computes in {dtype}, `{name}` in {part.compute_dtype}. "
                "Give all of them the same `dtype`."
            )


def _is_cell(cell):
    is_layer = isinstance(cell, keras.layers.RNN)  # which has the state size of its cell
    return hasattr(cell, "state_size") and callable(cell) and not is_layer


def check_states(layer, given, sizes, count, batch_size):
    """The first states: those of the cell, `count`, may have the one of input feeding behind."""
    if len(given) not in {0, count, len(sizes)}:
        raise ValueError(
            f"{layer}: `initial_state` must hold the {count} states of the cell, of sizes "
            f"{sizes[:count]}; received {len(given)} of shapes "
            f"{[tuple(state.shape) for state in given]}."
        )
    for state, size in zip(given, sizes, strict=False):
        if len(state.shape) != 2 or state.shape[-1] != size:
            raise ValueError(
                f"{layer}: a state in `initial_state` must have shape (batch, {size}); "
                f"received {tuple(state.shape)}."
            )
        if isinstance(batch_size, int):
            check_batch(layer, sequences=(batch_size,), initial_state=state.shape)


def check_step(layer, inputs, size, states, count, memory):
    """The arguments of one step of a decoder built for inputs of a size."""
    if not isinstance(memory, Memory):
        raise ValueError(
            f"{layer}: `memory` must be what prepare(memory, memory_mask) returns, made "
            f"once before the first step; received {type(memory).__name__}."
        )
    shape = tuple(getattr(inputs, "shape", ()))
    if not fits(shape, (memory.value.shape[0], size)):
        raise ValueError(
            f"{layer}: `inputs` of a step must have shape (batch, {size}), "
            f"without an axis of steps, the batch as in the memory; received {shape}."
        )
    if not isinstance(states, (list, tuple)) or len(states) != count:
        found = len(states) if isinstance(states, (list, tuple)) else type(states).__name__
        raise ValueError(
            f"{layer}: `states` must be the list of {count} that get_initial_state() or "
            f"the step before returned; received {found}."
        )
