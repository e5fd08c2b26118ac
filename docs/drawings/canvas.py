"""What all drawings are made of: a panel with boxes, arrows, memory steps and bars.

Lengths are in pixels, and y grows downwards.
"""

import itertools
import pathlib
import re

import matplotlib
import numpy as np
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Rectangle

FOLDER = pathlib.Path(__file__).parents[1] / "images" / "drawings"
WIDTH = 480
TEXT = "#1c2430"
LINE = "#5b6675"
# The fill and the stroke of each kind of tensor, the same in all drawings.
COLOURS = {
    "query": ("#d9e8fb", "#2468b0"),
    "key": ("#fde5cc", "#c06a10"),
    "value": ("#d8f0d8", "#2e8540"),
    "score": ("#e8def7", "#7448b3"),
    "weights": ("#f9d6d9", "#b8303f"),
    "context": ("#cdeef0", "#12808a"),
    "state": ("#fbf0bd", "#9a7b00"),
    "plain": ("#eef0f3", LINE),
}
STYLE = {
    "svg.fonttype": "path",
    "svg.hashsalt": "keras_attention",
    "font.family": "DejaVu Sans",
    "mathtext.fontset": "dejavusans",
}


def draw(name, make):
    """Makes a drawing, and writes it to the folder of drawings."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with matplotlib.rc_context(STYLE):
        make().save(name)


def smaller(svg):
    """Leaves out what no browser needs, and rounds coordinates to a hundredth of a point."""
    svg = re.sub(r"<metadata>.*</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r' clip-path="[^"]*"', "", svg)
    svg = re.sub(r"([1-9]\d*\.\d\d)\d+", r"\1", svg)
    return re.sub(r"\s+", " ", svg).replace("> <", ">\n<").strip() + "\n"


class Drawing:
    """A white panel with boxes, arrows, memory steps and bars."""

    def __init__(self, height=400):
        self.figure = Figure(figsize=(WIDTH / 96, height / 96))
        self.axes = self.figure.add_axes((0, 0, 1, 1))
        self.axes.set_axis_off()
        self.resize(height)

    def resize(self, height):
        self.height = height
        self.figure.set_size_inches(WIDTH / 96, height / 96)
        self.axes.set_xlim(0, WIDTH)
        self.axes.set_ylim(height, 0)

    def text(self, x, y, text, size=13, colour=TEXT, **how):
        how = {"ha": "center", "va": "center", "linespacing": 1.25} | how
        self.axes.text(x, y, text, fontsize=max(size, 12) * 0.75, color=colour, zorder=4, **how)

    def rounded(self, x, y, w, h, fill, stroke, radius=6, zorder=2, dashed=False):
        self.axes.add_patch(
            FancyBboxPatch(
                (x - w / 2, y - h / 2),
                w,
                h,
                boxstyle=f"round,pad=0,rounding_size={radius}",
                facecolor=fill,
                edgecolor=stroke,
                linewidth=1.1,
                linestyle="--" if dashed else "-",
                zorder=zorder,
            )
        )

    def box(self, x, y, text, kind="plain", w=110, h=30, size=13, dashed=False):
        """A tensor or an operation, with its centre at (x, y)."""
        self.rounded(x, y, w, h, *COLOURS[kind], dashed=dashed)
        self.text(x, y, text, size)

    def arrow(self, *points, kind="plain", dashed=False, head=True, width=1.2):
        """A line through the points, with a head at the last one."""
        colour = COLOURS[kind][1]
        style = "--" if dashed else "-"
        for start, end in itertools.pairwise(points[:-1]):
            x, y = zip(start, end, strict=True)
            self.axes.plot(x, y, style, color=colour, lw=width, zorder=1, solid_capstyle="round")
        self.axes.add_patch(
            FancyArrowPatch(
                points[-2],
                points[-1],
                arrowstyle="-|>" if head else "-",
                mutation_scale=8,
                color=colour,
                linewidth=width,
                linestyle=style,
                shrinkA=0,
                shrinkB=0,
                zorder=1,
            )
        )

    def cells(self, xs, y, labels, kind, w=36, h=28, size=12):
        """The memory steps: a box for each."""
        for x, label in zip(xs, labels, strict=True):
            self.box(x, y, label, kind, w, h, size)

    def bars(self, xs, y, values, kind, h=40, w=26, largest=None, numbers=False):
        """Numbers of the memory steps, as bars that stand on y."""
        fill, stroke = COLOURS[kind]
        largest = largest or max(np.max(np.abs(values)), 1e-9)
        space = min((xs[1] - xs[0]) / 2, 40)
        self.axes.plot([xs[0] - space, xs[-1] + space], [y, y], color=stroke, lw=1, zorder=3)
        for x, value in zip(xs, values, strict=True):
            top = h * value / largest
            if top > 0.3:
                self.axes.add_patch(
                    Rectangle((x - w / 2, y - top), w, top, fc=fill, ec=stroke, lw=1, zorder=2)
                )
            if numbers:
                self.text(x, y - top - 8, f"{value:.2f}".removeprefix("0"), 10.5)

    def grid(self, x, y, values, cell=22, kind="weights", kept=None):
        """A matrix of weights from its upper left corner; grey where `kept` is False."""
        fill, stroke = COLOURS[kind]
        shades = LinearSegmentedColormap.from_list(kind, ["#ffffff", fill, stroke])
        for (i, j), value in np.ndenumerate(np.asarray(values, float)):
            there = kept is None or kept[i, j]
            if there and value < 0.02:
                continue  # white
            self.axes.add_patch(
                Rectangle(
                    (x + j * cell, y + i * cell),
                    cell,
                    cell,
                    fc=shades(value) if there else "#d3d7dd",
                    ec="#ffffff" if there else "#f3f4f6",
                    lw=1,
                    zorder=2,
                )
            )
        rows, columns = np.shape(values)
        self.axes.add_patch(
            Rectangle((x, y), columns * cell, rows * cell, fc="none", ec=stroke, lw=1, zorder=3)
        )

    def save(self, name):
        self.rounded(
            WIDTH / 2, self.height / 2, WIDTH - 4, self.height - 4, "white", "#c3c9d2", 9, 0
        )
        path = FOLDER / f"{name}.svg"
        self.figure.savefig(path, transparent=True, metadata={"Date": None})
        path.write_text(smaller(path.read_text("utf-8")), "utf-8")


def softmax(scores):
    powers = np.exp(scores - np.max(scores))
    return powers / powers.sum()


def letters(name, count):
    return [f"${name}_{{{j}}}$" for j in range(1, count + 1)]
