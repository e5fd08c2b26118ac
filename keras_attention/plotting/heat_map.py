"""Heat maps of attention weights."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_attention._spec import check_int, refuse
from keras_attention._typing import Tensor
from keras_attention.plotting._figures import matplotlib_classes, placed
from keras_attention.plotting._inputs import check_shape, checked, string_list
from keras_attention.plotting._text import (
    Text,
    drawable,
    font_families,
    shorten,
    width_of,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["plot_attention"]


def plot_attention(
    weights: Tensor | Sequence[Sequence[float]] | Sequence[float],
    source: Iterable[Text],
    target: Iterable[Text] | None = None,
    *,
    title: str | None = None,
    largest: float | None = None,
    marked: Iterable[int] = (),
    per_line: int = 90,
    ax: Any = None,
) -> Figure:
    """Draws which source tokens each target token attended to, as a heat map.

    The map suits sequences of up to some hundreds of tokens. Long tokens are cut to 24 letters, and
    characters that no installed font has become boxes.

    Sizes: Tq target and Tk source tokens.

    Args:
        weights: `(Tq, Tk)`, the weights of one sample, or `(Tk,)` if there is no target.
        source: Tk strings, the columns.
        target: Tq strings, the rows; None if there is no target.
        title: text above the map.
        largest: the weight with the darkest colour, to compare several maps; None for the largest
            weight of this map.
        marked: indices of the source tokens to draw bold and red, such as an answer.
        per_line: the most source tokens side by side; the map of a longer source has several
            lines.
        ax: matplotlib axes to draw into, as a picture; None for a figure of its own.

    Returns:
        A `matplotlib.figure.Figure`, whose size grows with the number of tokens.

    Raises:
        ValueError: the sizes do not agree; a weight is NaN, infinite or negative; `largest` is not
            a positive number; `per_line` is not a positive integer; `marked` holds an index that no
            token has.
        ImportError: matplotlib is missing.

    Example:
        >>> from keras_attention.plotting import plot_attention
        >>> figure = plot_attention([[0.9, 0.1], [0.2, 0.8]], ["das", "Haus"], ["the", "house"])
        >>> figure.axes[0].get_title()
        ''
    """
    if isinstance(marked, int):
        raise ValueError(f"marked: a list of numbers of source tokens; received {marked!r}.")
    source = string_list("source", source)
    weights, marked = checked(weights), set(marked)
    check_int("plot_attention", "per_line", per_line)
    number = isinstance(largest, Real) and not isinstance(largest, bool)
    if largest is not None and not (number and 0 < largest < math.inf):
        raise ValueError(f"largest must be a positive number or None; received {largest!r}.")
    rows = [""] if target is None else string_list("target", target)
    weights = weights[None] if weights.ndim == 1 and target is None else weights
    if target is None and weights.ndim == 2 and len(weights) > 1:
        expected = f"`target` must be a list of {len(weights)} strings, one for each row of weights"
        refuse("plot_attention", expected, target, "For one row, pass weights[0].")
    check_shape("weights", weights, (len(rows), len(source)), "(target tokens, source tokens)")
    outside = [n for n in marked if n not in range(len(source))]
    if outside:
        raise ValueError(f"marked: {outside} are no numbers of the {len(source)} source tokens.")
    figure_class, canvas = matplotlib_classes()
    rows, columns = [shorten(x) for x in rows], [shorten(x) for x in source]
    # Lines of about equal length look best.
    lines = max(1, math.ceil(len(columns) / per_line))
    panel = max(1, math.ceil(len(columns) / lines))
    starts = range(0, max(1, len(columns)), panel)
    widest = min(panel, max(1, len(columns)))
    cell = min(0.36, max(0.15, 10 / max(widest, len(rows), 1)))
    size = min(10.0, max(6.5, 44 * cell))
    letter = size * 0.6 / 72
    upright = cell > letter * 1.2 and all(width_of(x) <= 2 for x in columns)
    beside = letter * max(map(width_of, rows), default=0) + 0.5
    above = letter * (2 if upright else max(map(width_of, columns), default=0)) + 0.35
    wide = max(beside + cell * widest + 1.0, 3.2)
    heading = textwrap.wrap(drawable(title or ""), max(20, int(wide * 72 / 6.5)))
    high = len(starts) * (above + cell * max(1, len(rows))) + 0.2 * len(heading) + 0.3
    figure = figure_class(figsize=(wide, max(high, 1.6)), dpi=120, layout="compressed")
    figure.get_layout_engine().set(w_pad=0.08, h_pad=0.08)
    canvas(figure)
    panels = figure.subplots(len(starts), squeeze=False)[:, 0]
    top = largest or max(weights.max(initial=0), 1e-30)
    fonts = font_families()
    for axes, first in zip(panels, starts, strict=True):
        part = weights[:, first : first + panel]
        # The last of several panels is filled with empty cells, so that all cells have one size.
        shown = np.full((max(1, len(rows)), widest), np.nan)
        shown[: part.shape[0], : part.shape[1]] = part
        image = axes.imshow(shown, cmap="Blues", vmin=0, vmax=top, aspect="equal")
        labels = columns[first : first + panel]
        turn = {} if upright else {"rotation": 90}
        axes.set_xticks(range(len(labels)), labels, family=fonts, size=size, **turn)
        axes.set_yticks(range(len(rows)), rows, family=fonts, size=size)
        axes.xaxis.tick_top()
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        axes.set_xticks(np.arange(part.shape[1] + 1) - 0.5, minor=True)
        axes.set_yticks(np.arange(len(rows) + 1) - 0.5, minor=True)
        axes.grid(which="minor", color="#e4e4e4", linewidth=0.4)
        axes.tick_params(which="minor", length=0)
        for number, label in enumerate(axes.get_xticklabels()):
            label.set_parse_math(False)
            if first + number in marked:
                label.set(color="#b3261e", fontweight="bold")
        for label in axes.get_yticklabels():
            label.set_parse_math(False)
    if heading:
        figure.suptitle("\n".join(heading), family=fonts, size=10, parse_math=False)
    bar = figure.colorbar(image, ax=list(panels), shrink=0.9, aspect=max(8, high / 0.15))
    bar.set_label("weight", size=8)
    bar.ax.tick_params(labelsize=7)
    bar.set_ticks(np.linspace(0, top, 2 if high < 2.5 else 5))
    bar.ax.yaxis.set_major_formatter("{x:.2g}")
    return placed(figure, ax)
