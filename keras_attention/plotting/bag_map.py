"""Maps of the instances of a bag."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import keras
import numpy as np

from keras_attention._spec import check_bool, check_number, raise_value_error
from keras_attention._typing import Tensor
from keras_attention.plotting._figures import matplotlib_module, new_figure, placed
from keras_attention.plotting._inputs import checked
from keras_attention.plotting._text import font_families, shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["plot_bag_map"]

SIDE = 6.0  # inches, the longer one


def plot_bag_map(
    weights: Tensor | Sequence[float],
    coordinates: Tensor | Sequence[Sequence[float]],
    *,
    image: Tensor | None = None,
    scale: float = 1.0,
    size: float | None = None,
    ranks: bool = False,
    title: str | None = None,
    ax: Axes | None = None,
) -> Figure:
    """Draw the weights of the instances of a bag at the places of the instances.

    Each instance is a square, such as a patch of a slide. Where squares overlap, the largest weight
    lies on top. Maps of 100,000 instances are drawn within seconds.

    Sizes: T instances.

    Args:
        weights: `(T,)`, the weights of one bag without padding.
        coordinates: `(T, 2)`, x and y of the upper left corner of each square; y points down, as in
            an image.
        image: the picture below the map, `(height, width)` or `(height, width, 3 or 4)`; None for
            none. The squares are transparent above an image.
        scale: how many units of the coordinates one pixel of the image has, such as 32 for a slide
            whose image is 32 times smaller.
        size: the side of a square, in units of the coordinates; None for the step of a regular
            grid, and for the mean distance of irregular coordinates.
        ranks: whether colours show the share of instances with smaller weights, from 0 to 1, as in
            the maps of CLAM (Lu et al., 2021). Without it a few large weights leave all others
            pale.
        title: text above the picture.
        ax: matplotlib axes to draw into, as a picture; None for a figure of its own.

    Returns:
        A `matplotlib.figure.Figure` with a colour bar.

    Raises:
        ValueError: the sizes do not agree; a weight is NaN, infinite or negative; a coordinate is
            NaN or infinite; `scale` or `size` is not positive; `image` is not an image.
        ImportError: matplotlib is missing.

    Example:
        >>> from keras_attention.plotting import plot_bag_map
        >>> figure = plot_bag_map([0.1, 0.7, 0.2], [[0, 0], [256, 0], [0, 256]])
        >>> figure.axes[0].collections[0].get_array().tolist()
        [0.1, 0.2, 0.7]

    Reference: https://arxiv.org/abs/2004.09666.
    """
    where = "plot_bag_map"
    check_bool(where, "ranks", ranks)
    scale = check_number(where, "scale", scale, above=0)
    if size is not None:
        check_number(where, "size", size, above=0)
    weights = checked(where, "weights", weights, "(instances,)", (None,))
    axes_names, count = "(instances, 2)", len(weights)
    corners = checked(where, "coordinates", coordinates, axes_names, (count, 2), negative=True)
    side = (size or _side(corners)) / scale
    corners = corners / scale
    values = weights
    if ranks:
        ordered = np.sort(weights)
        below = np.searchsorted(ordered, weights) + np.searchsorted(ordered, weights, "right")
        values = (below - 1) / max(1, 2 * count - 2)  # equal weights have one rank
    lowest, highest = corners.min(axis=0), corners.max(axis=0) + side
    if image is not None:
        image = np.asarray(keras.ops.convert_to_numpy(image))
        if image.ndim != 2 and not (image.ndim == 3 and image.shape[2] in (3, 4)):
            expected = "`image` must be (height, width) or (height, width, 3 or 4 channels)"
            raise_value_error(where, expected, image.shape)
        lowest = np.minimum(lowest, 0)
        highest = np.maximum(highest, image.shape[1::-1])
    width, height = highest - lowest
    ratio = SIDE / max(width, height)
    frame = max(width * ratio, SIDE / 4) + 1, max(height * ratio, SIDE / 4) + 0.4
    figure = new_figure(frame, dpi=120, layout="compressed")
    axes = figure.subplots()
    if image is not None:
        axes.imshow(image, cmap="gray", extent=(0, image.shape[1], image.shape[0], 0))
    order = np.argsort(weights, kind="stable")
    square = side * np.array([[0, 0], [1, 0], [1, 1], [0, 1]])
    squares = matplotlib_module("collections").PolyCollection(
        corners[order, None] + square,
        array=values[order],
        cmap="viridis" if image is None else "turbo",
        alpha=None if image is None else 0.5,
        linewidths=0,
        antialiaseds=False,
        rasterized=True,
    )
    squares.set_clim(0, 1 if ranks else max(weights.max(), 1e-30))
    axes.add_collection(squares)
    axes.set(xlim=(lowest[0], highest[0]), ylim=(highest[1], lowest[1]), aspect="equal")
    axes.set_axis_off()
    bar = figure.colorbar(squares, ax=axes, shrink=0.8)
    bar.set_label("share with smaller weights" if ranks else "weight", size=8)
    bar.ax.tick_params(labelsize=7)
    if title:
        style = {"family": font_families(), "size": 10, "parse_math": False}
        figure.suptitle(shorten(title, 80), **style)
    return placed(figure, ax)


def _side(corners):
    """The step of a regular grid; of other coordinates the side that fills their rectangle."""
    steps = [np.unique(axis)[1:] - np.unique(axis)[:-1] for axis in corners.T]
    if sum(map(len, steps)) < len(corners):  # the values repeat
        return min((np.median(x) for x in steps if x.size), default=1.0)
    return math.sqrt(np.prod(np.ptp(corners, axis=0)) / len(corners)) or 1.0
