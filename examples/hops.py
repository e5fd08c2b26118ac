"""A picture of which sentences each hop of a memory network read."""

import textwrap
from typing import NamedTuple

import numpy as np

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
        len(grid), columns, height_ratios=heights, hspace=0, wspace=0.02, left=0, right=1
    )
    outer.update(top=1, bottom=0)
    for y, line in enumerate(grid):
        for x, sample in enumerate(line):
            _draw(figure.add_subplot(outer[y, x]), sample, rows[y][x], heights[y])
    temporary = path.with_name(path.name + ".tmp")
    FigureCanvasAgg(figure).print_png(temporary)
    temporary.replace(path)


def _draw(axes, sample, rows, height):
    hops = len(sample.weights)
    left, cell = 46, 6  # in widths of a letter, about
    axes.set_xlim(-1, left + cell * hops + 1)
    axes.set_ylim(height, 0)
    axes.axis("off")
    right = sample.guess == sample.answer
    verdict = "" if right else f" (right: {sample.answer})"
    title = textwrap.shorten(sample.question, WIDTH + 6, placeholder=" …")
    axes.text(0, 0.9, f"{title}  ", weight="bold", size=9, va="center", parse_math=False)
    axes.text(
        left + cell * hops,
        0.9,
        textwrap.shorten(sample.guess + verdict, 40, placeholder=" …"),
        color="#1b6e3c" if right else "#b3261e",
        weight="bold",
        size=9,
        ha="right",
        va="center",
        parse_math=False,
    )
    for hop in range(hops):
        name = f"hop {hop + 1}"
        axes.text(left + cell * (hop + 0.5), 1.9, name, size=7.5, ha="center", va="center")
    for line, number in enumerate(rows):
        y = 2.5 + line
        if number is None:
            axes.text(0, y + 0.5, "…", size=8.5, va="center", color="#666666")
            continue
        fact = number in sample.facts
        text = textwrap.shorten(sample.sentences[number], WIDTH, placeholder=" …")
        axes.text(
            0,
            y + 0.5,
            ("• " if fact else "   ") + text,
            size=8.5,
            va="center",
            weight="bold" if fact else "normal",
            parse_math=False,
        )
        for hop in range(hops):
            weight = float(sample.weights[hop, number])
            x, depth = left + cell * hop, min(max(weight, 0.0), 1.0)
            colour = tuple(1 - depth * (1 - part) for part in (0.11, 0.33, 0.64))
            axes.fill(
                [x, x + cell, x + cell, x],
                [y, y, y + 1, y + 1],
                facecolor=colour,
                edgecolor="#cccccc",
                linewidth=0.5,
            )
            if abs(weight) >= 0.005:
                ink = "white" if depth > 0.5 else "black"
                place = x + cell / 2, y + 0.5
                axes.text(*place, f"{weight:.2f}", size=7, ha="center", va="center", color=ink)
