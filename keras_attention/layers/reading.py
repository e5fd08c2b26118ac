"""How a query reads the memory: the whole of it, the whole under a window, or a gathered window.

The second and the third way give the same numbers. A gathered window needs time and memory for its
2D + 1 positions only, but it copies their rows, so it is faster for long memories only.
"""

import keras
from keras import ops

from keras_attention._place import Place
from keras_attention._spec import check_result
from keras_attention.layers.types import NO_RESIDUALS, Residuals
from keras_attention.ops.batched import weighted_sums
from keras_attention.ops.gradients import differentiable_cond, restored
from keras_attention.ops.masks import all_of
from keras_attention.ops.products import as_dtype
from keras_attention.ops.random import generator_states
from keras_attention.ops.windows import window_sum
from keras_attention.ops.windows.choose import longest_whole
from keras_attention.ops.windows.positions import (
    gaussian,
    spread_windows,
    window_mask,
    window_positions,
)
from keras_attention.ops.xla import run_as_part

__all__ = ["drop_memory", "read_memory", "read_values"]


def read_memory(layer, query, memory, masks, window, weights_wanted, training, stored):
    """Scores, weights and context of all queries.

    Args:
        layer: a `ScoringMixin`; its hooks `project_query`, `score`, `score_window` and
            `weigh` are called.
        query: `(B, Tq, Dq)`, zero where it is masked.
        memory: `Memory`. masks: `Masks`. window: `Window` or None.
        weights_wanted: whether the weights are needed; without them, gathering costs less.
        training: whether dropout is active.
        stored: the `Residuals` of an earlier call with the same arguments, or none.

    Returns:
        `(context, weights, residuals)`: `(B, Tq, Dv)`, `(B, Tq, Tk)`, and `Residuals`. The weights
        may be None if they are not wanted.
    """
    query = restored(layer._project_query(query), stored.query)
    if window is None or layer.score_window is None:
        return _read_whole(layer, query, memory, masks, window, training, stored)
    read = _read_window(layer, query, memory, masks, window, weights_wanted, training)
    # One query may be read whole where many are gathered, so no scores are stored.
    return *read, Residuals(query)


def _read_window(layer, query, memory, masks, window, weights_wanted, training):
    def whole(query=query, memory=memory, window=window):
        return _read_whole(layer, query, memory, masks, window, training)[:2]

    def gathered(query=query, memory=memory, window=window):
        return _read_gathered(layer, query, memory, masks, window, weights_wanted, training)

    length = ops.shape(memory.value)[1]
    place = Place.of(query, memory.value)
    longest = longest_whole(place, 2 * window.half_width + 1, memory.value.shape[-1])
    may_draw = training and bool(generator_states(layer))
    if isinstance(length, int):
        if length <= longest:
            return whole()
        # A compiled part cannot advance a random generator, and is not worth it for one query.
        if query.shape[1] == 1 or may_draw:
            return gathered()
        return run_as_part(place, gathered)
    # The branches run again for the gradient, so they cannot advance a random generator.
    if place.backend != "tensorflow" or query.shape[1] == 1 or may_draw:
        return whole()
    return _read_by_length(
        layer, length > longest, gathered, whole, query, memory, window, weights_wanted
    )


def drop_weights(layer, weights, training):
    """The weights in the compute dtype, some of them dropped in training."""
    if training and layer.dropout > 0:
        weights = keras.random.dropout(weights, layer.dropout, seed=layer.seed_generator)
    return as_dtype(weights, layer.compute_dtype)


def drop_memory(layer, memory):
    """The memory with dropout that is the same at every step of a loop around `attend`.

    Dropping a weight at every step drops a value, so one draw before the loop is enough.
    """
    if layer.dropout == 0:
        return memory
    keep = ops.ones_like(memory.value[:, :, :1])
    keep = keras.random.dropout(keep, layer.dropout, seed=layer.seed_generator)
    return memory._replace(value=memory.value * keep)


def read_values(layer, weights, value, training=None):
    """The context: the values, summed by their weights."""
    value = as_dtype(value, layer.compute_dtype)
    return weighted_sums(drop_weights(layer, weights, training), value)


def _read_whole(layer, query, memory, masks, window, training, stored=NO_RESIDUALS):
    scores = layer.score(query, memory.key)
    if "score" in layer._own:
        check_result(layer.name, "score", scores, *query.shape[:2], memory.value.shape[1])
    scores = restored(scores, stored.scores)
    steps, length = ops.shape(scores)[1:]
    mask = masks.joined(steps, length)
    position = None
    if window is not None:
        position = ops.arange(length, dtype="int32")
        mask = all_of(window_mask(window.center, position, window.half_width), mask)
    weights = _weigh(layer, scores, mask, window, position)
    context = read_values(layer, weights, memory.value, training)
    return context, weights, Residuals(query, scores)


def _read_gathered(layer, query, memory, masks, window, weights_wanted, training):
    length = ops.shape(memory.value)[1]
    position, inside = window_positions(window.center, window.half_width, length)
    scores = layer.score_window(query, memory.key, position)
    weights = _weigh(layer, scores, all_of(inside, masks.at(position)), window, position)
    value = ops.cast(memory.value, layer.compute_dtype)
    context = window_sum(drop_weights(layer, weights, training), value, position)
    return context, spread_windows(weights, window.center, length) if weights_wanted else None


def _weigh(layer, scores, mask, window, position):
    weights = layer.weigh(scores, mask)
    if "weigh" in layer._own:
        check_result(layer.name, "weigh", weights, *scores.shape)
    if window is None or not window.gaussian:
        return weights
    return weights * gaussian(window.center, position, window.half_width)


def _read_by_length(layer, long, gathered, whole, query, memory, window, weights_wanted):
    """Chooses at run time, because a TensorFlow graph does not know the length before."""
    weights = [x for x in layer.weights if "float" in x.dtype]

    def branch(read):
        def run(query, key, value, center, *values):
            # Gradients flow to the arguments alone, so the weights of the layer are arguments too.
            with keras.StatelessScope(list(zip(weights, values, strict=True))):
                found = read(
                    query, memory._replace(key=key, value=value), window._replace(center=center)
                )
            return found[: 1 + weights_wanted]

        return run

    tensors = query, memory.key, memory.value, window.center
    tensors += tuple(ops.convert_to_tensor(x) for x in weights)
    context, *found = differentiable_cond(long, branch(gathered), branch(whole), *tensors)
    # The result of a conditional has lost the sizes that are known.
    context = ops.reshape(context, (*ops.shape(query)[:2], memory.value.shape[-1]))
    return context, found[0] if found else None
