"""Pictures of the hops of a memory network."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from keras_attention._spec import raise_value_error
from keras_attention._typing import Tensor
from keras_attention.plotting._figures import new_figure
from keras_attention.plotting._inputs import checked, index_set, string_list
from keras_attention.plotting._text import Text, font_families, shorten, visible

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Hops", "plot_hops"]

MOST_MEMORIES = 12  # If there are more, those with the largest weights are drawn.
GREEN, RED, INK = "#1b6e3c", "#b3261e", "#1a1a1a"


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
        >>> plot_hops(sample).axes[0].get_xlabel()
        'garden (right: out)'
    """

    memories: Sequence[Text]
    weights: Tensor | Sequence[Sequence[float]]
    question: Text = ""
    answer: Text = ""
    expected: Text | None = None
    facts: Collection[int] = ()


def plot_hops(*samples: Hops) -> Figure:
    """Draw the memories of every sample, with the weight that each hop gave them.

    Long memories are cut. If there are many, only those with the largest weights are drawn.

    Args:
        samples: `Hops`, drawn in two columns.

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
        >>> [label.get_text() for label in figure.axes[0].get_xticklabels()]
        ['hop 1', 'hop 2']
    """
    if not samples or not all(isinstance(sample, Hops) for sample in samples):
        expected = "expected one or more `Hops(memories, weights, ...)`"
        raise_value_error("plot_hops", expected, samples, "Write plot_hops(*samples) for a list.")
    where, columns = "plot_hops", min(2, len(samples))
    rows = -(-len(samples) // columns)
    heights = [min(len(sample.memories), MOST_MEMORIES) for sample in samples]
    size = 8 * columns, sum(0.27 * (x + 4) for x in heights[::columns])
    figure = new_figure(size, dpi=120, layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes in grid[len(samples) :]:
        axes.axis("off")
    for axes, sample in zip(grid, samples, strict=False):
        memories = string_list(where, "memories", sample.memories, "strings")
        count, allowed = len(memories), {"padded": True, "negative": True}
        weights = checked(
            where, "weights", sample.weights, "(hops, memories)", (None, count), **allowed
        )
        facts = index_set(where, "facts", sample.facts, count, "memories")
        chosen = sorted(np.argsort(-weights.max(axis=0), kind="stable")[:MOST_MEMORIES])
        _draw(axes, sample, [memories[n] for n in chosen], weights[:, chosen])
        for label, n in zip(axes.get_yticklabels(), chosen, strict=True):
            label.set_fontweight("bold" if n in facts else "normal")
    return figure


def _draw(axes, sample, memories, weights):
    answer = visible(sample.answer)
    expected = None if sample.expected is None else visible(sample.expected)
    wrong = expected not in (None, answer)
    color = INK if expected is None else RED if wrong else GREEN
    # A dollar sign does not begin a formula.
    style = {"family": font_families(), "size": 8.5, "parse_math": False}
    axes.set_title(shorten(sample.question, 60), loc="left", **style)
    verdict = f"{answer} (right: {expected})" if wrong else answer
    axes.set_xlabel(shorten(verdict, 60), color=color, **style)
    if memories:  # matplotlib warns of an image without pixels
        axes.imshow(weights.T, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    axes.set_xticks(range(len(weights)), [f"hop {n + 1}" for n in range(len(weights))], size=7.5)
    axes.set_yticks(range(len(memories)), [shorten(x, 56) for x in memories], **style)
    axes.tick_params(length=0)
    for (hop, n), weight in np.ndenumerate(weights):
        if abs(weight) >= 0.005:
            ink = "white" if weight > 0.5 else "black"
            axes.text(hop, n, f"{weight:.2f}", size=7, ha="center", va="center", color=ink)
