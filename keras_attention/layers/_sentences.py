"""Sentences of word ids as vectors, and the check of the ids."""

from typing import Any

import keras
from keras import ops

from keras_attention._spec import LONGEST, dtype_of, is_integer, refuse
from keras_attention._typing import Shape, Tensor


def word_shares(ids: Tensor, encoding: bool | int, units: int, dtype: str) -> Tensor:
    """The parts of the position encoding l[j,k] that depend on the word j alone.

    l is linear in the feature k: l[j,k] = level[j] + slope[j] k / units. Bags of words have a level
    of one and no slope.

    Args:
        ids: `(B, N, W)`, 0 for padding, whose shares are 0.
        encoding: see `MemoryNetwork.position_encoding`.

    Returns:
        `(B, N, 2, W)`, level and slope; `(B, N, 1, W)` for bags of words.
    """
    # float16 cannot count beyond 2048, nor bfloat16 beyond 256.
    words = ops.cast(ids != 0, "float64" if dtype == "float64" else "float32")
    if not encoding:
        return ops.cast(ops.expand_dims(words, 2), dtype)
    place = ops.cumsum(words, axis=-1)
    if encoding is True:
        place = place / ops.maximum(ops.sum(words, axis=-1, keepdims=True), 1)
        level, slope = 1 - place, 2 * place - 1
    else:
        slope = (4 * ops.minimum(place, encoding) - 2 * (encoding + 1)) / encoding
        level = 1 - slope * (units + 1) / (2 * units)
    return ops.cast(ops.stack([words * level, words * slope], axis=2), dtype)


def encode_sentences(ids: Tensor, shares: Tensor, table: Tensor, dtype: str) -> Tensor:
    """sum_j l_j * A x_j: ids `(B, N, W)` and a table A `(V, D)` to `(B, N, D)`."""
    embedded = ops.take(ops.cast(table, dtype), ids, axis=0)  # (B, N, W, D)
    sums = ops.einsum("bnsw,bnwd->bnsd", shares, embedded)
    if shares.shape[2] == 1:
        return sums[:, :, 0]
    units = table.shape[1]
    feature = ops.cast(ops.arange(1, units + 1), dtype) / units
    return sums[:, :, 0] + feature * sums[:, :, 1]


def sentence_times(story: Tensor, memory_size: int) -> tuple[Tensor, Tensor]:
    """How far back each sentence is, `(B, N)`, and whether it is remembered."""
    valid = ops.any(story != 0, axis=-1)
    places = ops.arange(ops.shape(story)[1], dtype="int32")
    last = ops.max(ops.where(valid, places, -1), axis=1, keepdims=True, initial=-1)
    times = last - places
    valid = ops.logical_and(valid, times < memory_size)
    return ops.clip(times, 0, memory_size - 1), valid


def as_ids(ids: Tensor) -> Tensor:
    """Integers that every backend can look up."""
    return ids if dtype_of(ids) == "int64" else ops.cast(ids, "int32")


def check_position_encoding(layer: str, value: Any) -> bool | int:
    if isinstance(value, bool):
        return value
    if not is_integer(value) or not 1 <= value <= LONGEST:
        expected = "`position_encoding` must be True, False or a positive integer, the length of "
        refuse(layer, f"{expected}the longest sentence, at most {LONGEST}", value)
    return int(value)


def normal(shape: Shape, dtype: str | None = None) -> Tensor:
    """N(0, 0.1). One initializer object would draw the same numbers for every weight."""
    return keras.initializers.RandomNormal(stddev=0.1)(shape, dtype)


def normal_with_null(shape: Shape, dtype: str | None = None) -> Tensor:
    """N(0, 0.1), and zeros for padding."""
    return normal(shape, dtype) * not_padding(shape[0], dtype)


def not_padding(vocabulary_size: int, dtype: str | None) -> Tensor:
    """`(V, 1)`: zero for the word 0, and one for all others."""
    return ops.cast(ops.expand_dims(ops.arange(vocabulary_size) > 0, 1), dtype)
