"""A picture of which sentences each hop of a memory network read."""

from typing import NamedTuple

import numpy as np
from checkpoint import whole_file
from fonts import boxes_for_missing, cut, families

# Sentences of a story that are drawn; of a longer one those that were read most.
MOST = 12
WIDTH = 44


class Sample(NamedTuple):
    """An answered question.

    sentences: list of strings. weights: `(K, N)`, their weights in each of K hops. facts: the
    numbers of the sentences that decide, where they are known.
    """

    sentences: list
    question: str
    answer: str
    guess: str
    weights: np.ndarray
    facts: tuple = ()


def shown(sample):
    """The numbers of the sentences that are drawn, in their order; None where some are left out."""
    count = len(sample.sentences)
    most = np.argsort(-sample.weights[:, :count].max(axis=0), kind="stable")[:MOST]
    rows, last = [], -1
    for number in sorted(int(n) for n in most):
        if number > last + 1:
            rows.append(None)
        rows.append(number)
        last = number
    return rows if last == count - 1 else [*rows, None]


def draw(path, samples):
    """Writes a picture: for every sample its story, and beside each sentence its weights."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    columns = min(2, len(samples))
    grid = [samples[n : n + columns] for n in range(0, len(samples), columns)]
    rows = [[shown(sample) for sample in line] for line in grid]
    # Title, sentences, numbers of the hops.
    heights = [max(len(r) for r in line) + 3.5 for line in rows]
    figure = Figure(figsize=(6.6 * columns, 0.27 * sum(heights)), dpi=120)
    outer = figure.add_gridspec(
        len(grid), columns, height_ratios=heights, hspace=0, wspace=0.06, left=0, right=1
    )
    outer.update(top=1, bottom=0)
    for y, line in enumerate(grid):
        for x, sample in enumerate(line):
            _draw(figure.add_subplot(outer[y, x]), sample, rows[y][x], heights[y])
    with boxes_for_missing(), whole_file(path) as temporary:
        FigureCanvasAgg(figure).print_png(temporary)


def _draw(axes, sample, rows, height):
    hop_count, left, cell = len(sample.weights), 46, 6  # in widths of a letter, about
    end, fonts = left + cell * hop_count, families()
    axes.set_xlim(-1, end + 1)
    axes.set_ylim(height, 0)
    axes.axis("off")

    def write(x, y, text, **options):
        # A dollar sign is one, not the beginning of a formula.
        options = {"size": 8.5, "va": "center", **options}
        axes.text(x, y, text, family=fonts, parse_math=False, **options)

    right = sample.guess == sample.answer
    verdict = cut(sample.guess if right else f"{sample.guess} (right: {sample.answer})", 30)
    colour = "#1b6e3c" if right else "#b3261e"
    room = int(end - 1.2 * len(verdict))
    write(0, 0.9, cut(sample.question, room), weight="bold", size=9)
    write(end, 0.9, verdict, weight="bold", size=9, color=colour, ha="right")
    for hop in range(hop_count):
        write(left + cell * (hop + 0.5), 1.9, f"hop {hop + 1}", size=7.5, ha="center")
    for line, number in enumerate(rows):
        y = 2.5 + line
        if number is None:
            write(0, y + 0.5, "…", color="#666666")
            continue
        fact = number in sample.facts
        text = ("• " if fact else "   ") + cut(sample.sentences[number], WIDTH)
        write(0, y + 0.5, text, weight="bold" if fact else "normal")
        for hop in range(hop_count):
            weight = float(sample.weights[hop, number])
            x, depth = left + cell * hop, min(max(weight, 0.0), 1.0)
            colour = tuple(1 - depth * (1 - part) for part in (0.11, 0.33, 0.64))
            xs, ys = [x, x + cell, x + cell, x], [y, y, y + 1, y + 1]
            axes.fill(xs, ys, facecolor=colour, edgecolor="#cccccc", linewidth=0.5)
            if abs(weight) >= 0.005:
                ink, text = "white" if depth > 0.5 else "black", f"{weight:.2f}"
                write(x + cell / 2, y + 0.5, text, size=7, ha="center", color=ink)
