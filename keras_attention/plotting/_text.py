"""Prepares text of all scripts for matplotlib."""

import functools
import itertools
import unicodedata
from typing import TypeAlias

from keras_attention.plotting._figures import matplotlib_classes

Text: TypeAlias = str | bytes

# The longest label, in letters of average width.
LONGEST_LABEL = 24

# The first font comes with matplotlib. Common systems have some of the others for other scripts.
_KNOWN_FONTS = (
    "DejaVu Sans",
    *("Noto Sans CJK SC", "Noto Sans CJK JP", "WenQuanYi Micro Hei", "WenQuanYi Zen Hei"),
    *("PingFang SC", "Hiragino Sans", "Microsoft YaHei", "Yu Gothic", "Malgun Gothic"),
    *("Noto Sans Devanagari", "Noto Sans Thai", "Nirmala UI", "Arial Unicode MS", "Noto Emoji"),
)
# HTML allows few control characters, so their symbols replace them. C1 controls and surrogates have
# no symbols.
_SIGNS = {code: 0x2400 + code for code in range(32) if chr(code) not in "\t\n\r"}
_SIGNS |= {127: 0x2421} | dict.fromkeys([*range(0x80, 0xA0), *range(0xD800, 0xE000)], 0xFFFD)


def visible(text: Text) -> str:
    """Decodes bytes as UTF-8 and replaces control characters by their symbols."""
    text = text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text)
    return text.translate(_SIGNS)


def font_families() -> list[str]:
    """Fonts for matplotlib: the known ones that are installed, and others that texts needed."""
    return [*_fonts()[0], *_others]


def shorten(text: Text, room: int = LONGEST_LABEL) -> str:
    """Makes a text drawable, and cuts it to a width given in letters of average width.

    White space becomes single blanks. Characters that no font has become boxes.
    """
    text = " ".join(drawable(text).split()) or ("␣" if text else "")
    if width_of(text) <= room:
        return text
    # The dots take the room of two letters.
    end = sum(width <= room - 2 for width in itertools.accumulate(map(width_of, text)))
    return text[:end].rstrip() + " …"


def width_of(text: str) -> int:
    """The approximate width of a text, in letters of average width."""
    return sum(
        2 if unicodedata.east_asian_width(sign) in "WF" else 1 for sign in text if not _joins(sign)
    )


def drawable(text: Text) -> str:
    """Replaces characters that no font has by boxes."""
    found, boxed = [], False
    for sign in visible(text):
        if _joins(sign):
            # Some fonts draw combining marks as part of a letter only, and a box is not a letter.
            found += [] if boxed else [sign]
            continue
        boxed = not (sign.isspace() or _has_font(sign))
        found.append("□" if boxed else sign)
    return "".join(found)


def _joins(sign):
    return unicodedata.category(sign) in ("Mn", "Me", "Cf")


def _has_font(sign):
    if ord(sign) in _fonts()[1]:
        return True
    family = _family_of(sign)
    if family is not None:
        _others[family] = None
    return family is not None


# Fonts that a text needed in addition to the known ones, in the order of their first use.
_others: dict[str, None] = {}


@functools.cache
def _family_of(sign):
    """An installed font that has this character, or None."""
    import matplotlib.font_manager as manager

    for entry in manager.fontManager.ttflist:
        # A last-resort font has a symbol for every character, but none that can be read.
        usable = entry.size == "scalable" and "LastResort" not in entry.name.replace(" ", "")
        if usable and ord(sign) in _codes(entry.fname):
            return entry.name
    return None


@functools.cache
def _codes(path):
    import matplotlib.font_manager as manager

    try:
        return frozenset(manager.get_font(path).get_charmap())
    except (OSError, RuntimeError):  # FreeType cannot read this file
        return frozenset()


@functools.cache
def _fonts():
    """The known fonts that are installed, and the codes of all their characters."""
    matplotlib_classes()
    import matplotlib.font_manager as manager

    installed = set(manager.get_font_names())
    families = tuple(name for name in _KNOWN_FONTS if name in installed)
    paths = [manager.findfont(manager.FontProperties(family=family)) for family in families]
    return families, frozenset().union(*map(_codes, paths))
