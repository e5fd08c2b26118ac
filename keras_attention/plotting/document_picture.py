"""A picture of a document with the weights of its words and sentences."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from keras_attention.plotting._figures import new_figure, placed
from keras_attention.plotting._lines import Placed, flow_lines, reads_to_left
from keras_attention.plotting._text import font_families, shorten
from keras_attention.plotting.documents import Document, Sentence, percent, read_document, verdict

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["plot_document"]

# Sizes in points. The colours match the light mode of `document_page`.
_WIDTH, _MARGIN, _LEADING, _LINES, _DPI = 640, 14, 16, 12, 150
_BAR, _TEXT = 60, 120  # left edges
_ROOM = _WIDTH - _MARGIN - _TEXT
_INK, _QUIET, _WRONG, _SENTENCE, _TRACK = "#1a1a1a", "#595959", "#b3261e", "#2f6db5", "#e8ecf1"
_WORD = (255, 176, 32)


def plot_document(document: Document, ax: Axes | None = None) -> Figure:
    """Draw a document with the weights of its words and sentences.

    The sentence with the largest weight has a full bar. The word with the largest weight of its
    sentence has the full colour, which is paler in sentences of less weight, by the square root of
    their bar. A long document shows only the sentences with the largest weights, and says how many
    others it leaves out.

    Args:
        document: a `Document`.
        ax: matplotlib axes to draw into, as a picture; None for a figure of its own.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        ValueError: the sizes do not agree, or a weight is NaN, infinite or negative.
        ImportError: matplotlib is missing.

    Example:
        >>> from keras_attention.plotting import Document, plot_document
        >>> words = [["Dear", "all", "."], ["It", "broke", "."]]
        >>> weights = [[0.4, 0.5, 0.1], [0.1, 0.8, 0.1]]
        >>> figure = plot_document(Document(words, weights, [0.1, 0.9], name="letter"))
        >>> [text.get_text() for text in figure.texts][:4]
        ['letter', '10.0%', 'Dear', 'all']
    """
    document, sentences = read_document(document)
    figure = new_figure((_WIDTH / 72, 1), dpi=_DPI, facecolor="white")
    from matplotlib.font_manager import FontProperties
    from matplotlib.patches import Rectangle
    from matplotlib.transforms import Affine2D

    renderer = figure.canvas.get_renderer()
    # From points to the pixels of the figure, at any resolution.
    points = Affine2D().scale(1 / 72) + figure.dpi_scale_trans

    def width(text, size=10, weight="normal"):
        font = FontProperties(family=font_families(), size=size, weight=weight)
        return renderer.get_text_width_height_descent(text, font, False)[0] * 72 / _DPI

    def write(x, y, text, **options):
        options = {"color": _INK, "size": 10, "va": "baseline", **options}
        # A dollar sign does not begin a formula.
        options |= {"family": font_families(), "parse_math": False}
        figure.text(x, y, text, transform=points, **options)

    def fill(x, y, wide, high, color):
        figure.add_artist(Rectangle((x, y), wide, high, color=color, lw=0, transform=points))

    title = _title(document).split()
    columns = title, [" "] * len(title), [0] * len(title)
    heading = flow_lines(*columns, _WIDTH - 2 * _MARGIN, partial(width, size=11, weight="bold"))
    rows = _choose_rows(sentences, width)
    high = 2 * _MARGIN + _LEADING * (len(heading) + len(rows) + (2 if document.note else 1))
    figure.set_figheight(high / 72)
    y = high - _MARGIN - 11
    color = _WRONG if verdict(document) is False else _INK
    for line in heading:
        for x, _, word, _ in line:
            write(_MARGIN + x, y, word, size=11, weight="bold", color=color)
        y -= _LEADING
    y -= _LEADING / 2
    for weight, share, line in rows:
        if weight is not None:
            write(_BAR - 6, y, percent(weight), size=9, color=_QUIET, ha="right")
            fill(_BAR, y - 1, _TEXT - _BAR - 10, 9, _TRACK)
            fill(_BAR, y - 1, share * (_TEXT - _BAR - 10), 9, _SENTENCE)
        for x, wide, _, strength in line:
            if strength:
                fill(_TEXT + x, y - 4, wide, _LEADING - 1.5, _blend(strength))
        for x, _, word, strength in line:
            write(_TEXT + x, y, word, color=_QUIET if strength is None else _INK)
        y -= _LEADING
    legend = (
        "Bar: the sentence's weight, full for the largest. Colour: the word's weight, full for "
        "the largest of its sentence, paler in lighter sentences."
    )
    write(_MARGIN, y - _LEADING / 4, legend, size=8, color=_QUIET)
    if document.note:
        write(_MARGIN, y - _LEADING, shorten(document.note, 130), size=8, color=_QUIET)
    return placed(figure, ax)


def _title(document):
    # The end of a path says more than its beginning.
    name = document.name if len(document.name) <= 60 else "…" + document.name[-59:]
    parts = []
    if document.predicted is not None:
        share = "" if document.probability is None else f" ({percent(document.probability)})"
        parts.append(f"predicted {shorten(document.predicted, 30)}{share}")
    if document.expected is not None:
        right = {True: " ✓ right", False: " ✗ wrong", None: ""}[verdict(document)]
        parts.append(f"true class {shorten(document.expected, 30)}{right}")
    elif parts:
        parts.append("true class unknown")
    return ": ".join(part for part in (name, ", ".join(parts)) if part)


def _blend(strength):
    """Return the colour behind a word, blended with white."""
    return tuple(1 - strength * (1 - part / 255) for part in _WORD)


def _choose_rows(
    sentences: list[Sentence], width: Callable[[str], float]
) -> list[tuple[Any, Any, list[Placed]]]:
    """Choose the heaviest sentences and break them into lines `(weight, share, line)`, in order.

    Only the first line of a sentence has its weight. Lines that say what is left out, and the line
    of a document without words, have no weight and a single word of strength None.
    """

    def note(text):
        return None, None, [(0, width(text), text, None)]

    def left_out(count):
        return note(f"… {count} {'sentences' if count > 1 else 'sentence'} of smaller weight")

    blocks, rest = [], note("… the rest of the sentence")
    for sentence in sentences:
        to_left = bool(reads_to_left("".join(sentence.words)))
        columns = sentence.words, sentence.gaps, sentence.strengths
        first, *others = flow_lines(*columns, _ROOM, width, to_left)
        block = [(sentence.weight, sentence.share, first), *((None, None, x) for x in others)]
        blocks.append(block if len(block) <= _LINES else [*block[: _LINES - 1], rest])
    order = sorted(range(len(blocks)), key=lambda n: -sentences[n].weight)
    best: list = [note("(no words)")]
    for count in range(1, len(order) + 1):
        chosen, rows = set(order[:count]), []
        for drawn, numbers in itertools.groupby(range(len(blocks)), chosen.__contains__):
            numbers = [*numbers]
            rows += [x for n in numbers for x in blocks[n]] if drawn else [left_out(len(numbers))]
        if count > 1 and len(rows) > _LINES + 2:
            break
        best = rows
    return best
