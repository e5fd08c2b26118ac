"""A picture of a document with the weights of its words and sentences."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from typing import TYPE_CHECKING

from keras_attention.plotting._figures import new_figure
from keras_attention.plotting._text import font_families, shorten
from keras_attention.plotting.documents import Document, Sentence, percent, read_document, verdict

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["plot_document"]

# Sizes in points. The colours match the light mode of `document_page`.
_WIDTH, _MARGIN, _LEADING, _LINES, _DPI = 640, 14, 16, 12, 150
_BAR, _TEXT = 60, 120  # left edges
_ROOM = _WIDTH - _MARGIN - _TEXT
_INK, _QUIET, _WRONG, _SENTENCE, _TRACK = "#1a1a1a", "#595959", "#b3261e", "#2f6db5", "#e8ecf1"
_WORD = (255, 176, 32)
_LEGEND = (
    "Bar: the sentence's weight, full for the largest. Colour: the word's weight, full for the "
    "largest of its sentence, paler in lighter sentences."
)


def plot_document(document: Document) -> Figure:
    """Draw a document with the weights of its words and sentences.

    The sentence with the largest weight has a full bar. The word with the largest weight of its
    sentence has the full colour, which is paler in sentences of less weight, by the square root of
    their bar. A long document shows only the sentences with the largest weights, and of a long
    sentence the beginning. `document_page` shows everything.

    Args:
        document: a `Document`.

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

    def width(text):
        font = FontProperties(family=font_families(), size=10)
        return renderer.get_text_width_height_descent(text, font, False)[0] * 72 / _DPI

    def write(x, y, text, **options):
        options = {"color": _INK, "size": 10, "va": "baseline", **options}
        # A dollar sign does not begin a formula.
        options |= {"family": font_families(), "parse_math": False}
        figure.text(x, y, text, transform=points, **options)

    def fill(x, y, wide, high, color):
        figure.add_artist(Rectangle((x, y), wide, high, color=color, lw=0, transform=points))

    rows = _choose_rows(sentences, width)
    count = sum(len(lines) for _, lines in rows)
    high = 2 * _MARGIN + _LEADING * (count + (3 if document.note else 2))
    figure.set_figheight(high / 72)
    y = high - _MARGIN - 11
    color = _WRONG if verdict(document) is False else _INK
    write(_MARGIN, y, shorten(_title(document), 94), size=11, weight="bold", color=color)
    y -= 1.5 * _LEADING
    for sentence, lines in rows:
        write(_BAR - 6, y, percent(sentence.weight), size=9, color=_QUIET, ha="right")
        fill(_BAR, y - 1, _TEXT - _BAR - 10, 9, _TRACK)
        fill(_BAR, y - 1, sentence.share * (_TEXT - _BAR - 10), 9, _SENTENCE)
        for line in lines:
            for x, wide, word, strength in line:
                fill(_TEXT + x, y - 4, wide, _LEADING - 1.5, _blend(strength))
                write(_TEXT + x, y, word)
            y -= _LEADING
    write(_MARGIN, y - _LEADING / 4, _LEGEND, size=8, color=_QUIET)
    if document.note:
        write(_MARGIN, y - _LEADING, shorten(document.note, 130), size=8, color=_QUIET)
    return figure


def _title(document):
    parts = [shorten(document.name, 30)] if document.name else []
    if document.predicted is not None:
        share = "" if document.probability is None else f" ({percent(document.probability)})"
        parts.append(f"predicted {shorten(document.predicted, 12)}{share}")
    if document.expected is not None:
        mark = {True: " ✓", False: " ✗", None: ""}[verdict(document)]
        parts.append(f"true class {shorten(document.expected, 12)}{mark}")
    return ", ".join(parts)


def _blend(strength):
    """Blend the colour behind a word with white."""
    return tuple(1 - strength * (1 - part / 255) for part in _WORD)


def _choose_rows(sentences: list[Sentence], width: Callable[[str], float]) -> list:
    """Choose the sentences of largest weight that fit, with their lines, in the order of the text.

    Each line is a list of `(x, width, word, strength)`.
    """
    rows, room = {}, _LINES
    for n in sorted(range(len(sentences)), key=lambda n: -sentences[n].weight):
        lines = _break_lines(sentences[n], width)[: _LINES - 1]
        room -= len(lines)
        if room < 0:
            break
        rows[n] = sentences[n], lines
    return [rows[n] for n in sorted(rows)]


def _break_lines(sentence, width):
    lines, x, space = [[]], 0, width("n n") - width("nn")
    for word, gap, strength in zip(sentence.words, sentence.gaps, sentence.strengths, strict=True):
        word = shorten(word)
        wide = width(word)
        x += space if gap and lines[-1] else 0
        if x + wide > _ROOM:
            lines.append([])
            x = 0
        lines[-1].append((x, wide, word, strength))
        x += wide
    letters = (unicodedata.bidirectional(sign) for sign in "".join(sentence.words))
    if next((kind for kind in letters if kind in ("L", "R", "AL")), "L") != "L":
        lines = [[(_ROOM - x - wide, wide, *rest) for x, wide, *rest in line] for line in lines]
    return lines
