"""Pictures of the hops of a memory network."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from keras_attention._spec import raise_value_error
from keras_attention._typing import Tensor
from keras_attention.plotting._figures import new_figure, placed
from keras_attention.plotting._inputs import checked, index_set, string_list
from keras_attention.plotting._text import Text, font_families, shorten, visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["Hops", "plot_hops"]

# The most memories to draw. If there are more, those with the largest weights are drawn.
MOST_SENTENCES = 12
SENTENCE_ROOM = 64
# The left edge and the width of the weights, in widths of a letter.
LEFT, CELL = 46, 6
BLUE = (0.11, 0.33, 0.64)  # of a weight of one


class Hops(NamedTuple):
    """A question to a memory network, with the weights of every hop.

    Attributes:
        memories: N strings.
        weights: `(K, N)` for K hops, as `MemoryNetwork` returns them for one story. Weights after
            the last memory belong to padding. Weights of a linear start may be negative.
        question: the question.
        answer: the answer of the network.
        expected: the right answer, or None if it is not known.
        facts: indices of the memories that hold the answer, or a mask of them; drawn bold.

    Example:
        >>> from keras_attention.plotting import Hops, plot_hops
        >>> story = ["Mary took the milk.", "John sat down.", "Mary went out."]
        >>> weights = [[0.8, 0.1, 0.1], [0.1, 0.1, 0.8]]
        >>> sample = Hops(story, weights, "Where is the milk?", "garden", expected="out")
        >>> [text.get_text() for text in plot_hops(sample).axes[0].texts][:2]
        ['garden (right: out)', 'Where is the milk?']
    """

    memories: Sequence[Text]
    weights: Tensor | Sequence[Sequence[float]]
    question: Text = ""
    answer: Text = ""
    expected: Text | None = None
    facts: Collection[int] = ()


def plot_hops(*samples: Hops, ax: Axes | None = None) -> Figure:
    """Draw the memories of every sample, with the weight that each hop gave them.

    Long memories are cut. If there are many, only those with the largest weights are drawn.

    Args:
        samples: `Hops`, drawn in two columns.
        ax: matplotlib axes to draw into, as a picture; None for a figure of its own.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        ValueError: there is no sample; the sizes of a sample do not agree; a weight is NaN or
            infinite; `facts` holds an index that no memory has.
        ImportError: matplotlib is missing.

    Example:
        >>> from keras_attention.plotting import Hops, plot_hops
        >>> story = ["Mary took the milk.", "John sat down.", "Mary went out."]
        >>> weights = [[0.8, 0.1, 0.1], [0.1, 0.1, 0.8]]
        >>> figure = plot_hops(Hops(story, weights, "Where is the milk?", "out", facts=(0, 2)))
        >>> [text.get_text() for text in figure.axes[0].texts][1:4]
        ['Where is the milk?', 'hop 1', 'hop 2']
    """
    if not samples or not all(isinstance(sample, Hops) for sample in samples):
        expected = "expected one or more `Hops(memories, weights, ...)`"
        remedy = "Write plot_hops(*samples) for a list of them."
        raise_value_error("plot_hops", expected, samples, remedy)
    entries = [_checked(sample) for sample in samples]
    rows = [_most_read(sample) for sample in entries]
    columns = min(2, len(entries))
    # Every sample has a title, a line for the numbers of the hops, and its memories.
    pairs = [rows[n : n + columns] for n in range(0, len(rows), columns)]
    heights = [max(map(len, pair)) + 3.5 for pair in pairs]
    hops = max(3, *(len(sample.weights) for sample in entries))
    wide = 0.1 * (LEFT + CELL * hops + 2)
    figure = new_figure((wide * columns, 0.27 * sum(heights)), dpi=120)
    edges = {"left": 0, "right": 1, "top": 1, "bottom": 0, "hspace": 0, "wspace": 0.06}
    options = {"height_ratios": heights, "gridspec_kw": edges, "squeeze": False}
    grid = figure.subplots(len(heights), columns, **options).ravel()
    for axes in grid:
        axes.axis("off")
    for number, sample in enumerate(entries):
        _draw_hops(grid[number], sample, rows[number], heights[number // columns])
    return placed(figure, ax)


def _checked(sample):
    where, memories = "plot_hops", string_list("plot_hops", "memories", sample.memories, "strings")
    sizes, allowed = (None, len(memories)), {"padded": True, "negative": True}
    return sample._replace(
        memories=memories,
        weights=checked(where, "weights", sample.weights, "(hops, memories)", sizes, **allowed),
        answer=visible(sample.answer),
        expected=None if sample.expected is None else visible(sample.expected),
        facts=index_set(where, "facts", sample.facts, len(memories), "memories"),
    )


def _most_read(sample):
    """Return the indices of the memories to draw, in order; None stands for those left out."""
    most = np.argsort(-sample.weights.max(axis=0), kind="stable")[:MOST_SENTENCES]
    rows = []
    for number in range(len(sample.memories)):
        if number in most:
            rows.append(number)
        elif rows[-1:] != [None]:
            rows.append(None)
    return rows


def _draw_hops(axes, sample, rows, height):
    end = LEFT + CELL * len(sample.weights)
    axes.set_xlim(-1, end + 1)
    axes.set_ylim(height, 0)

    def write(x, y, text, **options):
        # A dollar sign does not begin a formula.
        options = {"size": 8.5, "va": "center", **options}
        return axes.text(x, y, text, family=font_families(), parse_math=False, **options)

    def write_before(end, x, y, text, begin="", **options):
        """Write as much of the text as fits before `end`."""
        for room in range(SENTENCE_ROOM, 0, -4):
            written = write(x, y, begin + shorten(text, room), **options)
            if axes.transData.inverted().transform(written.get_window_extent())[1, 0] <= end:
                return
            written.remove()

    right = sample.expected is None or sample.answer == sample.expected
    verdict = sample.answer if right else f"{sample.answer} (right: {sample.expected})"
    verdict = shorten(verdict, 30)
    colour = "#1a1a1a" if sample.expected is None else "#1b6e3c" if right else "#b3261e"
    answer = write(end, 0.9, verdict, weight="bold", size=9, color=colour, ha="right")
    begin = axes.transData.inverted().transform(answer.get_window_extent())[0, 0]
    write_before(begin - 1, 0, 0.9, sample.question, weight="bold", size=9)
    for hop in range(len(sample.weights)):
        write(LEFT + CELL * (hop + 0.5), 1.9, f"hop {hop + 1}", size=7.5, ha="center")
    for line, number in enumerate(rows):
        y = 2.5 + line
        if number is None:
            write(0, y + 0.5, "…", color="#666666")
            continue
        fact = number in sample.facts
        style = {"begin": "• ", "weight": "bold"} if fact else {"begin": "   "}
        write_before(LEFT - 0.5, 0, y + 0.5, sample.memories[number], **style)
        # The leader line from a memory to its weights.
        axes.plot([0, LEFT], [y + 1, y + 1], color="#eeeeee", linewidth=0.5)
        for hop, weight in enumerate(sample.weights[:, number]):
            x, depth = LEFT + CELL * hop, min(max(weight, 0.0), 1.0)
            xs, ys = [x, x + CELL, x + CELL, x], [y, y, y + 1, y + 1]
            axes.fill(xs, ys, facecolor=(*BLUE, depth), edgecolor="#cccccc", linewidth=0.5)
            if abs(weight) >= 0.005:
                ink = "white" if depth > 0.5 else "black"
                write(x + CELL / 2, y + 0.5, f"{weight:.2f}", size=7, ha="center", color=ink)
