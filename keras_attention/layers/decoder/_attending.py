"""The attention as a part of the recurrence of a decoder."""

from typing import Any

import keras
from keras import ops

from keras_attention._typing import Tensor
from keras_attention.layers._types import Attended, Memory
from keras_attention.layers.decoder._changes import refuse_changes
from keras_attention.ops._gradients import repeated, vector_jacobian
from keras_attention.ops._graphs import value_of
from keras_attention.ops._parts import Part


def attend(decoder: Any, query: Tensor, memory: Memory, **options: Any) -> Attended:
    """Attends in a step of a decoder. The attention must not keep anything from it."""
    with refuse_changes(decoder.name, decoder.attention), repeated():
        return decoder.attention.attend(query, memory, **options)


def attending(decoder: Any, memory: Memory, return_scores: bool) -> Part:
    """The part `(query, position) -> [output, weights]`; the weights only if they are wanted.

    Its weights are the keys and values of the memory and the weights of the attention.
    """
    attention = decoder.attention
    variables = [x for x in attention.weights if "float" in x.dtype]

    def run(tensors, query, position, repeats=False):
        key, value, *rest = tensors
        given = memory._replace(key=key, value=value)
        options = {"return_attention_scores": return_scores}
        if attention.uses_position:
            options["position"] = position
        with keras.StatelessScope(list(zip(variables, rest, strict=True))):
            if repeats:
                found = attend(decoder, query, given, **options)
            else:
                found = attention.attend(query, given, **options)
        return [found.output, *([found.weights] if return_scores else [])]

    def once(tensors, query, *position):
        return run(tensors, query, *(position or [None]), repeats=True)

    def many(tensors, query, *position):
        # The queries of all steps are a sequence.
        found = run(tensors, _swap(query), *(map(_swap, position) if position else [None]))
        return [_swap(x) for x in found]

    def backward(tensors, upstream, query, *position):
        def function(query):
            return once(tensors, query, *position), None

        return vector_jacobian(function, (query,), list(upstream))[0][0]

    weights = [memory.key, memory.value, *map(value_of, variables)]
    return Part(weights, once, many, prepare=lambda tensors: tensors, backward=backward)


def _swap(x):
    """Swaps the axes of steps and samples."""
    return ops.transpose(x, (1, 0, *range(2, len(x.shape))))
