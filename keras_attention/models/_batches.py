"""Arrays in batches of similar length, and their results in the order of the arrays."""

from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
from keras import ops, tree

from keras_attention._place import is_symbolic
from keras_attention._spec import Words, dtype_of, is_integer, refuse
from keras_attention._typing import Nested

STEPS = 16  # where every shape is compiled, lengths are rounded up to multiples of this


def padded(ids: Any, pad_token: int) -> Any:
    """Makes an array of a list of sequences of ids; leaves everything else as it is."""
    if isinstance(ids, list) and ids and all(map(_is_sequence, ids)):
        return keras.utils.pad_sequences(ids, padding="post", value=pad_token)
    return ids


def _is_sequence(row):
    if isinstance(row, (list, tuple)):
        return all(map(is_integer, row))
    return isinstance(row, np.ndarray) and row.ndim == 1


def as_arrays(model: str, given: Nested) -> Nested:
    """NumPy arrays of what was given, with one batch size. None stays None."""

    def convert(x):
        if x is None:
            return None
        if is_symbolic(x):
            remedy = "Inside a compiled function, call `search_batch`."
            refuse(model, "generate and log_probability take arrays", x, remedy)
        array = ops.convert_to_numpy(x)
        if isinstance(x, (str, bytes)) or (array.ndim and array.dtype.kind in "USO"):
            remedy = "Look the tokens up in the vocabulary. An export takes strings: "
            remedy += "export_generate(tokenize=...)."
            refuse(model, "generate and log_probability take ids", x, remedy)
        if not array.ndim:
            expected = "generate and log_probability take arrays whose first axis is the sample"
            refuse(model, expected, x, "Write [[3, 4, 5]] for one sample.")
        return array

    given = tree.map_structure(convert, given)
    shapes = [x.shape for x in tree.flatten(given) if x is not None]
    if not shapes:
        raise ValueError(f"{model}: there is no sample; pass at least one.")
    if len({shape[0] for shape in shapes}) != 1:
        expected = "all arrays must have the same number of samples as their first axis"
        remedy = "Pass one target, or one prefix, for each source."
        refuse(model, expected, Words(f"the shapes {shapes}"), remedy)
    if not shapes[0][0]:
        raise ValueError(f"{model}: there is no sample; pass at least one.")
    return given


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
    given: tuple[Nested, ...], pad_token: int | None, size: int, fixed: bool
) -> Iterator[tuple[np.ndarray, Nested]]:
    """Cuts arrays into batches.

    If the first item is one array of ids, its length sorts the samples, and it is cut to the
    longest sequence of each batch.

    Args:
        given: what was given, as arrays in any nesting, and None.
        pad_token: the padding that may be cut; None cuts nothing.
        fixed: whether every shape is compiled. Then shapes are rounded up: rows repeat, and
            sequences are padded.

    Yields:
        The numbers of the samples, and the arrays of the batch, which may have more rows.
    """
    count = len(tree.flatten(given)[0])
    lengths = _lengths(given[0], pad_token)
    order = np.arange(count) if lengths is None else np.argsort(lengths, kind="stable")
    for start in range(0, count, size):
        rows = order[start : start + size]
        taken = rows
        if fixed and len(rows) < size:
            more = min(size, 2 ** (len(rows) - 1).bit_length()) - len(rows)
            taken = np.concatenate([rows, np.repeat(rows[-1:], more)])
        first, *others = tree.map_structure(
            lambda x, taken=taken: None if x is None else x[taken], given
        )
        if lengths is not None:
            width = max(1, lengths[rows].max())
            first = _of_width(first, -(-width // STEPS) * STEPS if fixed else width, pad_token)
        yield rows, (first, *others)


def _lengths(given, pad_token):
    """The lengths of the sequences of one array of ids; None for anything else."""
    ids = pad_token is not None and isinstance(given, np.ndarray) and given.ndim == 2
    if not ids or not np.issubdtype(given.dtype, np.integer) or not given.shape[1]:
        return None
    valid = given != pad_token
    return np.where(valid.any(axis=1), given.shape[1] - valid[:, ::-1].argmax(axis=1), 0)


def _of_width(x, width, fill):
    """Cuts or pads the last axis."""
    x = x[..., :width]
    return np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, width - x.shape[-1])], constant_values=fill)


def widened(weights: np.ndarray | None, batch: Nested, source: Nested) -> np.ndarray | None:
    """Gives weights `(..., Tk)` the width of the source, if they have that of its batch."""
    ids = isinstance(source, np.ndarray) and source.ndim == 2
    if weights is None or not ids or weights.shape[-1] != max(1, batch.shape[1]):
        return weights
    return _of_width(weights, source.shape[1], 0)


def joined(found: list[tuple[np.ndarray, tuple]]) -> list[np.ndarray | None]:
    """Joins the results of batches, in the order of the samples. Shorter rows get zeros."""
    order = np.argsort(np.concatenate([rows for rows, _ in found]))
    cut = [[None if x is None else x[: len(rows)] for x in results] for rows, results in found]
    results = []
    for parts in zip(*cut, strict=True):
        if parts[0] is not None and parts[0].ndim > 1:
            width = max(x.shape[-1] for x in parts)
            parts = [_of_width(x, width, 0) for x in parts]
        results.append(None if parts[0] is None else np.concatenate(parts)[order])
    return results
