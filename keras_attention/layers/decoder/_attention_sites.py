"""The attention as a site of the recurrence of a decoder."""

from typing import Any

import keras
from keras import ops

from keras_attention._spec import is_floating
from keras_attention._typing import Nested
from keras_attention.layers._types import NOTHING, Memory
from keras_attention.ops._gradients import vector_jacobian
from keras_attention.ops._graphs import value_of
from keras_attention.ops._loops import leaves, pack_like, swap_steps
from keras_attention.recurrence import Site


def attention_site(decoder: Any, memory: Memory, return_scores: bool) -> Site:
    """The site `(query, position) -> [context, weights]`; the weights only if they are wanted.

    Its weights are the keys and values of the memory, and the weights of the attention.
    """
    attention = decoder.attention

    def run(weights, query, *position, stored=NOTHING):
        options = {"position": position[0]} if position else {}
        key, value, *weights = weights
        with _scope(attention, weights):
            found, residuals = attention._attend(
                query,
                memory._replace(key=key, value=value),
                return_attention_scores=return_scores,
                combine=False,
                stored=stored,
                **options,
            )
        return [found.output, *([found.weights] if return_scores else [])], residuals

    def backward(weights, residuals, upstream, query, *position):
        def function(query):
            return run(weights, query, *position, stored=residuals)[0], None

        return list(vector_jacobian(function, (query,), list(upstream))[0])

    def of_weights(weights, residuals, upstream, *arguments):
        # The query of one step has an axis of its own; the queries of all steps are a sequence.
        stored = [ops.squeeze(swap_steps(x), 2) for x in leaves(residuals)]
        stored = pack_like(residuals, stored)

        def function(weights):
            results, _ = run(weights, *map(swap_steps, arguments), stored=stored)
            return results, None

        upstream = [swap_steps(x) for x in upstream]
        return vector_jacobian(function, (weights,), upstream)[0][0]

    return Site(_weights(attention, memory), run, backward, of_weights)


def attention_site_with_state(
    decoder: Any, memory: Memory, first: Nested, drawn: Nested, training: bool | None
) -> Site:
    """The site `(query, *state, *drawn, position) -> [context, weights, *state]`.

    The position is there if the attention counts steps.

    Args:
        first: the initial state, whose nesting the others have.
        drawn: the random numbers of all steps. The numbers of one step have the same nesting.
    """
    attention, count = decoder.attention, 1 + len(leaves(first))

    def run(weights, query, *rest, stored=NOTHING):
        options = {}
        if attention.uses_position:
            *rest, options["position"] = rest
        state, drawn_now = rest[: count - 1], rest[count - 1 :]
        key, value, *weights = weights
        with _scope(attention, weights):
            found, residuals = attention._attend(
                query,
                memory._replace(key=key, value=value),
                state=pack_like(first, list(state)),
                drawn=pack_like(drawn, list(drawn_now)),
                training=training,
                drop=False,
                combine=False,
                stored=stored,
                **options,
            )
        return [found.output, found.weights, *leaves(found.state)], residuals

    def backward(weights, residuals, upstream, *arguments):
        def function(floats, weights):
            rest = iter(floats)
            given = [next(rest) if is_floating(x) else x for x in arguments]
            return run(weights, *given, stored=residuals)[0], None

        given = [x for x in arguments if is_floating(x)], list(weights)
        return leaves(vector_jacobian(function, given, list(upstream))[0])

    return Site(_weights(attention, memory), run, backward)


def _variables(attention):
    return [x for x in attention.weights if "float" in x.dtype]


def _weights(attention, memory):
    return [memory.key, memory.value, *map(value_of, _variables(attention))]


def _scope(attention, weights):
    """Lets an attention compute with these values of its variables."""
    return keras.StatelessScope(list(zip(_variables(attention), weights, strict=True)))
