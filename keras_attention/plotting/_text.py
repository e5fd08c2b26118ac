"""Prepare text of all scripts for matplotlib."""

import functools
import itertools
import unicodedata
from typing import TypeAlias

from keras_attention.plotting._figures import matplotlib_module

Text: TypeAlias = str | bytes

# The longest label, in letters of average width.
LONGEST_LABEL = 24

# The first font comes with matplotlib. Common systems have some of the others for other scripts.
_FONTS = (
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
    """Decode bytes as UTF-8 and replaces control characters by their symbols."""
    text = text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text)
    return text.translate(_SIGNS)


@functools.cache
def font_families() -> list[str]:
    """Return the names of the fonts, of those above, that are installed."""
    return list(_files())


def shorten(text: Text, room: int = LONGEST_LABEL) -> str:
    """Make a text drawable, and cut it to a width given in letters of average width.

    White space becomes single blanks. Characters that no font has become boxes.
    """
    text = " ".join(drawable(text).split()) or ("␣" if text else "")
    if width_of(text) <= room:
        return text
    # The dots take the room of two letters.
    end = sum(width <= room - 2 for width in itertools.accumulate(map(width_of, text)))
    return text[:end].rstrip() + " …"


def width_of(text: str) -> int:
    """Return the approximate width of a text, in letters of average width."""
    return sum(
        2 if unicodedata.east_asian_width(sign) in "WF" else 1 for sign in text if not _joins(sign)
    )


def drawable(text: Text) -> str:
    """Replace characters that none of the fonts has by boxes."""
    return "".join("□" if _is_missing(sign) else sign for sign in visible(text))


def _joins(sign):
    return unicodedata.category(sign) in ("Mn", "Me", "Cf")


def _is_missing(sign):
    invisible = sign.isspace() or unicodedata.category(sign) == "Cf"
    return not invisible and ord(sign) not in _codes()


@functools.cache
def _files():
    """Return a regular file of each of the fonts that is installed."""
    fonts = matplotlib_module("font_manager").fontManager.ttflist
    regular = [x for x in fonts if x.style == "normal" and x.weight in (400, "normal")]
    files = {x.name: x.fname for x in regular}
    return {name: files[name] for name in _FONTS if name in files}


@functools.cache
def _codes():
    """Return the characters of the fonts."""
    get_font = matplotlib_module("font_manager").get_font
    return frozenset().union(*(get_font(path).get_charmap() for path in _files().values()))
