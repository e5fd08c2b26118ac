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
    """Decode bytes as UTF-8 and replace control characters by their symbols."""
    text = text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text)
    return text.translate(_SIGNS)


def font_families() -> list[str]:
    """Return fonts for matplotlib, which draw all characters that `drawable` has seen."""
    return list(_used)


def shorten(text: Text, room: int = LONGEST_LABEL) -> str:
    """Make a text drawable, and cut it to a width given in letters of average width.

    White space becomes single spaces. Characters that no font has become boxes.
    """
    text = " ".join(drawable(text).split()) or ("␣" if text else "")
    if width_of(text) <= room:
        return text
    # The ellipsis is two letters wide.
    end = sum(width <= room - 2 for width in itertools.accumulate(map(width_of, text)))
    return text[:end].rstrip() + " …"


def width_of(text: str) -> int:
    """Return the approximate width of a text, in letters of average width."""
    return sum(
        2 if unicodedata.east_asian_width(sign) in "WF" else 1 for sign in text if not _joins(sign)
    )


def drawable(text: Text) -> str:
    """Replace characters that no font has by boxes."""
    signs, boxed = [], False
    for sign in visible(text):
        # Some fonts draw combining marks as part of a letter only, and a box is not a letter.
        if boxed and _joins(sign):
            continue
        invisible = sign.isspace() or unicodedata.category(sign) == "Cf"
        family = _KNOWN_FONTS[0] if invisible else _family_of(sign)
        boxed = family is None
        if family is not None:
            _used[family] = None
        signs.append("□" if boxed else sign)
    return "".join(signs)


def _joins(sign):
    return unicodedata.category(sign) in ("Mn", "Me", "Cf")


# The fonts of all texts, in the order of their first use.
_used: dict[str, None] = {_KNOWN_FONTS[0]: None}


@functools.cache
def _family_of(sign):
    """Return the first font that has this character, or None."""
    return next((name for name, path in _files().items() if ord(sign) in _codes(path)), None)


@functools.cache
def _files():
    """Return a file of every font that is installed, the known fonts first."""
    rank = {name: number for number, name in enumerate(_KNOWN_FONTS)}

    def order(entry):
        regular = entry.style == "normal" and entry.weight in (400, "normal")
        return rank.get(entry.name, len(rank)), not regular

    files = {}
    for entry in sorted(matplotlib_module("font_manager").fontManager.ttflist, key=order):
        # A last-resort font has a symbol for every character, but none that can be read.
        if "LastResort" not in entry.name.replace(" ", ""):
            files.setdefault(entry.name, entry.fname)
    return files


@functools.cache
def _codes(path):
    """Return the characters of a font."""
    try:
        return frozenset(matplotlib_module("font_manager").get_font(path).get_charmap())
    except (OSError, RuntimeError):  # FreeType cannot read this file
        return frozenset()
