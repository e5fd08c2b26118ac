"""Figures that draw without a window, and that notebooks display."""

from __future__ import annotations

import functools
import importlib
import io
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_attention._spec import raise_value_error

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SHARP = 200  # dots per inch of a picture inside axes


def matplotlib_module(name: str) -> ModuleType:
    """Import a module of matplotlib."""
    try:
        return importlib.import_module(f"matplotlib.{name}")
    except ImportError:
        expected = 'Pictures need matplotlib: pip install "keras-attention-layers[plot]"'
        raise ImportError(expected) from None


def new_figure(size: tuple[float, float], **options: object) -> Any:
    """Make a figure of a size in inches, without a window."""
    figure = _figure_class()(size, **options)
    matplotlib_module("backends.backend_agg").FigureCanvasAgg(figure)
    return figure


@functools.cache
def _figure_class():
    class DisplayedFigure(matplotlib_module("figure").Figure):
        """A figure that a notebook displays, although no window belongs to it."""

        def _repr_png_(self):
            picture = io.BytesIO()
            self.savefig(picture, format="png")
            return picture.getvalue()

    return DisplayedFigure


def pixels(figure: Any) -> np.ndarray:
    """Return RGBA bytes, `(height, width, 4)`."""
    figure.canvas.draw()
    return np.asarray(figure.canvas.buffer_rgba())


def placed(figure: Figure, ax: Axes | None) -> Any:
    """Return the figure, or the figure of `ax` with this one drawn in it."""
    if ax is None:
        return figure
    if not hasattr(ax, "imshow"):
        raise_value_error("plotting", "`ax` must be the axes of a matplotlib figure, or None", ax)
    figure.set_dpi(SHARP)
    ax.imshow(pixels(figure))
    ax.set_axis_off()
    return ax.figure
