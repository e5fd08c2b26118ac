"""Shows which words and sentences a classifier read: as a page of HTML, as a picture for a README.

The text of documents is anybody's: it is escaped everywhere, and the page may neither run scripts
nor load anything.
"""

import math
import pathlib
import unicodedata
from typing import NamedTuple

from checkpoint import save_figure, write_text

from keras_attention.plotting import drawable, escape, font_families


class Sentence(NamedTuple):
    """
    Args:
        weight: of the sentence in its document; those of a document sum to one.
        words: its tokens.
        weights: one a word; they sum to one.
        gaps: the text before each word: white space, or nothing.
    """

    weight: float
    words: list[str]
    weights: list[float]
    gaps: list[str]


class Reading(NamedTuple):
    """
    Args:
        name: of the document.
        label: its true class, or None.
        predicted: the class with the largest probability.
        probability: of that class.
        sentences: of the document in their order.
    """

    name: str
    label: str | None
    predicted: str
    probability: float
    sentences: list[Sentence]


# --- numbers and text ----------------------------------------------------------------------------


def _check(reading):
    """Refuses what would be shown as nonsense."""
    lists = [("its probability", [reading.probability])]
    lists += [("its sentences' weights", [sentence.weight for sentence in reading.sentences])]
    for number, sentence in enumerate(reading.sentences, 1):
        counts = [len(column) for column in sentence[1:]]
        if len(set(counts)) > 1:
            raise ValueError(
                f"{reading.name}, sentence {number}: {counts[0]} words, {counts[1]} weights and "
                f"{counts[2]} gaps; expected one weight and one gap a word."
            )
        lists.append((f"the weights of sentence {number}", sentence.weights))
    for what, values in lists:
        if not all(0 <= value < math.inf for value in values):
            raise ValueError(
                f"{reading.name}: {what} must be finite and not negative, are {list(values)}."
            )


def _relative(value, largest):
    return float(value / largest) if largest > 0 else 0.0


def _strengths(sentences):
    """How strongly a sentence and its words are shown, 0 to 1: `[(sentence, [word, ...]), ...]`.

    Yang et al. multiply a word's weight by the root of its sentence's, so that a word counts only
    where its sentence does. Here each is first divided by the largest: otherwise the words of
    short sentences, which share a weight of one among few, would outshine all others.
    """
    largest = max((sentence.weight for sentence in sentences), default=0)
    strengths = []
    for sentence in sentences:
        share = _relative(sentence.weight, largest)
        most = max(sentence.weights, default=0)
        words = [math.sqrt(share) * _relative(weight, most) for weight in sentence.weights]
        strengths.append((share, words))
    return strengths


def _percent(value):
    return "<0.1%" if 0 < value < 0.0005 else f"{100 * value:.1f}%"


def _is_right(reading):
    """Whether the prediction is the true class, or None where that is unknown."""
    return None if reading.label is None else reading.predicted == reading.label


# --- page ----------------------------------------------------------------------------------------

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_STYLE = """
:root {
  color-scheme: light dark;
  --paper: #ffffff; --ink: #1a1a1a; --quiet: #595959; --line: #d9d9d9;
  --word: 255 176 32; --bar: #2f6db5; --track: #e8ecf1; --right: #1b6e34; --wrong: #b3261e;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #16181b; --ink: #ececec; --quiet: #a8adb4; --line: #3a3f45;
    --word: 150 88 0; --bar: #6ea8e6; --track: #2b3036; --right: #7fd197; --wrong: #ff9d94;
  }
}
* { box-sizing: border-box; }
body {
  max-width: 60rem; margin: 0 auto; padding: 1rem;
  background: var(--paper); color: var(--ink);
  font: 1rem/1.6 system-ui, sans-serif; overflow-wrap: anywhere;
  -webkit-text-size-adjust: 100%; print-color-adjust: exact; -webkit-print-color-adjust: exact;
}
h1 { font-size: 1.5rem; line-height: 1.25; margin: 0 0 .75rem; }
h2 { font-size: 1.1rem; line-height: 1.3; margin: 0; }
p { margin: .25rem 0; }
a { color: inherit; }
article { border-top: 1px solid var(--line); margin-top: 1.5rem; padding-top: 1rem; }
ol { list-style: none; margin: .75rem 0 0; padding: 0; }
li {
  display: grid; grid-template-columns: 3.25rem clamp(1.5rem, 9vw, 6rem) 1fr;
  column-gap: .6rem; margin: .2rem 0;
}
li p { margin: 0; white-space: pre-wrap; }
mark { color: inherit; background: rgb(var(--word) / var(--s)); border-radius: .15em; }
.share { color: var(--quiet); font-size: .85rem; line-height: 1.6rem; text-align: right;
  font-variant-numeric: tabular-nums; overflow-wrap: normal; }
.bar {
  height: .8rem; margin-top: .4rem; border-radius: .15rem;
  background: linear-gradient(var(--bar) 0 0) 0 0 / calc(100% * var(--s)) 100% no-repeat;
  background-color: var(--track);
}
.legend, .none { color: var(--quiet); font-size: .9rem; }
.legend mark { color: var(--ink); padding: 0 .3em; }
.legend .bar { display: inline-block; width: 4rem; margin: 0; vertical-align: -.05rem; }
.right, .wrong { font-weight: 600; white-space: nowrap; }
.right { color: var(--right); }
.wrong { color: var(--wrong); }
article.missed { border-top: 3px double var(--wrong); }
@media (max-width: 30rem) { li { grid-template-columns: 3.25rem 1.5rem 1fr; } }
"""
_LEGEND = """
<p class="legend"><span class="bar" style="--s:.6"></span> weight of a sentence in its document; the
bar of the largest one is full.<br>
<mark style="--s:.1">weak</mark><mark style="--s:.45">to</mark><mark style="--s:1">strong</mark>
weight of a word in its sentence, relative to the largest one there, and paler in sentences of less
weight, as its square root. Point at a word or a bar for the exact number.</p>
"""


def write_page(path, title, readings):
    """Writes one HTML file, which needs no other file: each document with its weights.

    Args:
        path: of the file, which is written whole or not at all.
        title: of the page.
        readings: a list of `Reading`.

    Raises:
        ValueError: a weight is NaN, infinite or negative, or a word has none.
    """
    for reading in readings:
        _check(reading)
    known = [_is_right(reading) for reading in readings if reading.label is not None]
    count = f"{len(readings):,} document" + ("" if len(readings) == 1 else "s")
    if known:
        count += f"; {sum(known):,} of {len(known):,} classified rightly"
    missed = ", ".join(
        f'<a href="#d{number}"><bdi>{escape(reading.name)}</bdi></a>'
        for number, reading in enumerate(readings, 1)
        if _is_right(reading) is False
    )
    parts = [
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        f'<h1 dir="auto">{escape(title)}</h1>\n<p>{count}.</p>\n',
        f"<p>Wrong: {missed}.</p>\n" if missed else "",
        _LEGEND,
        *(_article(number, reading) for number, reading in enumerate(readings, 1)),
        "</body>\n</html>\n",
    ]
    write_text(pathlib.Path(path), "".join(parts))


def _article(number, reading):
    label = "unknown" if reading.label is None else f"<bdi>{escape(reading.label)}</bdi>"
    mark = {
        True: ' <span class="right">✓ right</span>',
        False: ' <span class="wrong">✗ wrong</span>',
        None: "",
    }[_is_right(reading)]
    rows = [
        _row(sentence, share, words)
        for sentence, (share, words) in zip(
            reading.sentences, _strengths(reading.sentences), strict=True
        )
    ]
    text = "<ol>\n" + "".join(rows) + "</ol>" if rows else '<p class="none">(no words)</p>'
    missed = ' class="missed"' if _is_right(reading) is False else ""
    return (
        f'<article id="d{number}"{missed}>\n<h2><bdi>{escape(reading.name)}</bdi></h2>\n'
        f"<p>predicted <strong><bdi>{escape(reading.predicted)}</bdi></strong> "
        f"({_percent(reading.probability)}), true class {label}{mark}</p>\n{text}\n</article>\n"
    )


def _row(sentence, share, strengths):
    words = []
    for word, weight, gap, strength in zip(*sentence[1:], strengths, strict=True):
        # A sentence has a line of its own instead of the break or space before it.
        gap = gap if words else gap.lstrip()
        words.append(
            f'{escape(gap)}<mark style="--s:{strength:.3f}" data-weight="{weight:.9g}" '
            f'title="{100 * weight:.4g}% of the sentence">{escape(word)}</mark>'
        )
    return (
        f'<li data-weight="{sentence.weight:.9g}">'
        f'<span class="share">{_percent(sentence.weight)}</span>'
        f'<span class="bar" style="--s:{share:.3f}" '
        f'title="{100 * sentence.weight:.4g}% of the document"></span>'
        f'<p dir="auto">{"".join(words)}</p></li>\n'
    )


# --- picture -------------------------------------------------------------------------------------

# Sizes in points. The colours are those of the page's light scheme.
_WIDTH, _MARGIN, _LEADING, _LINES, _DPI = 640, 14, 16, 12, 150
_BAR, _TEXT = 60, 120  # where they begin
_ROOM = _WIDTH - _MARGIN - _TEXT
_INK, _QUIET, _WRONG, _SENTENCE, _TRACK = "#1a1a1a", "#595959", "#b3261e", "#2f6db5", "#e8ecf1"
_WORD = (255, 176, 32)


def draw_document(path, reading):
    """Draws one document as a PNG: of a long one the sentences with the largest weights.

    Args:
        path: of the file, which is written whole or not at all.
        reading: the document.

    Raises:
        ValueError: a weight is NaN, infinite or negative, or a word has none.
    """
    import matplotlib.font_manager
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle
    from matplotlib.transforms import Affine2D

    _check(reading)
    path = pathlib.Path(path)
    families = font_families()
    figure = Figure((_WIDTH / 72, 1), dpi=_DPI, facecolor="white")
    renderer = FigureCanvasAgg(figure).get_renderer()
    points = Affine2D().scale(_DPI / 72)

    def width(text, size=10, weight="normal"):
        font = matplotlib.font_manager.FontProperties(family=families, size=size, weight=weight)
        return renderer.get_text_width_height_descent(text, font, False)[0] * 72 / _DPI

    def write(x, y, text, **options):
        options = {"color": _INK, "size": 10, "va": "baseline", **options}
        # A dollar sign is one, not the beginning of a formula.
        figure.text(x, y, text, transform=points, family=families, parse_math=False, **options)

    def fill(x, y, wide, high, color):
        figure.add_artist(Rectangle((x, y), wide, high, color=color, lw=0, transform=points))

    right = {True: " ✓ right", False: " ✗ wrong", None: ""}[_is_right(reading)]
    label = "unknown" if reading.label is None else reading.label
    name = reading.name if len(reading.name) <= 60 else "…" + reading.name[-59:]
    title = (
        f"{name}: predicted {reading.predicted} "
        f"({_percent(reading.probability)}), true class {label}{right}"
    ).split()
    heading = _flow(
        *(title, [" "] * len(title), [0] * len(title)),
        *(_WIDTH - 2 * _MARGIN, lambda text: width(text, 11, "bold")),
    )[:2]
    rows = _choose_rows(reading.sentences, width)
    high = 2 * _MARGIN + _LEADING * (len(heading) + len(rows) + 1)
    figure.set_figheight(high / 72)
    y = high - _MARGIN - 11
    for line in heading:
        color = _WRONG if _is_right(reading) is False else _INK
        for x, _, word, _ in line:
            write(_MARGIN + x, y, word, size=11, weight="bold", color=color)
        y -= _LEADING
    y -= _LEADING / 2
    for weight, share, line in rows:
        if weight is not None:
            write(_BAR - 6, y, _percent(weight), size=9, color=_QUIET, ha="right")
            fill(_BAR, y - 1, _TEXT - _BAR - 10, 9, _TRACK)
            fill(_BAR, y - 1, share * (_TEXT - _BAR - 10), 9, _SENTENCE)
        for x, wide, _, strength in line:
            if strength:
                fill(_TEXT + x, y - 4, wide, _LEADING - 1.5, _blend(strength))
        for x, _, word, strength in line:
            write(_TEXT + x, y, word, color=_QUIET if strength is None else _INK)
        y -= _LEADING
    legend = (
        "Bar: the sentence's weight in the document. Behind a word: its weight in the "
        "sentence, paler in lighter sentences."
    )
    write(_MARGIN, y - _LEADING / 4, legend, size=8, color=_QUIET)
    save_figure(path, figure)


def _blend(strength):
    """The colour behind a word, on white."""
    return tuple(1 - strength * (1 - part / 255) for part in _WORD)


def _choose_rows(sentences, width):
    """Lines of the heaviest sentences in their order: `[(weight, share, line), ...]`.

    Only the first line of a sentence has its weight. Lines of what was left out, and of a document
    without words, have none; their only word has the strength None.
    """

    def note(text):
        return None, None, [(0, width(text), text, None)]

    shares, lines = [], []
    for sentence, (share, strengths) in zip(sentences, _strengths(sentences), strict=True):
        to_left = bool(_reads_to_left("".join(sentence.words)))
        flown = _flow(sentence.words, sentence.gaps, strengths, _ROOM, width, to_left)
        if len(flown) > _LINES:
            flown = [*flown[: _LINES - 1], [(0, width("…"), "…", None)]]
        shares.append((sentence.weight, share))
        lines.append(flown)

    def rows(chosen):
        found, left = [], False
        for number, (weights, flown) in enumerate(zip(shares, lines, strict=True)):
            if number in chosen:
                found += [note("…")] * left
                found += [
                    (*((None, None) if place else weights), line)
                    for place, line in enumerate(flown)
                ]
            left = number not in chosen
        return found + [note("…")] * left

    order = sorted(range(len(sentences)), key=lambda n: -sentences[n].weight)
    best = []
    for count in range(1, len(order) + 1):
        found = rows(set(order[:count]))
        if count > 1 and len(found) > _LINES + 2:
            break
        best = found
    return best or [note("(no words)")]


def _flow(words, gaps, strengths, room, width, to_left=False):
    """Breaks words into lines `[(x, width, word, strength), ...]` no wider than `room`."""
    tokens = []
    for word, gap, strength in zip(words, gaps, strengths, strict=True):
        for number, piece in enumerate(_pieces(" ".join(drawable(word).split()), room, width)):
            tokens.append((piece, bool(gap) and not number, width(piece), strength))
    lines, x, space = [], room, width("n n") - width("nn")
    for number, (word, spaced, wide, strength) in enumerate(tokens):
        # A sign stays with the word before it.
        unit = wide
        for _, gap, more, _ in tokens[number + 1 :]:
            if gap or unit > room:
                break
            unit += more
        x += space if spaced else 0
        if not lines or x + (unit if spaced and unit <= room else wide) > room:
            lines.append([])
            x = 0
        elif spaced:
            lines[-1].append((space, "", None))
        lines[-1].append((wide, word, strength))
        x += wide
    return [_place(line, room, to_left) for line in lines]


def _place(line, room, to_left):
    """Puts words and spaces where they are read, from the left or the right end of the line."""
    order, run, last = [], [], 0
    for item in line:
        kind = _reads_to_left(item[1], numbers=to_left)
        if kind is None and run:
            run.append(item)
        elif kind is None or kind == to_left:
            order += [*run[:last][::-1], *run[last:], item]
            run, last = [], 0
        else:
            run.append(item)
            last = len(run)
    order += [*run[:last][::-1], *run[last:]]
    x = room - sum(wide for wide, *_ in order) if to_left else 0
    placed = []
    for wide, word, strength in reversed(order) if to_left else order:
        if word:
            placed.append((x, wide, word, strength))
        x += wide
    return placed


def _reads_to_left(text, numbers=False):
    """As its first letter does, like dir="auto" of HTML; None for one without letters.

    Args:
        numbers: whether digits count as letters, which are read to the right.
    """
    known = {"L": False, "R": True, "AL": True} | ({"EN": False, "AN": False} if numbers else {})
    kinds = (unicodedata.bidirectional(sign) for sign in text)
    return next((known[kind] for kind in kinds if kind in known), None)


def _pieces(word, room, width):
    """A word in halves, and those in halves, until each fits."""
    if len(word) < 2 or width(word) <= room:
        return [word]
    half = len(word) // 2
    return [*_pieces(word[:half], room, width), *_pieces(word[half:], room, width)]
