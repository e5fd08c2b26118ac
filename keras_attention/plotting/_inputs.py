"""Checks of weights and tokens before they are drawn."""

from collections.abc import Iterable
from typing import Any

import keras
import numpy as np

from keras_attention._typing import Tensor


def as_array(x: Tensor) -> np.ndarray:
    """Converts a tensor or numbers to a float32 array."""
    return np.asarray(keras.ops.convert_to_numpy(x), "float32")


def checked(weights: Any, negative: bool = False) -> np.ndarray:
    """Converts weights to an array, and refuses numbers that cannot be drawn."""
    try:
        if weights is None:  # NumPy would convert it to NaN
            raise TypeError
        weights = as_array(weights)
    except (TypeError, ValueError):
        found, remedy = f"{weights!r:.80}", ""
        if isinstance(weights, tuple) and all(hasattr(x, "shape") for x in weights):
            found = f"a tuple of {len(weights)} tensors"
            remedy = " Pass the second of (output, weights)."
        raise ValueError(f"weights must be numbers; received {found}.{remedy}") from None
    check_numbers(weights, negative=negative)
    return weights


def check_numbers(weights: np.ndarray, name: str = "weights", negative: bool = False) -> None:
    least = -np.inf if negative else 0
    if not np.isfinite(weights).all() or (weights < least).any():
        wanted = "finite" if negative else "finite and not negative"
        raise ValueError(
            f"{name} must be {wanted}; received numbers from {weights.min()} to {weights.max()}."
        )


def string_list(
    name: str, strings: Iterable[Any], of: str = "tokens", remedy: str | None = None
) -> list[Any]:
    """Converts to a list, and refuses a string, which Python takes for a list of letters."""
    if isinstance(strings, (str, bytes)):
        raise ValueError(
            f"{name} must be a list of {of}; received the string {strings!r:.80}. Write "
            f"{remedy or f'{name}.split()'}."
        )
    return list(strings)


def check_shape(name: str, weights: np.ndarray, wanted: tuple[int, ...], axes: str) -> None:
    if weights.shape == wanted:
        return
    advice = ""
    if weights.ndim == len(wanted) and all(
        given >= size for given, size in zip(weights.shape, wanted, strict=True)
    ):
        advice = f" Cut padding off: {name}[{', '.join(f':{size}' for size in wanted)}]."
    if weights.ndim > len(wanted):
        advice = f" Pass one sample: {name}[0]."
    raise ValueError(
        f"{name} must be {axes}, here {wanted}; received {tuple(weights.shape)}.{advice}"
    )
