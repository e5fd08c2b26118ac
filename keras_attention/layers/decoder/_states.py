"""The state of a decoder: the first one, and the checks of a given one."""

from typing import Any

from keras import ops, tree

from keras_attention._checks import described, dtype_of
from keras_attention._shapes import check_batch, fits
from keras_attention.layers._tensors import check_tensor
from keras_attention.layers._types import DecoderState, Memory
from keras_attention.layers.decoder._cells import as_states, state_sizes
from keras_attention.layers.decoder._parts import check_prepared
from keras_attention.layers.recurrent_scoring import RecurrentScoringMixin
from keras_attention.ops._loops import leaves


def remembers(attention: Any) -> bool:
    """Whether an attention has a state."""
    return isinstance(attention, RecurrentScoringMixin)


def first_state(decoder: Any, memory: Memory, initial_state: Any) -> DecoderState:
    """The state before the first step; see `AttentionRNN.get_initial_state`."""
    attention, batch = decoder.attention, ops.shape(memory.value)[0]
    kept = attention.as_state(memory, None) if remembers(attention) else None
    shapes, count = _shapes(decoder)
    more = [tuple(x.shape[1:]) for x in leaves(kept)]
    given = [] if initial_state is None else leaves(initial_state)
    position = ops.zeros((batch,), "int32")
    last = given[-1] if given and attention.uses_position else None
    if hasattr(last, "dtype") and "int" in dtype_of(last):
        *given, position = given
    _check(decoder.name, "initial_state", given, [*shapes, *more], count, memory.value.shape[0])
    if given[len(shapes) :]:
        kept = attention.as_state(memory, given[len(shapes) :])
    for shape in shapes[len(given) :]:
        given.append(ops.zeros((batch, *shape), decoder.compute_dtype))
    fed = given[count] if decoder.input_feeding else None
    return DecoderState(as_states(decoder.cell, given[:count]), fed, kept, position)


def check_step(decoder: Any, inputs: Any, state: Any, memory: Any) -> None:
    """The arguments of one step of a decoder; the attention checks its own state."""
    layer, size = decoder.name, decoder._input_size
    shapes, count = _shapes(decoder)
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
    _check(layer, "state", flat, shapes, count, memory.value.shape[0])


def _shapes(decoder):
    """The shapes of the states of the cell and of the fed vector, and how many are of the cell.

    They have no axis of the batch.
    """
    sizes = tree.flatten(state_sizes(decoder.cell))
    fed = [decoder._attention_size] * decoder.input_feeding
    return [(size,) for size in [*sizes, *fed]], len(sizes)


def _check(layer, name, given, shapes, count, batch):
    """A flat list of states, in the order of `AttentionRNN.get_initial_state`.

    Args:
        name: the argument that holds the states.
        shapes: the shapes of all states, without the batch.
        count: how many of them belong to the cell.
        batch: the batch size of the memory.
    """
    for n, state in enumerate(given):
        if not hasattr(state, "shape") or not hasattr(state, "dtype"):
            raise ValueError(
                f"{layer}: `{name}` must hold tensors; received {described(state)}. Leave it out "
                "to start from zeros."
            )
        check_tensor(layer, name, state)
        if dtype_of(state) == "bool" and n <= count:
            raise ValueError(
                f"{layer}: `{name}` must hold vectors; received dtype bool. Pass a mask by its "
                "name: `sequences_mask` or `memory_mask`."
            )
    allowed = {len(shapes)} if name == "state" else {0, count, len(shapes)}
    found = [tuple(state.shape) for state in given]
    if len(given) not in allowed or not all(
        fits(shape, (None, *wanted)) for shape, wanted in zip(found, shapes, strict=False)
    ):
        wanted, more = (
            ", ".join(f"(batch, {', '.join(map(str, shape))})" for shape in part)
            for part in (shapes[:count], shapes[count:])
        )
        more = f", and what the attention keeps, [{more}]" if more else ""
        remedy = f" Leave `{name}` out to start from zeros." if name == "initial_state" else ""
        raise ValueError(
            f"{layer}: `{name}` must hold the {count} states of the cell, of shapes "
            f"[{wanted}]{more}; received {len(given)}, {found}.{remedy}"
        )
    for shape in found:
        check_batch(layer, memory=(batch,), **{name: shape})
