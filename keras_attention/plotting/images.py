"""Maps of attention over an image."""

from __future__ import annotations

import io
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

import keras
import numpy as np

from keras_attention._spec import check_int, raise_value_error
from keras_attention._typing import Tensor
from keras_attention.plotting._figures import matplotlib_module, new_figure, placed
from keras_attention.plotting._inputs import checked, string_list
from keras_attention.plotting._text import Text, font_families, shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["image_pixels", "plot_attention_image", "png"]

PANEL = 2.2  # inches of the longer side of a panel
WIDEST = 9.0  # inches of all panels of a row
PALE = 0.2  # of the colours that are left where the weight is zero


def plot_attention_image(
    weights: Tensor,
    image: Tensor,
    tokens: Iterable[Text],
    *,
    per_line: int | None = None,
    ax: Axes | None = None,
) -> Figure:
    """Draw where in an image each token looked: one panel for each token.

    Weights are upsampled to the size of the image, bilinearly. The image keeps its colours where
    the weight is the largest of a panel, which the title has too, and fades to white where it is
    zero. A cross marks the centre of the weights.

    Sizes: T tokens, H x W cells, Y x X pixels.

    Args:
        weights: `(T, H, W)`: weights `(T, H W)` of one sample, without padding, as they are after
            `reshape(T, H, W)`.
        image: `(Y, X)`, or `(Y, X, C)` with 1 or 3 channels. Integers are from 0 to 255, other
            values are scaled from the smallest to the largest.
        tokens: T strings, the titles of the panels.
        per_line: the number of panels side by side; None for as many as fit a page.
        ax: matplotlib axes to draw into, as a picture; None for a figure of its own.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        ValueError: the sizes do not agree; a weight is NaN, infinite or negative; the image has
            another shape, or a pixel that is not finite; `per_line` is not a positive integer.
        ImportError: matplotlib is missing.

    Example:
        >>> import numpy
        >>> from keras_attention.plotting import plot_attention_image
        >>> weights = numpy.eye(4).reshape(4, 2, 2)
        >>> figure = plot_attention_image(weights, numpy.ones((16, 24, 3)), [*"abcd"])
        >>> figure.axes[3].get_title()
        'd 1.00'
    """
    where = "plot_attention_image"
    tokens = string_list(where, "tokens", tokens)
    if not tokens:
        raise_value_error(where, "expected at least one token", tokens)
    axes_names, sizes = "(tokens, rows, columns)", (len(tokens), None, None)
    weights = checked(where, "weights", weights, axes_names, sizes)
    pixels = image_pixels(where, image)
    high, wide = pixels.shape[:2]
    scale = PANEL / max(high, wide) if wide < 3 * high else WIDEST / 3 / wide
    width, height = max(scale * wide, 0.9), max(scale * high, 0.3)
    fitting = max(1, int(WIDEST / width)) if per_line is None else per_line
    check_int(where, "per_line", fitting)
    lines = math.ceil(len(tokens) / fitting)
    columns = math.ceil(len(tokens) / lines) if per_line is None else fitting
    figure = new_figure((columns * width, lines * (height + 0.3)), dpi=120, layout="compressed")
    panels = figure.subplots(lines, columns, squeeze=False).ravel()
    rows, cells = (_upsampling(*x) for x in zip((high, wide), weights.shape[1:], strict=True))
    for axes, token, one in zip(panels, tokens, weights, strict=False):
        largest = one.max()
        kept = PALE + (1 - PALE) * (rows @ one @ cells.T) / max(largest, 1e-30)
        axes.imshow((255 - (255 - pixels) * kept[..., None]).astype("uint8"))
        if total := one.sum():
            centre = [np.arange(len(x)) @ x / total for x in (one.sum(0), one.sum(1))]
            scales = wide / one.shape[1], high / one.shape[0]
            x, y = ((n + 0.5) * scale - 0.5 for n, scale in zip(centre, scales, strict=True))
            axes.plot(x, y, "+", color="#d1111f", markersize=7, markeredgewidth=1.4)
        title = f"{shorten(token, 16)} {largest:.2f}"
        axes.set_title(title, family=font_families(), size=8, parse_math=False, pad=2)
    for axes in panels:
        axes.set_axis_off()
    return placed(figure, ax)


def _upsampling(pixels, cells):
    """Return the matrix `(pixels, cells)` of a linear interpolation between centres of cells."""
    centre = (np.arange(pixels) + 0.5) * cells / pixels - 0.5
    return np.stack([np.interp(centre, np.arange(cells), x) for x in np.eye(cells)], axis=1)


def image_pixels(where: str, image: Tensor) -> np.ndarray:
    """Return the bytes of an image as floats from 0 to 255, `(Y, X, 3)`."""
    array = np.asarray(keras.ops.convert_to_numpy(image))
    array = array[..., None] if array.ndim == 2 else array
    right = array.ndim == 3 and array.shape[-1] in (1, 3) and array.size
    expected = "`image` must be an array of shape (rows, columns) or (rows, columns, 1 or 3)"
    if not right or array.dtype.kind not in "buif" or not np.isfinite(array).all():
        raise_value_error(where, f"{expected}, finite", array)
    if array.dtype.kind not in "ui":
        low, high = float(array.min()), float(array.max())
        array = (array.astype("float64") - low) * 255 / max(high - low, 1e-30)
    return np.broadcast_to(np.clip(array, 0, 255), (*array.shape[:2], 3)).astype("float64")


def png(pixels: np.ndarray) -> bytes:
    """Return an image, bytes as `image_pixels` returns them, as a PNG file."""
    file = io.BytesIO()
    matplotlib_module("image").imsave(file, pixels.astype("uint8"), format="png")
    return file.getvalue()
