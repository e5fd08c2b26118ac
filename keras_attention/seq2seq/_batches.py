"""Arrays in batches of similar length, and their results in the order of the arrays."""

from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
from keras import tree

from keras_attention._spec import dtype_of, is_integer
from keras_attention._typing import Nested
from keras_attention.backend import is_symbolic, ops, tree_map
from keras_attention.seq2seq._checks import check

STEPS = 16  # where every shape is compiled, lengths are rounded up to multiples of this


def padded(ids: Any, pad_token: int) -> Any:
    """Makes an array of a list of sequences of ids, also of each of several sources.

    Leaves everything else as it is.
    """
    if isinstance(ids, list) and ids and all(map(_is_sequence, ids)):
        return keras.utils.pad_sequences(ids, padding="post", value=pad_token)
    if isinstance(ids, dict):
        return {name: padded(x, pad_token) for name, x in ids.items()}
    if isinstance(ids, (list, tuple)) and not _is_sequence(ids):
        items = [padded(x, pad_token) for x in ids]
        return type(ids)(*items) if hasattr(ids, "_fields") else type(ids)(items)
    return ids


def _is_sequence(row):
    if isinstance(row, (list, tuple)):
        return all(map(is_integer, row))
    return isinstance(row, np.ndarray) and row.ndim == 1 and row.dtype.kind in "iu"


def as_arrays(model: str, samples: Nested) -> Nested:
    """NumPy arrays of the same number of samples. None stays None."""

    def convert(x):
        if x is None:
            return None
        check(model, "traced", not is_symbolic(x), x)
        array = ops.convert_to_numpy(x)
        strings = isinstance(x, (str, bytes)) or (array.ndim and array.dtype.kind in "USO")
        check(model, "strings", not strings, x)
        check(model, "batch", array.ndim, x)
        return array

    arrays = tree.map_structure(convert, samples)
    sizes = {len(x) for x in tree.flatten(arrays) if x is not None}
    check(model, "samples", len(sizes) == 1 and sizes != {0}, sorted(sizes))
    return arrays


def with_a_step(source: Nested, pad_token: int | None) -> Nested:
    """Ids with at least one step, padding where they have none, which no loop can read.

    A pad_token of None leaves everything as it is.
    """

    def lengthen(x):
        ids = hasattr(x, "shape") and len(x.shape) == 2 and "int" in dtype_of(x)
        if pad_token is None or not ids or (x.shape[1] or 0) > 0:
            return x
        batch, steps = ops.shape(x)
        more = 1 if isinstance(steps, int) else ops.maximum(1 - steps, 0)
        padding = ops.full((batch, more), pad_token, dtype=x.dtype)
        return ops.concatenate([x, padding], axis=1)

    return tree.map_structure(lengthen, source)


def batches(
    arrays: tuple[Nested, ...], pad_token: int | None, size: int, fixed: bool
) -> Iterator[tuple[np.ndarray, Nested]]:
    """Cuts arrays into batches.

    If the first item is one array of ids, its length sorts the samples, and it is cut to the
    longest sequence of each batch.

    Args:
        arrays: arrays in any nesting, and None.
        pad_token: the padding that may be cut; None cuts nothing.
        fixed: whether every shape is compiled. Then shapes are rounded up: rows repeat, and
            sequences are padded.

    Yields:
        The numbers of the samples, and the arrays of the batch, which may have more rows.
    """
    count = len(tree.flatten(arrays)[0])
    lengths = _lengths(arrays[0], pad_token)
    order = np.arange(count) if lengths is None else np.argsort(lengths, kind="stable")
    for start in range(0, count, size):
        rows = taken = order[start : start + size]
        if fixed and len(rows) < size:
            more = min(size, 2 ** (len(rows) - 1).bit_length()) - len(rows)
            taken = np.concatenate([rows, np.repeat(rows[-1:], more)])
        batch = tree.map_structure(lambda x, rows=taken: None if x is None else x[rows], arrays)
        if lengths is not None:
            width = max(1, lengths[rows].max())
            width = -(-width // STEPS) * STEPS if fixed else width
            batch = (_of_width(batch[0], width, pad_token), *batch[1:])
        yield rows, batch


def _lengths(source, pad_token):
    """The lengths of the sequences of one array of ids; None for anything else."""
    ids = pad_token is not None and isinstance(source, np.ndarray) and source.ndim == 2
    if not ids or not np.issubdtype(source.dtype, np.integer) or not source.shape[1]:
        return None
    valid = source != pad_token
    return np.where(valid.any(axis=1), source.shape[1] - valid[:, ::-1].argmax(axis=1), 0)


def _of_width(x, width, fill):
    """Cuts or pads the last axis."""
    x = x[..., :width]
    return np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, width - x.shape[-1])], constant_values=fill)


def padded_to_source(weights: np.ndarray, batch: Nested, source: Nested) -> np.ndarray:
    """Gives weights `(..., Tk)` the width of the source, if they have that of its batch."""
    ids = isinstance(source, np.ndarray) and source.ndim == 2
    if not ids or weights.shape[-1] != max(1, batch.shape[1]):
        return weights
    return _of_width(weights, source.shape[1], 0)


def joined(results: list[tuple[np.ndarray, Nested]]) -> Nested:
    """Joins the results of batches, in the order of the samples. Shorter rows get zeros."""
    order = np.argsort(np.concatenate([rows for rows, _ in results]))

    def join(*items):
        items = [x[: len(rows)] for x, (rows, _) in zip(items, results, strict=True)]
        if items[0].ndim > 1:
            width = max(x.shape[-1] for x in items)
            items = [_of_width(x, width, 0) for x in items]
        return np.concatenate(items)[order]

    return tree_map(join, *(items for _, items in results))
