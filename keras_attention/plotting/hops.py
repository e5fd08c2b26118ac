"""Pictures of the hops of a memory network."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from keras_attention._typing import Tensor
from keras_attention.plotting._figures import matplotlib_classes, placed
from keras_attention.plotting._inputs import checked, string_list
from keras_attention.plotting._text import (
    Text,
    font_families,
    shorten,
    visible,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Hops", "plot_hops"]

# The most memories to draw. If there are more, those with the largest weights are drawn.
MOST_SENTENCES = 12
SENTENCE_ROOM = 64
# The left edge and the width of the weights, in widths of a letter.
LEFT, CELL = 46, 6


class Hops(NamedTuple):
    """A question to a memory network, with the weights of every hop.

    Attributes:
        memories: N strings.
        weights: `(K, N)` for K hops, as `MemoryNetwork` returns them for one story. Weights after
            the last memory belong to padding. Weights of a linear start may be negative.
        question: the question.
        answer: the answer of the network.
        expected: the right answer, or None if it is not known.
        facts: indices of the memories that hold the answer, if they are known; drawn bold.

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


def plot_hops(*samples: Hops, ax: Any = None) -> Figure:
    """Draws the memories of every sample, with the weight that each hop gave them.

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
    if not samples:
        raise ValueError("plot_hops needs at least one `Hops`; received none.")
    wrong = [sample for sample in samples if not isinstance(sample, Hops)]
    if wrong:
        raise ValueError(
            f"plot_hops draws `Hops(memories, weights, ...)`; received {type(wrong[0]).__name__}."
            + (" Write plot_hops(*samples)." if isinstance(wrong[0], list) else "")
        )
    samples = [
        s._replace(
            memories=string_list("memories", s.memories, "strings", "one for each memory"),
            weights=checked(s.weights, negative=True),
            answer=visible(s.answer),
            expected=None if s.expected is None else visible(s.expected),
        )
        for s in samples
    ]
    for sample in samples:
        count = len(sample.memories)
        shape = sample.weights.shape
        if len(shape) != 2 or shape[0] < 1 or shape[1] < count:
            raise ValueError(
                f"weights must be (hops, memories), here (K, {count}) or wider, of one hop at "
                f"least; received {shape}."
            )
        if not isinstance(sample.facts, Iterable):
            raise ValueError(f"facts: a list of numbers of memories; received {sample.facts!r}.")
        outside = [n for n in sample.facts if n not in range(count)]
        if outside:
            raise ValueError(f"facts: {outside} are no numbers of the {count} memories.")
    figure_class, canvas = matplotlib_classes()
    columns = min(2, len(samples))
    grid = [samples[n : n + columns] for n in range(0, len(samples), columns)]
    rows = [[_most_read(sample) for sample in line] for line in grid]
    # Every sample has a title, a line for the numbers of the hops, and its memories.
    heights = [max(len(r) for r in line) + 3.5 for line in rows]
    hops = max(len(sample.weights) for sample in samples)
    wide = 0.1 * (LEFT + CELL * max(hops, 3) + 2)
    figure = figure_class(figsize=(wide * columns, 0.27 * sum(heights)), dpi=120)
    canvas(figure)
    outer = figure.add_gridspec(
        len(grid), columns, height_ratios=heights, hspace=0, wspace=0.06, left=0, right=1
    )
    outer.update(top=1, bottom=0)
    for y, line in enumerate(grid):
        for x, sample in enumerate(line):
            _draw_hops(figure.add_subplot(outer[y, x]), sample, rows[y][x], heights[y])
    return placed(figure, ax)


def _most_read(sample):
    """The indices of the memories to draw, in order; None stands for those left out."""
    count = len(sample.memories)
    most = np.argsort(-sample.weights[:, :count].max(axis=0), kind="stable")[:MOST_SENTENCES]
    rows, last = [], -1
    for number in sorted(int(n) for n in most):
        if number > last + 1:
            rows.append(None)
        rows.append(number)
        last = number
    return rows if last == count - 1 else [*rows, None]


def _draw_hops(axes, sample, rows, height):
    hop_count, left, cell = len(sample.weights), LEFT, CELL
    end = left + cell * hop_count
    axes.set_xlim(-1, end + 1)
    axes.set_ylim(height, 0)
    axes.axis("off")

    def write(x, y, text, **options):
        # A dollar sign does not begin a formula.
        options = {"size": 8.5, "va": "center", **options}
        return axes.text(x, y, text, family=font_families(), parse_math=False, **options)

    def write_before(end, x, y, text, begin="", **options):
        """Writes as much of the text as fits before `end`."""
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
    for hop in range(hop_count):
        write(left + cell * (hop + 0.5), 1.9, f"hop {hop + 1}", size=7.5, ha="center")
    for line, number in enumerate(rows):
        y = 2.5 + line
        if number is None:
            write(0, y + 0.5, "…", color="#666666")
            continue
        fact = number in sample.facts
        style = {"begin": "• ", "weight": "bold"} if fact else {"begin": "   "}
        write_before(left - 0.5, 0, y + 0.5, sample.memories[number], **style)
        # This line leads the eye from a memory to its weights.
        axes.plot([0, left], [y + 1, y + 1], color="#eeeeee", linewidth=0.5)
        for hop in range(hop_count):
            weight = float(sample.weights[hop, number])
            x, depth = left + cell * hop, min(max(weight, 0.0), 1.0)
            colour = tuple(1 - depth * (1 - part) for part in (0.11, 0.33, 0.64))
            xs, ys = [x, x + cell, x + cell, x], [y, y, y + 1, y + 1]
            axes.fill(xs, ys, facecolor=colour, edgecolor="#cccccc", linewidth=0.5)
            if abs(weight) >= 0.005:
                ink = "white" if depth > 0.5 else "black"
                write(x + cell / 2, y + 0.5, f"{weight:.2f}", size=7, ha="center", color=ink)
