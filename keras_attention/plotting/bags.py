"""Pictures of the instances of a bag."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from keras_attention._spec import check_int, raise_value_error
from keras_attention._typing import Tensor
from keras_attention.plotting._figures import new_figure, placed
from keras_attention.plotting._inputs import checked, index_set, string_list
from keras_attention.plotting._text import Text, font_families, shorten
from keras_attention.plotting.documents import percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["plot_bag"]

COLUMNS = 6  # images side by side
BLUE, RED = "#2f6db5", "#b3261e"


def plot_bag(
    weights: Tensor | Sequence[float],
    instances: Tensor | Iterable[Text],
    *,
    most: int = 12,
    marked: Iterable[int] = (),
    title: str | None = None,
    ax: Axes | None = None,
) -> Figure:
    """Draw the instances of a bag with the largest weights.

    The instance with the largest weight comes first. Each stands beside its number in the bag and
    its weight. A bar has the full length for the largest weight.

    Sizes: T instances.

    Args:
        weights: `(T,)`, the weights of one bag without padding.
        instances: T images, `(T, height, width)` or `(T, height, width, channels)`; or T strings,
            such as one of each row of a table.
        most: the most instances to draw.
        marked: indices of instances to draw in red, or a mask `(T,)` that is True for them.
        title: text above the picture.
        ax: matplotlib axes to draw into, as a picture; None for a figure of its own.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        ValueError: the sizes do not agree; a weight is NaN, infinite or negative; `most` is not a
            positive integer; `marked` holds an index that no instance has, or is a mask of another
            length.
        ImportError: matplotlib is missing.

    Example:
        >>> from keras_attention.plotting import plot_bag
        >>> figure = plot_bag([0.1, 0.7, 0.2], ["left", "middle", "right"], most=2)
        >>> [label.get_text() for label in figure.axes[0].get_yticklabels()]
        ['1: middle', '2: right']
    """
    where = "plot_bag"
    check_int(where, "most", most)
    images = getattr(instances, "ndim", 1) > 1
    if images:
        instances = np.asarray(instances)
        if instances.ndim != 3 and not (instances.ndim == 4 and instances.shape[3] in (3, 4)):
            expected = "`instances` must be images, (instances, height, width) or (instances, "
            expected += "height, width, 3 or 4 channels), or strings"
            remedy = "Make a string of each row of a table, or take one channel: images[..., 0]."
            raise_value_error(where, expected, instances.shape, remedy)
    else:
        instances = string_list(where, "instances", instances, "strings")
    weights = checked(where, "weights", weights, "(instances,)", (len(instances),))
    marked = index_set(where, "marked", marked, len(instances), "instances")
    chosen = np.argsort(-weights, kind="stable")[:most]
    shares = weights[chosen] / max(weights.max(initial=0), 1e-30)
    draw = _draw_images if images else _draw_strings
    figure = draw(instances, chosen, shares, [percent(x) for x in weights[chosen]], marked)
    if title:
        style = {"family": font_families(), "size": 10, "parse_math": False}
        figure.suptitle(shorten(title, 80), **style)
    return placed(figure, ax)


def _draw_images(images, chosen, shares, percents, marked):
    rows = max(1, math.ceil(len(chosen) / COLUMNS))
    figure = new_figure((1.1 * COLUMNS, 1.6 * rows + 0.4), dpi=120, layout="compressed")
    panels = figure.subplots(rows, COLUMNS, squeeze=False).ravel()
    for axes in panels:
        axes.axis("off")
    bottom, top = images.min(initial=0), images.max(initial=0)
    if images.ndim == 4 and images.dtype.kind == "f" and (bottom < 0 or top > 1):
        # Matplotlib scales grey images only, and cuts colours to the range from 0 to 1.
        images = (images - bottom) / (top - bottom)
    for axes, n, share, text in zip(panels, chosen, shares, percents, strict=False):
        image, color = images[n], RED if n in marked else BLUE
        high, wide = image.shape[:2]
        axes.imshow(image, cmap="gray_r", vmin=bottom, vmax=top)
        # The bar lies below the image.
        axes.set_ylim(1.12 * high, -0.5)
        axes.plot([-0.5, share * wide - 0.5], [1.06 * high] * 2, color=color, linewidth=4)
        axes.set_title(f"{n}: {text}", size=8, color=color)
    return figure


def _draw_strings(strings, chosen, shares, percents, marked):
    figure = new_figure((6.5, 0.26 * max(1, len(chosen)) + 0.6), dpi=120, layout="compressed")
    axes = figure.subplots()
    labels = [shorten(f"{n}: {shorten(strings[n], 56)}", 60) for n in chosen]
    colors = [RED if n in marked else BLUE for n in chosen]
    rows = range(len(chosen))
    axes.barh(rows, shares, color=colors, height=0.6)
    axes.set_yticks(rows, labels, family=font_families(), size=8, parse_math=False)
    for row, share, text in zip(rows, shares, percents, strict=True):
        axes.text(share + 0.02, row, text, size=8, va="center")
    axes.set_xlim(0, 1.2)
    axes.invert_yaxis()
    axes.set_xticks([])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    return figure
