"""Draws the pictures of computations on the site: python docs/drawings.py [NAME ...].

Every drawing is a function that takes nothing and returns a `Drawing`. Lengths are in pixels, and y
grows downwards. The bars show real results of the equations.
"""

import itertools
import pathlib
import re
import sys

import matplotlib
import numpy as np
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Rectangle

FOLDER = pathlib.Path(__file__).parent / "images" / "drawings"
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
        with matplotlib.rc_context(STYLE):
            path = FOLDER / f"{name}.svg"
            self.figure.savefig(path, transparent=True, metadata={"Date": None})
        path.write_text(smaller(path.read_text("utf-8")), "utf-8")


class Step(Drawing):
    """What one step computes, from top to bottom, with a column for every memory step."""

    LEFT = 76  # the centre of the names
    FIRST, LAST = 165, 470  # where the columns are

    def __init__(self, columns=6):
        super().__init__(900)
        edges = np.linspace(self.FIRST, self.LAST, columns + 1)
        self.xs = (edges[:-1] + edges[1:]) / 2
        self.column = edges[1] - edges[0]
        self.middle = (self.FIRST + self.LAST) / 2
        self.y = 16  # where the next row begins
        self.rows = 0

    def name(self, y, text, kind, h=34):
        self.box(self.LEFT, y, text, kind, w=128, h=h, size=12)

    def space(self, arrows=True, kind="plain", length=16):
        """The gap above a row, with an arrow in every column."""
        if self.rows:
            for x in self.xs if arrows else ():
                self.arrow((x, self.y + 2), (x, self.y + length - 1), kind=kind, width=0.9)
            self.y += length if arrows else 8
        self.rows += 1

    def steps(self, name, kind, labels, arrows=False, h=34):
        """A vector for each memory step."""
        self.space(arrows)
        y = self.y + h / 2
        self.name(y, name, kind, h)
        self.cells(self.xs, y, labels, kind, w=self.column - 8)
        self.y += h

    def numbers(self, name, kind, values, arrows=True, h=52, largest=None, numbers=False):
        """A number for each memory step."""
        self.space(arrows)
        self.name(self.y + h / 2, name, kind, 40)
        tall = h - (20 if numbers else 4)
        wide = min(26, self.column * 0.66)
        self.bars(self.xs, self.y + h - 2, values, kind, tall, wide, largest, numbers)
        self.y += h

    def operation(self, text, left=None, kind="plain", arrows=True, h=30, size=12.5):
        """What joins the columns; `left` names a tensor that all columns share."""
        self.space(arrows)
        y = self.y + h / 2
        self.box(self.middle, y, text, kind, self.LAST - self.FIRST, h, size)
        if left:
            text, left_kind = left
            self.name(y, text, left_kind, max(h, 34))
            self.arrow((141, y), (self.FIRST - 1, y), kind=left_kind)
        self.y += h

    def result(self, text, kind="context", w=200, h=30):
        self.space(False)
        self.y += 8
        self.arrow((self.middle, self.y - 15), (self.middle, self.y - 1))
        self.box(self.middle, self.y + h / 2, text, kind, w, h)
        self.y += h

    def note(self, text):
        self.y += 8
        self.text(WIDTH / 2, self.y + 8, text, 11.5, LINE)
        self.y += 18

    def save(self, name):
        self.resize(self.y + 16)
        super().save(name)


def softmax(scores):
    powers = np.exp(scores - np.max(scores))
    return powers / powers.sum()


def letters(name, count):
    return [f"${name}_{{{j}}}$" for j in range(1, count + 1)]


def positive(scores):
    """Scores with the smallest at a little above zero, to be drawn as bars."""
    return scores - np.min(scores) + 0.3


SCORES = np.array([0.2, 1.1, 2.9, 1.5, 0.3, -0.2])
SUM = r"sum of the values by their weights"


def content(score, query, count=6):
    """The rows of a mechanism that compares a query with keys."""
    step = Step(count)
    step.steps(r"keys = values $h_j$", "key", letters("h", count))
    step.operation(score, (query, "query"), "score")
    step.numbers(r"scores $e_{ij}$", "score", positive(SCORES))
    step.operation("softmax over the memory")
    step.numbers(r"weights $a_{ij}$", "weights", softmax(SCORES), numbers=True)
    step.operation(SUM, (r"values $h_j$", "value"))
    step.result(r"context $c_i$")
    return step


def bahdanau():
    return content(
        r"$v \cdot \tanh(W s_{i-1} + U h_j)$",
        r"query $s_{i-1}$",
    )


def luong():
    step = Step(9)
    scores = np.array([0.2, 1.0, 0.4, 1.2, 2.2, 2.5, 1.0, 0.1, 0.8])
    inside = (np.arange(9) >= 3) & (np.arange(9) <= 7)
    weights = np.where(inside, np.exp(scores), 0)
    weights /= weights.sum()
    gaussian = weights * np.exp(-((np.arange(9) - 5.3) ** 2) / 2)
    step.steps(r"keys = values $h_j$", "key", letters("h", 9))
    step.operation("dot, general, concat or location", (r"query $s_i$", "query"), "score")
    step.numbers(r"scores $e_{ij}$", "score", positive(scores))
    step.operation("softmax inside the window\nlocal: $2D+1$ positions around $p_i$", h=44)
    step.numbers(r"weights $a_{ij}$", "weights", weights, largest=0.5)
    step.operation(r"local-p: $\times\ \exp(-(j - p_i)^2 / 2\sigma^2)$")
    step.numbers(r"weights read", "weights", gaussian, largest=0.5)
    step.operation(SUM, (r"values $h_j$", "value"))
    step.result(r"context $c_i$")
    step.result(r"with units: $\tanh(W_c\,[c_i; s_i])$", w=250)
    return step


def bidaf():
    drawing = Drawing(440)
    rng = np.random.default_rng(3)
    scores = rng.normal(0, 1, (6, 4))
    scores[2, 1] = scores[4, 3] = 3.2
    rows = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    best = softmax(scores.max(1))
    at = np.arange(6) * 22
    drawing.box(62, 34, "passage $h_t$", "key", 96)
    drawing.box(196, 34, "question $u_j$", "query", 108)
    drawing.text(240, 68, r"similarity $S_{tj} = w \cdot [h_t; u_j; h_t \circ u_j]$")
    shaded = (scores - scores.min()) / np.ptp(scores)
    for i, y in enumerate(at):
        drawing.box(62, 101 + y, f"$h_{i + 1}$", "key", 34, 19, 11)
    for j in range(4):
        drawing.text(130 + 22 * j + 11, 231, f"$u_{j + 1}$", 11)
    drawing.grid(130, 90, shaded, kind="score")
    drawing.arrow((224, 156), (286, 156))
    drawing.text(255, 144, "softmax", 12)
    drawing.text(255, 169, "of rows", 12)
    drawing.grid(292, 90, rows / rows.max(), kind="weights")
    drawing.text(336, 231, "weights $a_{tj}$", 11.5)
    for i, y in enumerate(at):
        width = 62 * best[i] / best.max()
        fill, stroke = COLOURS["weights"]
        drawing.axes.add_patch(
            Rectangle((398, 92 + y), width, 18, fc=fill, ec=stroke, lw=1, zorder=2)
        )
    drawing.axes.plot([398, 398], [90, 222], color=COLOURS["weights"][1], lw=1)
    drawing.text(428, 231, "weights $b_t$", 11.5)
    drawing.arrow((336, 244), (336, 266), (190, 266), (130, 284))
    drawing.arrow((428, 244), (428, 284), kind="plain")
    drawing.box(120, 302, r"$\tilde{u}_t$ = sum of $a_{tj} u_j$", "context", 170, 34)
    drawing.box(372, 302, r"$\tilde{h}$ = sum of $b_t h_t$", "context", 170, 34)
    drawing.text(120, 332, "what the question says\nabout this word", 11, LINE, va="top")
    drawing.text(372, 332, "the words that matter\nto the question", 11, LINE, va="top")
    drawing.arrow((200, 320), (222, 374))
    drawing.arrow((290, 320), (258, 374))
    drawing.box(
        240,
        394,
        r"$G_t = [h_t;\ \tilde{u}_t;\ h_t \circ \tilde{u}_t;\ h_t \circ \tilde{h}]$",
        w=300,
        h=38,
    )
    return drawing


def hierarchical():
    drawing = Drawing(470)
    sentences = [[0.6, 2.4, 0.2], [0.3, 0.4, 0.6], [2.2, 0.9, 0.1]]
    drawing.text(240, 22, "words of three sentences", 12, LINE)
    for s, scores in enumerate(sentences):
        centre = 84 + 156 * s
        xs = centre + np.array([-44, 0, 44])
        drawing.cells(xs, 48, [f"$x_{{{s + 1}{t}}}$" for t in (1, 2, 3)], "value", 38, 26, 11)
        drawing.arrow((centre, 64), (centre, 80))
        drawing.box(centre, 95, "word encoder", w=130, h=26, size=12)
        drawing.arrow((centre, 110), (centre, 124))
        drawing.bars(xs, 166, softmax(np.array(scores)), "weights", 38)
        drawing.arrow((centre, 170), (centre, 188))
        drawing.box(centre, 203, f"sentence $s_{s + 1}$", "context", 110, 28, 12)
        drawing.arrow((centre, 219), (centre, 236))
    drawing.box(240, 252, "sentence encoder", w=440, h=28, size=12)
    weights = softmax(np.array([1.2, 0.1, 2.3]))
    centres = 84 + 156 * np.arange(3)
    for x in centres:
        drawing.arrow((x, 268), (x, 284))
    drawing.bars(centres, 330, weights, "weights", 42, 34, numbers=False)
    for x in centres:
        drawing.arrow((x, 334), (240 + (x - 240) * 0.35, 370))
    drawing.box(240, 388, "vector of the document", "context", 200, 32)
    drawing.text(
        240,
        432,
        r"weights: softmax of $u \cdot \tanh(W h + b)$, with a learned"
        "\nquery $u$ for words and another for sentences",
        11.5,
        LINE,
    )
    return drawing


def memory():
    drawing = Drawing(488)
    xs = 170 + 62 * np.arange(5)
    drawing.text(84, 34, "story", 12, LINE)
    drawing.cells(xs, 34, [f"$x_{i}$" for i in range(1, 6)], "plain", 50, 26)
    drawing.box(62, 96, "question $q$", w=100)
    drawing.arrow((62, 112), (62, 138))
    drawing.text(72, 124, "$B$", 11, ha="left")
    hops = [np.array([0.2, 0.3, 0.2, 2.6, 0.1]), np.array([0.2, 2.7, 0.4, 0.2, 0.1])]
    for hop, scores in enumerate(hops):
        top = 66 + 160 * hop
        drawing.text(452, top + 10, f"hop {hop + 1}", 12, LINE, ha="right")
        drawing.cells(xs, top + 36, letters("m", 5), "key", 50, 26)
        drawing.box(62, top + 88, f"$u_{hop + 1}$", "query", 60)
        drawing.arrow((93, top + 88), (138, top + 88), kind="query")
        drawing.bars(xs, top + 108, softmax(scores), "weights", 42, 30, largest=0.9)
        drawing.text(452, top + 62, r"$p = \mathrm{softmax}(u \cdot m_i)$", 11, ha="right")
        drawing.cells(xs, top + 128, letters("c", 5), "value", 50, 26)
        drawing.arrow((142, top + 128), (112, top + 128), (112, top + 154), (74, top + 154))
        drawing.rounded(62, top + 154, 20, 20, "white", LINE, 10, 3)
        drawing.text(62, top + 154, "+", 14)
        drawing.arrow((62, top + 104), (62, top + 143), kind="query")
        drawing.text(122, top + 154, r"sum of $p_i c_i$", 11.5, ha="left")
        drawing.arrow((62, top + 165), (62, top + (186 if hop else 231)), kind="query")
    drawing.box(62, 429, "$u_3$", "query", 60)
    drawing.arrow((93, 429), (166, 429))
    drawing.box(250, 429, r"answer: softmax($W u_3$)", "context", 166)
    drawing.text(240, 465, "the second hop reads what the first one asks for", 11.5, LINE)
    return drawing


PAST = np.array([0.05, 0.75, 0.2, 0, 0, 0])


def location_sensitive():
    step = Step()
    filtered = np.convolve(PAST, [0.25, 0.5, 0.25], "same")
    step.numbers("state $z_{i-1}$:\nsum of past weights", "state", PAST, False)
    step.operation("convolution over positions")
    step.numbers("features $f_{ij}$\nof the location", "state", filtered, largest=0.75)
    step.steps(r"keys = values $h_j$", "key", letters("h", 6))
    step.operation(
        r"$v \cdot \tanh(W s_i + V h_j + U f_{ij} + b)$", (r"query $s_i$", "query"), "score"
    )
    scores = np.array([0.1, 0.5, 2.1, 0.9, 0.2, 0.1])
    step.operation("softmax over the memory")
    step.numbers(r"weights $a_{ij}$", "weights", softmax(scores), numbers=True)
    step.operation(SUM)
    step.result(r"context $c_i$")
    step.note("next state: $z_i = z_{i-1} + a_i$")
    return step


def coverage():
    step = Step()
    past = np.array([0.9, 0.85, 0.2, 0.05, 0, 0])
    content = np.array([0.3, 2.6, 0.8, 2.2, 0.4, 0.2])
    weights = softmax(content - 3 * past)
    step.numbers("coverage $z_{ij}$:\nsum of past weights", "state", past, False, largest=1)
    step.steps(r"keys = values $h_j$", "key", letters("h", 6))
    step.operation(
        r"$v \cdot \tanh(W s_i + V h_j + w\,z_{ij} + b)$", (r"query $s_i$", "query"), "score"
    )
    step.operation("softmax over the memory")
    step.numbers(r"weights $a_{ij}$", "weights", weights, numbers=True, largest=1)
    step.operation(r"$\min(a_{ij}, z_{ij})$", arrows=True)
    step.numbers("loss: what is\nread twice", "score", np.minimum(weights, past), largest=1)
    step.note("context: sum of $a_{ij} h_j$;  next state: $z_i + a_i$")
    return step


def monotonic_rows(p, last):
    reach, stop = np.zeros(len(p)), np.zeros(len(p))
    for j in range(len(p)):
        reach[j] = last[j] + ((1 - p[j - 1]) * reach[j - 1] if j else 0)
        stop[j] = p[j] * reach[j]
    return reach, stop


def monotonic():
    step = Step()
    last = np.array([0, 0.9, 0.1, 0, 0, 0])
    p = np.array([0.05, 0.1, 0.15, 0.9, 0.7, 0.3])
    reach, stop = monotonic_rows(p, last)
    step.numbers("state: the last\nweights $a_{i-1}$", "state", last, False, largest=1)
    step.steps(r"keys = values $h_j$", "key", letters("h", 6))
    step.operation("sigmoid of an additive score", (r"query $s_i$", "query"), "score")
    step.numbers("$p_{ij}$: stop at $j$,\nonce it is reached", "score", p, largest=1)
    step.operation("walk to the right; at each $j$ stop or move on")
    step.numbers("$t_{ij}$: reaches $j$", "plain", reach, largest=1)
    step.operation(r"$a_{ij} = p_{ij}\, t_{ij}$")
    step.numbers(r"weights $a_{ij}$", "weights", stop, numbers=True, largest=1)
    step.operation(SUM)
    step.result(r"context $c_i$")
    step.note("next state: $a_i$")
    return step


def forward():
    step = Step()
    last = np.array([0.05, 0.75, 0.2, 0, 0, 0])
    moved = last + np.roll(last, 1)
    y = softmax(np.array([0.3, 0.6, 1.9, 0.4, 2.2, 0.2]))
    weights = moved * y / (moved * y).sum()
    step.numbers("state: the last\nweights $a_{i-1}$", "state", last, False, largest=1)
    step.operation("stay, or move one step on")
    step.numbers("$m_{ij} = a_{i-1,j}$\n$+\\ a_{i-1,j-1}$", "state", moved, largest=1)
    step.operation("additive score, softmax", (r"query $s_i$", "query"), "score", arrows=False)
    step.numbers(r"$y_{ij}$: content", "score", y, largest=0.5)
    step.operation(r"$m_{ij}\, y_{ij}$, divided by their sum")
    step.numbers(r"weights $a_{ij}$", "weights", weights, numbers=True, largest=1)
    step.operation(SUM, (r"values $h_j$", "value"))
    step.result(r"context $c_i$")
    step.note("next state: $a_i$.  $h_5$ fits the query best, but is too far away.")
    return step


def gmm():
    step = Step(12)
    at = np.arange(12)

    def bump(centre, width, weight=1.0):
        return weight * np.exp(-((at - centre) ** 2) / (2 * width**2)) / width / np.sqrt(2 * np.pi)

    step.numbers("state: centres\n$\\mu_{i-1,k}$", "state", bump(3, 1.1, 0.6), False, largest=0.4)
    step.operation(
        r"$w, d, \sigma$ = network of the query;  $\mu_i = \mu_{i-1} + d$",
        (r"query $s_i$", "query"),
        size=12,
    )
    step.numbers("Gaussian 1", "score", bump(5, 1.1, 0.6), largest=0.4)
    step.numbers("Gaussian 2", "score", bump(6.5, 1.6, 0.4), False, largest=0.4)
    step.operation("sum over the Gaussians")
    weights = bump(5, 1.1, 0.6) + bump(6.5, 1.6, 0.4)
    step.numbers(r"weights $a_{ij}$", "weights", weights, largest=0.4)
    step.operation(SUM, (r"values $h_j$", "value"))
    step.result(r"context $c_i$")
    step.note("next state: $\\mu_i$.  No score compares the keys.")
    return step


def dynamic_convolution():
    step = Step(9)
    last = np.array([0.02, 0.1, 0.7, 0.18, 0, 0, 0, 0, 0])
    prior = np.convolve(last, [0.62, 0.2, 0.1, 0.05, 0.03])[:9]
    weights = softmax(np.log(np.maximum(prior, 1e-6)) + np.array([0, 0, 0.3, 2, 1, 0, 0, 0, 0]))
    query = r"query $s_i$", "query"
    step.numbers("state: the last\nweights $a_{i-1}$", "state", last, False, largest=0.75)
    step.operation("convolve with the prior, which moves forward")
    step.numbers("prior $p_{ij}$: moves\nof 0 to $L-1$ steps", "state", prior, largest=0.75)
    step.operation("static filters of $a_{i-1}$,\nand filters from the query", query, h=44)
    step.operation(r"$v \cdot \tanh(U f_{ij} + T g_{ij} + b)\ +\ \log p_{ij}$", kind="score")
    step.operation("softmax over the memory")
    step.numbers(r"weights $a_{ij}$", "weights", weights, largest=0.75)
    step.operation(SUM, (r"values $h_j$", "value"))
    step.result(r"context $c_i$")
    step.note("next state: $a_i$.  No score compares the keys.")
    return step


def hard():
    step = Step(4)
    words = np.array([[0.8, 0.1, 0.1], [0.1, 0.7, 0.2], [0.05, 0.1, 0.85], [0.3, 0.4, 0.3]])
    weights = np.array([0.07, 0.8, 0.1, 0.03])
    step.steps("memory $h_j$", "value", letters("h", 4))
    step.operation("what the model says if it reads $j$", (r"output $s_i$", "query"))
    step.space()
    step.name(step.y + 26, "$p(y\\,|\\,h_j, s_i)$\ntokens A B C", "score", 40)
    for x, row in zip(step.xs, words, strict=True):
        step.bars(x + np.array([-18, 0, 18]), step.y + 50, row, "score", 44, 15, 1)
    step.y += 52
    step.numbers(r"weights $a_{ij}$", "weights", weights, numbers=True, h=58)
    step.operation(r"sum over $j$ of $a_{ij}\ p(y\,|\,h_j, s_i)$")
    step.space(False)
    step.y += 12
    xs = step.middle + np.array([-40, 0, 40])
    step.arrow((step.middle, step.y - 18), (step.middle, step.y - 4))
    step.bars(xs, step.y + 58, weights @ words, "context", 44, 28, 1, True)
    step.cells(xs, step.y + 74, "ABC", "plain", 28, 22)
    step.name(step.y + 34, "$p(y)$", "context")
    step.y += 86
    return step


def pointer():
    drawing = Drawing(478)
    words = ["the", "sat", "[UNK]", "ocelot"]
    xs = 196 + 72 * np.arange(4)
    generate, copy, gate = np.array([0.3, 0.25, 0.45, 0]), np.array([0.1, 0.15, 0, 0.75]), 0.35
    drawing.box(76, 42, "output $s_i$", "query", 128)
    drawing.box(76, 92, "context $c_i$", "context", 128)
    drawing.arrow((141, 42), (200, 42), kind="query")
    drawing.arrow((141, 92), (172, 92), (172, 52), (200, 52), kind="context")
    drawing.box(325, 46, "two Dense layers, softmax", w=248)
    drawing.arrow((304, 62), (304, 78))
    drawing.bars(xs, 138, generate, "score", 44, 34, 0.8, True)
    drawing.text(462, 92, "$P_{vocabulary}$", 12, ha="right")
    drawing.box(76, 170, "input $x_i$", "plain", 128)
    drawing.arrow((141, 170), (198, 170))
    drawing.box(
        325, 170, r"gate $g = \sigma(w \cdot [s_i; c_i; x_i] + b)$" f" = {gate}", "state", 250
    )
    drawing.box(76, 222, "weights $a_{ij}$\nsource words", "weights", 128, 42)
    drawing.bars(xs, 266, copy, "weights", 44, 34, 0.8, True)
    drawing.arrow((141, 222), (168, 222), kind="weights")
    drawing.text(462, 216, "$P_{copy}$", 12, ha="right")
    drawing.arrow((304, 272), (304, 292))
    drawing.box(304, 308, r"$P = g\,P_{vocabulary} + (1 - g)\,P_{copy}$", w=290, h=32)
    drawing.arrow((304, 326), (304, 342))
    drawing.bars(xs, 408, gate * generate + (1 - gate) * copy, "context", 50, 34, 0.8, True)
    drawing.cells(xs, 428, words, "plain", 66, 26)
    drawing.box(76, 386, "$P(y)$", "context", 128)
    drawing.text(304, 456, "the vocabulary lacks “ocelot”; the source has it", 11.5, LINE)
    return drawing


def recurrent(drawing, y, xs, labels, kind, under=None, w=52):
    drawing.cells(xs, y, labels, kind, w, 30)
    for a, b in itertools.pairwise(xs):
        drawing.arrow((a + w / 2 + 1, y), (b - w / 2 - 2, y))
    if under:
        for x, word in zip(xs, under, strict=True):
            drawing.text(x, y - 44, word, 12)
            drawing.arrow((x, y - 34), (x, y - 16))


def encoder_decoder():
    drawing = Drawing(300)
    xs = 66 + 88 * np.arange(4)
    drawing.text(24, 24, "encoder", 12, LINE, ha="left")
    recurrent(drawing, 92, xs, letters("h", 4), "value", ["das", "Haus", "ist", "klein"])
    drawing.arrow((xs[-1] + 27, 92), (420, 92), (420, 150), (66, 150), (66, 184))
    drawing.text(240, 140, "one vector for the whole sentence", 12)
    drawing.text(472, 202, "decoder", 12, LINE, ha="right")
    recurrent(drawing, 202, xs, letters("s", 4), "query")
    for x, word in zip(xs, ["the", "house", "is", "small"], strict=True):
        drawing.arrow((x, 218), (x, 244))
        drawing.text(x, 256, word, 12)
    drawing.text(240, 282, "without attention", 11.5, LINE)
    return drawing


def with_attention():
    drawing = Drawing(372)
    xs = 66 + 88 * np.arange(4)
    weights = softmax(np.array([0.7, 3.0, 0.5, 0.3]))
    drawing.text(24, 24, "encoder", 12, LINE, ha="left")
    recurrent(drawing, 92, xs, letters("h", 4), "value", ["das", "Haus", "ist", "klein"])
    drawing.text(472, 92, "memory", 12, COLOURS["value"][1], ha="right")
    drawing.bars(xs, 166, weights, "weights", 40, 34, 1, True)
    drawing.text(472, 150, "weights", 12, COLOURS["weights"][1], ha="right")
    for x, weight in zip(xs, weights, strict=True):
        drawing.arrow((x, 170), (154 + (x - 154) * 0.25, 206), kind="value", width=0.7 + 3 * weight)
    drawing.box(154, 222, "context $c_2$", "context", 112)
    drawing.arrow((154, 238), (154, 260))
    drawing.text(472, 276, "decoder", 12, LINE, ha="right")
    recurrent(drawing, 276, xs, letters("s", 4), "query")
    drawing.arrow((66, 261), (66, 186), kind="query", dashed=True)
    drawing.text(57, 222, "query", 11, COLOURS["query"][1], ha="right")
    for x, word in zip(xs, ["the", "house", "is", "small"], strict=True):
        drawing.arrow((x, 292), (x, 316))
        drawing.text(x, 328, word, 12)
    drawing.text(240, 353, "with attention: each step reads its own context", 11.5, LINE)
    return drawing


def words():
    step = Step(4)
    scores = np.array([0.7, 3.0, 0.5, 0.3])
    step.steps("memory:\nencoder states", "value", ["das", "Haus", "ist", "klein"], h=40)
    step.steps("keys $k_j$", "key", letters("k", 4), True)
    step.operation(
        "compare the query with each key", ("query $q$:\nthe decoder", "query"), "score", h=36
    )
    step.numbers("scores $e_j$", "score", scores, numbers=True, h=60)
    step.operation("softmax: positive, sums to one")
    step.numbers("weights $a_j$", "weights", softmax(scores), numbers=True, h=60)
    step.steps("values $v_j$", "value", letters("v", 4), True)
    step.operation(r"$a_1 v_1 + a_2 v_2 + a_3 v_3 + a_4 v_4$")
    step.result("context $c$: mostly “Haus”", w=230)
    return step


def attention_before():
    drawing = Drawing(420)
    xs = 246 + 56 * np.arange(4)
    middle = 330
    drawing.box(70, 34, "memory", "value", 100)
    drawing.cells(xs, 34, letters("h", 4), "value", 46)
    drawing.arrow((middle, 50), (middle, 76))
    drawing.box(middle, 92, "score", "score", 220)
    drawing.arrow((middle, 108), (middle, 130))
    drawing.box(middle, 146, "softmax: weights $a_i$", "weights", 220)
    drawing.arrow((middle, 162), (middle, 184))
    drawing.box(middle, 200, "context $c_i$", "context", 220)
    drawing.arrow((middle, 216), (middle, 262))
    drawing.box(70, 92, "state $s_{i-1}$", "query", 100)
    drawing.arrow((121, 92), (219, 92), kind="query")
    drawing.text(170, 81, "query", 11.5, COLOURS["query"][1])
    drawing.arrow((70, 108), (70, 272), (219, 272), kind="query")
    drawing.box(110, 310, "input $x_i$", w=100)
    drawing.arrow((161, 310), (190, 310), (190, 290), (219, 290))
    drawing.box(middle, 281, "cell: GRU, LSTM, ...", w=220, h=36)
    drawing.text(middle + 8, 240, "an input of the cell", 11.5, LINE, ha="left")
    drawing.arrow((middle, 300), (middle, 328))
    drawing.box(middle, 344, "output $s_i$", "query", 220)
    drawing.text(240, 388, 'query="previous" (Bahdanau): attention before the cell', 12, LINE)
    return drawing


def attention_after():
    drawing = Drawing(456)
    xs = 270 + 52 * np.arange(4)
    middle = 348
    drawing.box(58, 34, "input $x_i$", w=92)
    drawing.box(166, 34, r"fed $\tilde{h}_{i-1}$", "context", 92, dashed=True)
    drawing.cells(xs, 34, letters("h", 4), "value", 44)
    drawing.text(348, 60, "memory", 11.5, COLOURS["value"][1])
    drawing.arrow((70, 50), (96, 100))
    drawing.arrow((160, 50), (128, 100), dashed=True, kind="context")
    drawing.box(112, 118, "cell", w=140, h=34)
    drawing.box(40, 70, "$s_{i-1}$", "query", 50, 24, 12)
    drawing.arrow((40, 83), (56, 100), kind="query")
    drawing.arrow((112, 136), (112, 158))
    drawing.box(112, 174, "output $s_i$", "query", 140)
    drawing.arrow((183, 174), (252, 174), kind="query")
    drawing.text(217, 163, "query", 11.5, COLOURS["query"][1])
    drawing.arrow((middle, 70), (middle, 157))
    drawing.box(middle, 174, "score", "score", 190)
    drawing.arrow((middle, 190), (middle, 212))
    drawing.box(middle, 228, "softmax: weights $a_i$", "weights", 190)
    drawing.arrow((middle, 244), (middle, 266))
    drawing.box(middle, 282, "context $c_i$", "context", 190)
    drawing.arrow((middle, 298), (middle, 334))
    drawing.arrow((112, 190), (112, 352), (206, 352), kind="query")
    drawing.box(318, 352, r"$\tilde{h}_i = \tanh(W_c\,[c_i; s_i])$", "context", 222, 34)
    drawing.arrow((430, 352), (464, 352), dashed=True, kind="context")
    drawing.text(466, 382, "input feeding: to the next step", 11.5, LINE, ha="right")
    drawing.text(240, 424, 'query="current" (Luong): attention after the cell', 12, LINE)
    return drawing


def residual_cells():
    drawing = Drawing(190)
    y = 96
    drawing.text(26, y, "$x$", 13)
    for n, x in enumerate((96, 236, 376)):
        drawing.box(x, y, f"cell {n + 1}", w=66, h=34)
        drawing.arrow((x - 56, y), (x - 34, y))
        drawing.text(x + 62, y, "+" if n else "", 15)
        drawing.arrow((x, 48), (x, 78), kind="state")
        drawing.arrow((x, 114), (x, 146), kind="state")
        drawing.text(x, 38, "state", 11.5, COLOURS["state"][1])
        drawing.text(x, 158, "next state", 11.5, COLOURS["state"][1])
        if n:
            drawing.rounded(x + 62, y, 20, 20, "white", LINE, 10, 3)
            drawing.arrow((x + 34, y), (x + 51, y))
            drawing.arrow((x - 46, y), (x - 46, 66), (x + 62, 66), (x + 62, 85), kind="context")
    drawing.arrow((130, y), (180, y), head=False)
    drawing.arrow((308, y), (322, y), head=False)
    drawing.arrow((448, y), (472, y))
    return drawing


def masks():
    drawing = Drawing(388)
    rng = np.random.default_rng(1)
    scores = rng.normal(0, 1, (4, 5))
    value = np.ones((4, 5), bool) & (np.arange(5) < 3)
    query = np.ones((4, 5), bool) & (np.arange(4) < 3)[:, None]
    causal = np.arange(5) <= np.arange(4)[:, None]
    pair = np.ones((4, 5), bool)
    pair[1], pair[0, 1:3], pair[3, 0] = False, False, False
    panels = [
        ("value_mask", "padding of the memory:\nnever read", value, value),
        ("query_mask", "padding of the query:\nthe output is zero", query, query),
        ("use_causal_mask", "step i reads\nmemory steps 0 to i", causal, causal),
        ("attention_mask", "single pairs; a row with\nnothing valid is zero", pair, pair),
    ]
    for n, (name, text, kept, output) in enumerate(panels):
        x, y = 56 + 228 * (n % 2), 48 + 190 * (n // 2)
        powers = np.where(kept, np.exp(scores), 0)
        weights = powers / np.maximum(powers.sum(1, keepdims=True), 1e-9)
        drawing.text(x + 55, y - 24, name, 12.5, weight="bold")
        drawing.text(x - 10, y + 44, "query", 11, COLOURS["query"][1], rotation=90)
        drawing.text(x + 55, y - 8, "memory", 11, COLOURS["value"][1])
        drawing.grid(x, y, weights / max(weights.max(), 1e-9), 22, kept=kept)
        for i in range(4):
            zero = not output[i].any()
            drawing.arrow((x + 112, y + 11 + 22 * i), (x + 126, y + 11 + 22 * i), width=0.8)
            drawing.box(
                x + 144,
                y + 11 + 22 * i,
                "0" if zero else "$c$",
                "plain" if zero else "context",
                32,
                17,
                11,
            )
        drawing.text(x + 76, y + 110, text, 11, LINE)
    return drawing


def state():
    drawing = Drawing(316)
    drawing.box(76, 46, "initial_state\n(memory)", "state", 116, 42, 12)
    centres = 176, 368
    for n, x in enumerate(centres):
        i = n + 1
        drawing.box(x + 14, 148, f"attention, step {i}", w=140, h=40)
        drawing.box(x + 14, 76, f"query $q_{i}$", "query", 84, 28, 12)
        drawing.arrow((x + 14, 91), (x + 14, 127), kind="query")
        drawing.arrow((x - 24, 169), (x - 24, 198), kind="weights")
        drawing.arrow((x + 52, 169), (x + 52, 198), kind="context")
        drawing.box(x - 28, 213, f"weights $a_{i}$", "weights", 82, 28, 11.5)
        drawing.box(x + 56, 213, f"output $c_{i}$", "context", 76, 28, 11.5)
    drawing.arrow((76, 68), (76, 148), (119, 148), kind="state")
    drawing.arrow((261, 148), (311, 148), kind="state")
    drawing.text(286, 136, "$z_1$", 12)
    drawing.text(100, 136, "$z_0$", 12)
    drawing.arrow((453, 148), (474, 148), kind="state")
    drawing.text(463, 136, "$z_2$", 12)
    drawing.text(240, 248, r"$z_i$ = next_state($z_{i-1}$, $a_i$)", 12.5)
    drawing.text(
        240,
        284,
        "In a decoder z travels with the states of the cells:\nin training, step and searches.",
        12,
        LINE,
    )
    return drawing


def steps():
    drawing = Drawing(430)
    xs = 190 + 58 * np.arange(5)
    weights = softmax(np.array([0.2, 0.3, 2.6, 1.2, 0.1]))
    rows = [(40, "ids"), (104, "embed"), (178, "encode"), (268, "attend"), (372, "predict")]
    for y, name in rows[1:]:
        drawing.text(20, y - 8, name, 14, ha="left", weight="bold")
    for y, text in zip(
        (110, 184, 274, 378),
        ("ids to vectors", "vectors in context", "one vector", "the answer"),
        strict=True,
    ):
        drawing.text(20, y + 4, text, 11.5, LINE, ha="left")
    drawing.cells(xs, 40, ["the", "plot", "never", "works", "."], "plain", 52, 28)
    drawing.cells(xs, 104, [""] * 5, "key", 40, 30)
    recurrent(drawing, 178, xs, letters("h", 5), "value", w=38)
    for x in xs:
        drawing.arrow((x, 56), (x, 86))
        drawing.arrow((x, 121), (x, 161))
    drawing.bars(xs, 252, weights, "weights", 40, 30, numbers=False)
    for x, weight in zip(xs, weights, strict=True):
        drawing.arrow((x, 256), (306 + (x - 306) * 0.25, 286), kind="value", width=0.7 + 3 * weight)
    drawing.box(306, 302, "context $c$", "context", 120)
    drawing.arrow((306, 318), (306, 354))
    drawing.box(306, 372, "Dense, softmax: “negative”", w=210, h=34)
    drawing.text(
        240, 412, "for a sequence: one query, one context, one prediction a step", 11.5, LINE
    )
    return drawing


def heat_map(maps, cell=None):
    """Weights of layers. The shade is their square root, so that small ones can be seen."""
    each = (WIDTH - 40) / len(maps)
    rows, columns = np.shape(maps[0][1])
    cell = cell or min((each - 24) / columns, 16)
    drawing = Drawing(int(rows * cell) + 66)
    for n, (title, weights) in enumerate(maps):
        x = 20 + each * n + (each - columns * cell) / 2 + 4
        drawing.text(x + columns * cell / 2, 22, title, 12)
        drawing.grid(x, 38, np.sqrt(weights / max(weights.max(), 1e-9)), cell)
        drawing.text(x - 10, 38 + rows * cell / 2, "query", 10.5, LINE, rotation=90)
        drawing.text(x + columns * cell / 2, 48 + rows * cell, "memory", 10.5, LINE)
    return drawing


def weights_of(layer, queries=12, memory=16, features=8, scale=1.0, seed=3, valid=None):
    """The weights of a layer that has not been trained."""
    import keras

    keras.utils.set_random_seed(seed)
    rng = np.random.default_rng(seed)
    query = rng.normal(0, scale, (1, queries, features)).astype("float32")
    value = rng.normal(0, scale, (1, memory, features)).astype("float32")
    _, weights = layer(query, value, return_attention_scores=True)
    return keras.ops.convert_to_numpy(weights)[0]


def luong_windows():
    from keras_attention import LuongAttention

    return heat_map(
        [
            ("global", weights_of(LuongAttention("dot"), 12, 12, scale=0.6)),
            ("local-m, D = 2", weights_of(LuongAttention("dot", "local-m", 2), 12, 12, scale=0.6)),
            ("local-p, D = 2", weights_of(LuongAttention("dot", "local-p", 2), 12, 12, scale=0.6)),
        ]
    )


def monotonic_weights():
    from keras_attention import MonotonicAttention

    return heat_map(
        [
            ("initial_offset=1", weights_of(MonotonicAttention(8, initial_offset=1.0))),
            ("initial_offset=-1", weights_of(MonotonicAttention(8, initial_offset=-1.0))),
        ]
    )


def forward_weights():
    from keras_attention import ForwardAttention

    return heat_map([("a new layer", weights_of(ForwardAttention(8), scale=0.3))])


def gmm_weights():
    from keras_attention import GMMAttention

    def layer(step):
        return GMMAttention(8, initial_step=step, initial_width=1.0)

    return heat_map(
        [("initial_step=0.5", weights_of(layer(0.5))), ("initial_step=1.5", weights_of(layer(1.5)))]
    )


DRAWINGS = {
    "encoder-decoder": encoder_decoder,
    "with-attention": with_attention,
    "words": words,
    "attention-before": attention_before,
    "attention-after": attention_after,
    "residual-cells": residual_cells,
    "masks": masks,
    "state": state,
    "steps": steps,
    "bahdanau": bahdanau,
    "luong": luong,
    "bidaf": bidaf,
    "hierarchical": hierarchical,
    "memory": memory,
    "location-sensitive": location_sensitive,
    "coverage": coverage,
    "monotonic": monotonic,
    "forward": forward,
    "gmm": gmm,
    "dynamic-convolution": dynamic_convolution,
    "hard": hard,
    "pointer": pointer,
    "luong-windows": luong_windows,
    "monotonic-weights": monotonic_weights,
    "forward-weights": forward_weights,
    "gmm-weights": gmm_weights,
}


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    with matplotlib.rc_context(STYLE):
        for name in sys.argv[1:] or DRAWINGS:
            DRAWINGS[name]().save(name)
