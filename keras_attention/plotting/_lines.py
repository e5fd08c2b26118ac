"""Break words of left-to-right and right-to-left scripts into lines and place them."""

import itertools
import operator
import unicodedata
from collections.abc import Callable, Sequence
from typing import TypeAlias

from keras_attention.plotting._text import Text, drawable

# A word in its place: (x, width, word, strength).
Placed: TypeAlias = tuple[float, float, str, float | None]


def flow_lines(
    words: Sequence[Text],
    gaps: Sequence[str],
    strengths: Sequence[float],
    room: float,
    width: Callable[[str], float],
    to_left: bool = False,
) -> list[list[Placed]]:
    """Break words into lines of `(x, width, word, strength)`.

    Args:
        words: the words.
        gaps: the text before each word; an empty one glues the word to the word before it.
        strengths: a number for each word, passed on to the result.
        room: the width of a line.
        width: function that measures a text, in the unit of `room`.
        to_left: whether lines run right to left.
    """
    tokens = []
    for word, gap, strength in zip(words, gaps, strengths, strict=True):
        for number, piece in enumerate(_pieces(" ".join(drawable(word).split()), room, width)):
            tokens.append((piece, bool(gap) and not number, width(piece), strength))
    lines, x, space = [], room, width("n n") - width("nn")
    for number, (word, spaced, wide, strength) in enumerate(tokens):
        # Punctuation stays on the line of the word before it.
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
    """Place the words of a line; runs of the other direction are reversed within it."""
    directions = [reads_to_left(word, numbers=to_left) for _, word, _ in line]
    for n, direction in enumerate(directions):
        if direction is None:  # it runs like its neighbours, if they agree
            after = next((x for x in directions[n:] if x is not None), to_left)
            agree = n > 0 and directions[n - 1] == after
            directions[n] = after if agree else to_left
    order = []
    directed = zip(directions, line, strict=True)
    for direction, run in itertools.groupby(directed, operator.itemgetter(0)):
        words = [word for _, word in run]
        order += words if direction == to_left else words[::-1]
    x = room - sum(wide for wide, *_ in order) if to_left else 0
    placed = []
    for wide, word, strength in reversed(order) if to_left else order:
        if word:
            placed.append((x, wide, word, strength))
        x += wide
    return placed


def reads_to_left(text: str, numbers: bool = False) -> bool | None:
    """Return True if the first letter of a text belongs to a right-to-left script.

    HTML decides dir="auto" in the same way.

    Args:
        text: the text.
        numbers: whether digits count as letters, which run to the right.

    Returns:
        None for a text without letters.
    """
    to_left = {"L": False, "R": True, "AL": True} | ({"EN": False, "AN": False} if numbers else {})
    kinds = (unicodedata.bidirectional(sign) for sign in text)
    return next((to_left[kind] for kind in kinds if kind in to_left), None)


def _pieces(word, room, width):
    """Halve a word until every piece fits."""
    if len(word) < 2 or width(word) <= room:
        return [word]
    half = len(word) // 2
    return [*_pieces(word[:half], room, width), *_pieces(word[half:], room, width)]
