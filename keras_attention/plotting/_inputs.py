"""Checks of weights and tokens before plotting."""

from collections.abc import Iterable

import keras
import numpy as np

from keras_attention._spec import Description, raise_value_error
from keras_attention._typing import Tensor


def checked(
    where: str,
    name: str,
    weights: Tensor,
    axes: str,
    sizes: tuple[int | None, ...],
    padded: bool = False,
    negative: bool = False,
) -> np.ndarray:
    """Convert weights of these sizes to an array. None is any size but zero.

    Args:
        padded: whether padding may follow, which is cut off.
        negative: whether weights may be negative.
    """
    expected = f"`{name}` must be an array of shape {axes}, here {sizes}"
    try:
        if weights is None:  # NumPy would convert it to NaN
            raise TypeError
        array = np.asarray(keras.ops.convert_to_numpy(weights), "float64")
    except (TypeError, ValueError):
        raise_value_error(where, expected, Description(f"{weights!r:.80}"))
    inside = tuple(map(slice, sizes))
    least = [1 if size is None else size for size in sizes]
    longer = array.ndim == len(sizes) and np.greater_equal(array.shape, least).all()
    if not longer or not (padded or array[inside].shape == array.shape):
        remedy = "Pass one sample, and cut padding off."
        raise_value_error(where, expected, array.shape, remedy)
    array = array[inside]
    if not np.isfinite(array).all() or (not negative and (array < 0).any()):
        valid = "finite" if negative else "finite and not negative"
        received = Description(f"values from {array.min()} to {array.max()}")
        raise_value_error(where, f"`{name}` must be {valid}", received)
    return array


def string_list(where: str, name: str, strings: Iterable, of: str = "tokens") -> list:
    """Convert to a list. A string, which Python takes for a list of letters, raises an error."""
    if isinstance(strings, (str, bytes)):
        raise_value_error(where, f"`{name}` must be a list of {of}", strings, "Split the string.")
    return list(strings)


def index_set(where: str, name: str, indices: Iterable[int], count: int, of: str) -> set[int]:
    """Convert indices, or a boolean mask, to a set of indices."""
    expected = f"`{name}` must be a list of indices, or a mask, of the {count} {of}, from 0"
    if not isinstance(indices, Iterable):
        raise_value_error(where, expected, indices)
    array = np.asarray([*np.asarray(keras.ops.convert_to_numpy(indices)).tolist()])
    mask = array.dtype == bool and array.shape == (count,)
    items = set(np.flatnonzero(array).tolist() if mask else array.tolist())
    if (array.dtype == bool and not mask) or not items <= set(range(count)):
        raise_value_error(where, expected, indices)
    return items
