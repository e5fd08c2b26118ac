"""Two ways to attend to the windows of a memory: past all of it, or to them only.

Wide computes all scores and forgets those that are not in a window; narrow gathers the windows and
computes the scores there. The results are the same to rounding.
"""

import keras
from keras import ops

from keras_attention.ops.choice import either
from keras_attention.ops.compiled import as_one_part, is_compiled_as_part
from keras_attention.ops.local import window_dot, window_sum, window_tanh
from keras_attention.ops.masks import all_of
from keras_attention.ops.windows import (
    gaussian,
    spread_windows,
    window_mask,
    window_positions,
)

# A memory so many times as long as a window is read window by window, compiled or not: what is read
# is less, but must be gathered, and products of large matrices are fast.
WORTHWHILE = {True: 10, False: 40}


def focus_locally(layer, query, memory, masks, center, return_attention_scores, training):
    """As `ScoringMixin.focus`, in whichever way is faster.

    Args:
        layer: a `LuongAttention`. center: p, `(B, Tq)`, in positions of the memory.
        Others: as of `focus`.
    """
    length = ops.shape(memory.value)[1]
    limit = WORTHWHILE[is_compiled_as_part(query, memory.value)] * (2 * layer.window + 1)
    dropout = training and layer.dropout > 0

    def wide():
        return focus_widely(layer, query, memory, masks, center, training)

    def narrow():
        wanted = return_attention_scores
        return _focus_narrow(layer, query, memory, masks, center, wanted, training)

    if not isinstance(length, int):
        # One step is not worth it, and what dropout draws could not be drawn again.
        if keras.backend.backend() != "tensorflow" or query.shape[1] == 1 or dropout:
            return wide()
        return _focus_either(
            layer, query, memory, masks, center, return_attention_scores, length > limit
        )
    if length <= limit:
        return wide()
    # A generator of random numbers cannot advance in a part, and a step is not worth one.
    if query.shape[1] == 1 or dropout:
        return narrow()
    return as_one_part(narrow, query, memory.value)


def _focus_either(layer, query, memory, masks, center, return_attention_scores, long):
    """Narrow where the memory is long, when the graph runs."""
    weights = layer.trainable_weights

    def branch(way):
        def run(query, key, value, center, *values):
            # The gradient is by tensors, so weights must be some too.
            with keras.StatelessScope(state_mapping=zip(weights, values, strict=True)):
                part = memory._replace(key=key, value=value)
                return way(query, part, center)[: 1 + return_attention_scores]

        return run

    context, *found = either(
        long,
        branch(lambda q, m, p: _focus_narrow(layer, q, m, masks, p, return_attention_scores, None)),
        branch(lambda q, m, p: focus_widely(layer, q, m, masks, p, None)),
        *(query, memory.key, memory.value, center),
        *(ops.convert_to_tensor(weight.value) for weight in weights),
    )
    batch, steps = ops.shape(query)[:2]
    # A conditional forgets the sizes that are known.
    context = ops.reshape(context, (batch, steps, memory.value.shape[-1]))
    return context, found[0] if found else None


def focus_widely(layer, query, memory, masks, center, training):
    """As `focus_locally`, from all scores."""
    scores = layer.score(query, memory.key)
    layer.check_scores(scores, query, memory)
    steps, length = ops.shape(scores)[1:]
    position = ops.arange(length, dtype="int32")
    mask = all_of(window_mask(center, position, layer.window), masks.joined(steps, length))
    weights = _weigh(layer, query, scores, mask, memory, center, position)
    return layer.read(weights, memory.value, training), weights


def _focus_narrow(layer, query, memory, masks, center, return_attention_scores, training):
    length = ops.shape(memory.value)[1]
    position, inside = window_positions(center, layer.window, length)
    scores = _score_windows(layer, query, memory.key, position)
    mask = all_of(inside, masks.at(position))
    weights = _weigh(layer, query, scores, mask, memory, center, position)
    value = ops.cast(memory.value, layer.compute_dtype)
    context = window_sum(layer.drop(weights, training), value, position)
    if not return_attention_scores:
        return context, None
    return context, spread_windows(weights, center, length)


def _weigh(layer, query, scores, mask, memory, center, position):
    weights = layer.align(query, scores, mask, memory)
    if layer.alignment == "local-m":
        return weights
    return weights * gaussian(center, position, layer.window)


def _score_windows(layer, query, key, position):
    if layer.score_type != "concat":
        return window_dot(ops.cast(query, layer.score_dtype), key, position)
    query, vector = layer.project_query(query)
    return window_tanh(query, key, vector, position)
