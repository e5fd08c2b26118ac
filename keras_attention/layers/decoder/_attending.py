"""The attention as a part of the recurrence of a decoder."""

import contextlib
from typing import Any

import keras
from keras import ops

from keras_attention._checks import is_floating
from keras_attention._typing import Nested, Tensor
from keras_attention.layers._types import Attended, Memory
from keras_attention.layers.bahdanau import BahdanauAttention
from keras_attention.layers.decoder._changes import refuse_changes
from keras_attention.layers.luong import LuongAttention
from keras_attention.ops._gradients import repeated, vector_jacobian
from keras_attention.ops._graphs import value_of
from keras_attention.ops._loops import leaves, pack_like, swap_steps
from keras_attention.ops._parts import Part
from keras_attention.ops._stored import reusing, storing

# In these classes `attend` marks the same tensors for one query as for many. Another class may
# compute anything.
_STORING = BahdanauAttention, LuongAttention


def attend(decoder: Any, query: Tensor, memory: Memory, **options: Any) -> Attended:
    """Attends with one query or a sequence.

    Raises an error if the attention stores anything in its attributes.
    """
    loop = repeated() if len(query.shape) == 2 else contextlib.nullcontext()
    with refuse_changes(decoder.name, decoder.attention), loop:
        return decoder.attention._attend(query, memory, **options)


def attending(decoder: Any, memory: Memory, return_scores: bool) -> Part:
    """The part `(query, position) -> [output, weights]`; the weights only if they are wanted.

    Its weights are the keys and values of the memory and the weights of the attention.
    """
    attention = decoder.attention
    stores = type(attention) in _STORING
    variables = [x for x in attention.weights if "float" in x.dtype]

    def run(tensors, query, position=None):
        key, value, *rest = tensors
        given = memory._replace(key=key, value=value)
        options = {"return_attention_scores": return_scores}
        if attention.uses_position:
            options["position"] = position
        with keras.StatelessScope(list(zip(variables, rest, strict=True))):
            found = attend(decoder, query, given, **options)
        return [found.output, *([found.weights] if return_scores else [])]

    def once(tensors, *arguments):
        with storing() if stores else contextlib.nullcontext([]) as stored:
            return run(tensors, *arguments), stored

    def using(stored):
        return reusing(stored) if stores else contextlib.nullcontext()

    def many(tensors, stored, *arguments):
        # The queries of all steps are a sequence; the query of one step has an axis of its own.
        with using([ops.squeeze(swap_steps(x), 2) for x in stored]):
            return [swap_steps(x) for x in run(tensors, *map(swap_steps, arguments))]

    def backward(tensors, stored, upstream, query, *position):
        def function(query):
            with using(stored):
                return run(tensors, query, *position), None

        return list(vector_jacobian(function, (query,), list(upstream))[0])

    weights = [memory.key, memory.value, *map(value_of, variables)]
    return Part(weights, once, many, prepare=lambda tensors: tensors, backward=backward)


def attending_with_state(
    decoder: Any, memory: Memory, first: Nested, drawn: Nested, training: Any
) -> Part:
    """The part `(query, *state, *drawn, position) -> [output, weights, *state]`, with a state.

    The position is there if the attention counts steps.

    Args:
        first: the initial state, whose nesting the others have.
        drawn: the random numbers of all steps. The numbers of one step have the same nesting.
    """
    variables = [x for x in decoder.attention.weights if "float" in x.dtype]
    count = 1 + len(leaves(first))

    def run(tensors, query, *rest):
        key, value, *weights = tensors
        options = {"training": training}
        if decoder.attention.uses_position:
            *rest, options["position"] = rest
        given = memory._replace(key=key, value=value)
        state, of_step = (
            pack_like(x, list(tensors))
            for x, tensors in ((first, rest[: count - 1]), (drawn, rest[count - 1 :]))
        )
        with keras.StatelessScope(list(zip(variables, weights, strict=True))):
            found = attend(decoder, query, given, state=state, drawn=of_step, **options)
        return [found.output, found.weights, *leaves(found.state)]

    def once(tensors, *arguments):
        with storing() as stored:
            return run(tensors, *arguments), stored

    def backward(tensors, stored, upstream, *arguments):
        def function(floats, tensors):
            rest = iter(floats)
            given = [next(rest) if is_floating(x) else x for x in arguments]
            with reusing(stored):
                return run(tensors, *given), None

        given = [x for x in arguments if is_floating(x)], list(tensors)
        return leaves(vector_jacobian(function, given, list(upstream))[0])

    return Part(
        [memory.key, memory.value, *map(value_of, variables)],
        once=once,
        many=lambda tensors, stored, *arguments: [],
        prepare=lambda tensors: tensors,
        backward=backward,
        summed=True,
    )
