"""Two ways to attend to the windows of a memory: past all of it, or to them only.

Wide computes all scores and forgets those that are not in a window; narrow gathers the windows and
computes the scores there. The results are the same to rounding.
"""

import keras
from keras import ops

from keras_attention.ops.additive import additive_score
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
        layer: a `LuongAttention` whose methods are its own. center: p, `(B, Tq)`, in positions of
            the memory. Others: as of `focus`.
    """
    length = ops.shape(memory.value)[1]
    dropout = training and layer.dropout > 0
    shortest = _shortest(layer, query, memory)
    query, vector = comparable(layer, query)

    def wide(query=query, key=memory.key, value=memory.value, center=center, vector=vector):
        part = memory._replace(key=key, value=value)
        scores = compare(query, key, vector)
        return _weigh_all(layer, query, scores, part, masks, center, training)

    def narrow(query=query, key=memory.key, value=memory.value, center=center, vector=vector):
        part = memory._replace(key=key, value=value)
        wanted = return_attention_scores
        return _focus_narrow(layer, query, vector, part, masks, center, wanted, training)

    if isinstance(length, int):
        if length <= shortest:
            return wide()
        # A generator of random numbers cannot advance in a part, and a step is not worth one.
        if query.shape[1] == 1 or dropout:
            return narrow()
        return as_one_part(narrow, query, memory.value)
    # One step is not worth it, and what dropout draws could not be drawn again.
    if keras.backend.backend() != "tensorflow" or query.shape[1] == 1 or dropout:
        return wide()
    inputs = (query, memory.key, memory.value, center, *([] if vector is None else [vector]))
    context, *weights = either(
        length > shortest,
        lambda *given: narrow(*given)[: 1 + return_attention_scores],
        lambda *given: wide(*given)[: 1 + return_attention_scores],
        *inputs,
    )
    # A conditional forgets the sizes that are known.
    batch, steps = ops.shape(query)[:2]
    context = ops.reshape(context, (batch, steps, memory.value.shape[-1]))
    return context, weights[0] if weights else None


def focus_widely(layer, query, memory, masks, center, training):
    """As `focus_locally`, from all scores, as the methods of the layer make them."""
    scores = layer.score(query, memory.key)
    layer.check_scores(scores, query, memory)
    return _weigh_all(layer, query, scores, memory, masks, center, training)


def _shortest(layer, query, memory):
    """The longest memory that is not worth it."""
    width = 2 * layer.window + 1
    if is_compiled_as_part(query, memory.value):
        return WORTHWHILE[True] * width
    times = WORTHWHILE[False]
    if layer.score_type != "concat":
        # All windows are copied, and their features must not take more memory than all scores.
        times = max(times, times * memory.value.shape[-1] // 160)
    return times * width


def comparable(layer, query):
    """The query as the keys are, and for concat the vector that the sum of both is weighed with."""
    if layer.score_type != "concat":
        return ops.cast(query, layer.score_dtype), None
    query = layer.project(query, layer.score_kernel[: layer.score_vector.shape[0]])
    vector = ops.cast(layer.score_vector, layer.score_dtype)
    return ops.cast(query, layer.score_dtype), vector


def compare(query, key, vector):
    """Scores `(B, Tq, Tk)`."""
    if vector is not None:
        return additive_score(query, key, vector)
    return ops.einsum("bqd,bkd->bqk", query, key)


def _weigh_all(layer, query, scores, memory, masks, center, training):
    steps, length = ops.shape(scores)[1:]
    position = ops.arange(length, dtype="int32")
    mask = all_of(window_mask(center, position, layer.window), masks.joined(steps, length))
    weights = _weigh(layer, query, scores, mask, memory, center, position)
    return layer.read(weights, memory.value, training), weights


def _focus_narrow(layer, query, vector, memory, masks, center, return_attention_scores, training):
    length = ops.shape(memory.value)[1]
    position, inside = window_positions(center, layer.window, length)
    if vector is None:
        scores = window_dot(query, memory.key, position)
    else:
        scores = window_tanh(query, memory.key, vector, position)
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
