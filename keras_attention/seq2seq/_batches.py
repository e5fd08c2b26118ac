"""Cut arrays into batches of similar length, and join the results in the order of the arrays."""

from collections.abc import Callable, Iterator

import keras
import numpy as np

from keras_attention._spec import dtype_of, is_integer
from keras_attention._typing import Nested
from keras_attention.backend import is_symbolic, leaves, ops, tree_map
from keras_attention.seq2seq._checks import check

STEPS = 16  # where every shape is compiled, lengths are rounded up to multiples of this


def pad_lists(ids: Nested, pad_token: int, encode: Callable | None = None) -> Nested:
    """Pad a list of sequences of ids to an array, also each of several sources.

    `encode` returns ids for texts, and None for anything else. Return everything else as it is.
    """
    encoded = None if encode is None or isinstance(ids, dict) else encode(ids)
    ids = ids if encoded is None else encoded
    if isinstance(ids, list) and ids and all(map(_is_sequence, ids)):
        return keras.utils.pad_sequences(ids, padding="post", value=pad_token)
    if isinstance(ids, dict):
        return {name: pad_lists(x, pad_token, encode) for name, x in ids.items()}
    if isinstance(ids, (list, tuple)) and not _is_sequence(ids):
        items = [pad_lists(x, pad_token, encode) for x in ids]
        return type(ids)(*items) if hasattr(ids, "_fields") else type(ids)(items)
    return ids


def _is_sequence(row):
    if isinstance(row, (list, tuple)):
        return all(map(is_integer, row))
    return isinstance(row, np.ndarray) and row.ndim == 1 and row.dtype.kind in "iu"


def as_arrays(model: str, samples: Nested) -> Nested:
    """Convert to NumPy arrays, which must have the same number of samples. None stays None."""

    def convert(x):
        call = "generate and log_probability take"
        remedy = "Inside a compiled function, call `search_batch`."
        check(model, not is_symbolic(x), f"{call} arrays", x, remedy)
        array = np.asarray(ops.convert_to_numpy(x))
        strings = isinstance(x, (str, bytes)) or (array.ndim and array.dtype.kind in "USO")
        remedy = "Give the model a tokenizer, Seq2Seq(..., source_text=...), for texts."
        check(model, not strings, f"{call} ids", x, remedy)
        remedy = "Write [[3, 4, 5]] for one sample."
        check(model, array.ndim, f"{call} arrays whose first axis is the sample", x, remedy)
        return array

    arrays = tree_map(convert, samples)
    sizes = {len(x) for x in leaves(arrays)}
    expected = "all arrays must have the same number of samples as their first axis, at least one"
    check(model, len(sizes) == 1 and sizes != {0}, expected, sorted(sizes))
    return arrays


def at_least_one_step(source: Nested, pad_token: int | None) -> Nested:
    """Append a step of padding to ids without steps, which no loop can read.

    With a `pad_token` of None, return everything as it is.
    """

    def lengthen(x):
        ids = hasattr(x, "shape") and len(x.shape) == 2 and "int" in dtype_of(x)
        if pad_token is None or not ids or (x.shape[1] or 0) > 0:
            return x
        batch, steps = ops.shape(x)
        more = 1 if isinstance(steps, int) else ops.maximum(1 - steps, 0)
        padding = ops.full((batch, more), pad_token, dtype=x.dtype)
        return ops.concatenate([x, padding], axis=1)

    return tree_map(lengthen, source)


def batches(
    arrays: tuple[Nested, ...], pad_token: int | None, size: int, fixed: bool
) -> Iterator[tuple[np.ndarray, Nested]]:
    """Cut arrays into batches.

    If the first item is one array of ids, its length sorts the samples, and it is cut to the
    longest sequence of each batch.

    Args:
        arrays: arrays in any nesting, and None.
        pad_token: the padding that may be cut; None cuts nothing.
        fixed: whether every shape is compiled. Then shapes are rounded up: rows repeat, and
            sequences are padded.

    Yields:
        The indices of the samples, and the arrays of the batch, which may have more rows.
    """
    count = len(leaves(arrays)[0])
    lengths = _lengths(arrays[0], pad_token)
    order = np.arange(count) if lengths is None else np.argsort(lengths, kind="stable")
    for start in range(0, count, size):
        rows = taken = order[start : start + size]
        if fixed and len(rows) < size:
            more = min(size, 2 ** (len(rows) - 1).bit_length()) - len(rows)
            taken = np.concatenate([rows, np.repeat(rows[-1:], more)])
        batch = tree_map(lambda x, rows=taken: x[rows], arrays)
        if lengths is not None:
            width = max(1, lengths[rows].max())
            width = -(-width // STEPS) * STEPS if fixed else width
            batch = (_fit_width(batch[0], width, pad_token), *batch[1:])
        yield rows, batch


def _lengths(source, pad_token):
    """Return the lengths of the sequences of one array of ids; None for anything else."""
    ids = pad_token is not None and isinstance(source, np.ndarray) and source.ndim == 2
    if not ids or not np.issubdtype(source.dtype, np.integer) or not source.shape[1]:
        return None
    valid = source != pad_token
    return np.where(valid.any(axis=1), source.shape[1] - valid[:, ::-1].argmax(axis=1), 0)


def _fit_width(x, width, fill):
    """Cut or pad the last axis."""
    x = x[..., :width]
    return np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, width - x.shape[-1])], constant_values=fill)


def pad_weights(weights: np.ndarray, batch: Nested, source: Nested) -> np.ndarray:
    """Pad weights `(..., Tk)` of the width of the batch to the width of the source."""
    ids = isinstance(source, np.ndarray) and source.ndim == 2
    if not ids or weights.shape[-1] != max(1, batch.shape[1]):
        return weights
    return _fit_width(weights, source.shape[1], 0)


def concatenate_batches(results: list[tuple[np.ndarray, Nested]]) -> Nested:
    """Join the results of batches, in the order of the samples. Pad shorter rows with zeros."""
    order = np.argsort(np.concatenate([rows for rows, _ in results]))

    def join(*items):
        items = [x[: len(rows)] for x, (rows, _) in zip(items, results, strict=True)]
        if items[0].ndim > 1:
            width = max(x.shape[-1] for x in items)
            items = [_fit_width(x, width, 0) for x in items]
        return np.concatenate(items)[order]

    return tree_map(join, *(items for _, items in results))
