"""Words broken into lines, each put where it is read, from the left or from the right."""

import unicodedata

from keras_attention.plotting._text import drawable


def flow_lines(words, gaps, strengths, room, width, to_left=False):
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
        kind = reads_to_left(item[1], numbers=to_left)
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


def reads_to_left(text, numbers=False):
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
