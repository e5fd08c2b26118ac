"""Heat maps of attention weights."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from keras_attention._spec import check_int, check_number
from keras_attention._typing import Tensor
from keras_attention.plotting._figures import new_figure, placed
from keras_attention.plotting._inputs import checked, index_set, string_list
from keras_attention.plotting._text import Text, drawable, font_families, shorten, width_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
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
    ax: Axes | None = None,
) -> Figure:
    """Draw which source tokens each target token attended to, as a heat map.

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
        marked: indices of the source tokens to draw bold and red, such as an answer, or a mask.
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
    where = "plot_attention"
    source = string_list(where, "source", source)
    if target is None:
        rows, shape, sizes = [""], "(source tokens,) where `target` is None", (len(source),)
    else:
        rows, shape = string_list(where, "target", target), "(target tokens, source tokens)"
        sizes = len(rows), len(source)
    weights = checked(where, "weights", weights, shape, sizes)
    marked = index_set(where, "marked", marked, len(source), "source tokens")
    check_int(where, "per_line", per_line)
    if largest is not None:
        check_number(where, "largest", largest, above=0)
    rows, columns = [shorten(x) for x in rows], [shorten(x) for x in source]
    # Lines of about equal length look best. The last is filled with empty cells.
    row_count, column_count = max(1, len(rows)), max(1, len(columns))
    per_line = math.ceil(column_count / math.ceil(column_count / per_line))
    starts = range(0, column_count, per_line)
    cells = np.full((row_count, per_line * len(starts)), np.nan)
    cells[: len(rows), : len(columns)] = weights
    cell = min(0.36, max(0.15, 10 / max(per_line, row_count)))
    size = min(10.0, max(6.5, 44 * cell))
    letter = size * 0.6 / 72
    upright = cell > letter * 1.2 and all(width_of(x) <= 2 for x in columns)
    beside = letter * max(map(width_of, rows), default=0) + 0.5
    above = letter * (2 if upright else max(map(width_of, columns), default=0)) + 0.35
    width = max(beside + cell * per_line + 1.0, 3.2)
    heading = textwrap.wrap(drawable(title or ""), max(20, int(width * 72 / 6.5)))
    height = len(starts) * (above + cell * row_count) + 0.2 * len(heading) + 0.3
    figure = new_figure((width, max(height, 1.6)), dpi=120, layout="compressed")
    figure.get_layout_engine().set(w_pad=0.08, h_pad=0.08)
    panels = figure.subplots(len(starts), squeeze=False)[:, 0]
    top = largest or max(weights.max(initial=0), 1e-30)
    fonts, image = font_families(), None
    for axes, first in zip(panels, starts, strict=True):
        shown = cells[:, first : first + per_line]
        labels = columns[first : first + per_line]
        image = axes.imshow(shown, cmap="Blues", vmin=0, vmax=top, aspect="equal")
        style = {"family": fonts, "size": size, "parse_math": False}
        axes.set_xticks(range(len(labels)), labels, rotation=0 if upright else 90, **style)
        axes.set_yticks(range(len(rows)), rows, **style)
        axes.xaxis.tick_top()
        axes.spines[:].set_visible(False)
        axes.set_xticks(np.arange(len(labels) + 1) - 0.5, minor=True)
        axes.set_yticks(np.arange(len(rows) + 1) - 0.5, minor=True)
        axes.grid(which="minor", color="#e4e4e4", linewidth=0.4)
        axes.tick_params(which="both", length=0)
        for index, label in enumerate(axes.get_xticklabels(), first):
            if index in marked:
                label.set(color="#b3261e", fontweight="bold")
    if heading:
        figure.suptitle("\n".join(heading), family=fonts, size=10, parse_math=False)
    bar = figure.colorbar(image, ax=list(panels), shrink=0.9, aspect=max(8, height / 0.15))
    bar.set_label("weight", size=8)
    bar.ax.tick_params(labelsize=7)
    bar.set_ticks(np.linspace(0, top, 2 if height < 2.5 else 5))
    bar.ax.yaxis.set_major_formatter("{x:.2g}")
    return placed(figure, ax)
