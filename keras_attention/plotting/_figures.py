"""Figures that draw without a window, and that notebooks display."""

import functools
import io
from typing import Any

import numpy as np

SHARP = 200  # dots per inch of a picture inside axes


@functools.cache
def matplotlib_classes() -> tuple[Any, Any]:
    """`(Figure, FigureCanvasAgg)`, which draw without a window."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(
            'Pictures need matplotlib: pip install "keras-attention-layers[plot]"'
        ) from error

    class DisplayedFigure(Figure):
        """A figure that a notebook displays, although no window belongs to it."""

        def _repr_png_(self):
            picture = io.BytesIO()
            self.savefig(picture, format="png")
            return picture.getvalue()

    return DisplayedFigure, FigureCanvasAgg


def placed(figure: Any, ax: Any) -> Any:
    """The figure itself, or the figure of `ax` with this one as a picture in it."""
    if ax is None:
        return figure
    if not hasattr(ax, "imshow"):
        raise ValueError(f"ax: the axes of a matplotlib figure, or None; received {ax!r:.80}.")
    figure.set_dpi(SHARP)
    figure.canvas.draw()
    ax.imshow(np.asarray(figure.canvas.buffer_rgba()))
    ax.set_axis_off()
    return ax.figure
