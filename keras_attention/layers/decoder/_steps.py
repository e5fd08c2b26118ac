"""One step of a decoder."""

from typing import Any

from keras import ops

from keras_attention._typing import Tensor
from keras_attention.layers.decoder._cells import as_states, query_of
from keras_attention.layers.decoder._checks import check_output
from keras_attention.ops._loops import where_valid


def called(decoder):
    """Calls the cell as it is."""

    def run(inputs, fed, states):
        inputs = inputs if fed is None else ops.concatenate([inputs, fed], axis=-1)
        hidden, new = decoder.cell(inputs, states)
        asks = decoder.attends_inside and decoder.query == "previous"
        check_output(decoder.name, decoder.cell, hidden, new if asks else None)
        return hidden, as_states(decoder.cell, new)

    return run


def masked_step(decoder, run, read, carry, x):
    """A step of the loop. Where it is masked, the states stay."""
    inputs, mask, position = x
    if read is None:
        output, states = run(inputs, None, carry[0])
        new, weights = (states, *carry[1:]), None
    else:
        output, new, weights = one_step(decoder, run, read, inputs, carry, position)
    return where_valid(mask, new, carry), (output, weights)


def one_step(decoder, run, read, inputs, carry, position):
    """Attends before or after the cell. Returns the output, the new carry and the weights."""
    states, fed, kept = carry
    if decoder.query == "previous":
        attended, kept, weights = read(query_of(decoder.cell, states), kept, position)
        hidden, states = run(inputs, attended, states)
    else:
        hidden, states = run(inputs, fed, states)
        attended, kept, weights = read(hidden, kept, position)
        fed = attended if decoder.input_feeding else None
    return joined_output(decoder, hidden, attended), (states, fed, kept), weights


def joined_output(decoder: Any, hidden: Tensor, attended: Tensor) -> Tensor:
    """What a step returns, by the `output_mode` of the decoder."""
    if decoder.output_mode == "concat":
        return ops.concatenate([attended, hidden], axis=-1)
    return hidden if decoder.output_mode == "cell" else attended
