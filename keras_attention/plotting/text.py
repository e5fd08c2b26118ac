"""Text of all scripts as matplotlib can draw it."""

import functools
import unicodedata

# Labels are cut to so many letters of average width.
LONGEST_LABEL = 24

# After the first, which comes with matplotlib: those of common systems for other scripts.
_KNOWN_FONTS = (
    "DejaVu Sans",
    *("Noto Sans CJK SC", "Noto Sans CJK JP", "WenQuanYi Micro Hei", "WenQuanYi Zen Hei"),
    *("PingFang SC", "Hiragino Sans", "Microsoft YaHei", "Yu Gothic", "Malgun Gothic"),
    *("Noto Sans Devanagari", "Noto Sans Thai", "Nirmala UI", "Arial Unicode MS", "Noto Emoji"),
)
# Control characters, of which HTML allows few, as their pictures; halves of pairs have none.
_SIGNS = {code: 0x2400 + code for code in range(32) if chr(code) not in "\t\n\r"}
_SIGNS |= {127: 0x2421} | dict.fromkeys([*range(0x80, 0xA0), *range(0xD800, 0xE000)], 0xFFFD)


def visible(text):
    """A token as text, bytes read as UTF-8, with control characters as signs for them."""
    text = text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text)
    return text.translate(_SIGNS)


def font_families():
    """Fonts for text in as many scripts as are installed, for matplotlib."""
    return list(_fonts()[0])


def shorten(text, room=LONGEST_LABEL):
    """The beginning of a text, of so many letters of average width at most, ready to be drawn.

    White space becomes single blanks, and signs that no font has become boxes.
    """
    text = " ".join(drawable(text).split()) or ("␣" if text else "")
    width, kept = 0, []
    for sign in text:
        width += width_of(sign)
        if width > room:
            return "".join(kept[:-2]).rstrip() + " …"
        kept.append(sign)
    return "".join(kept)


def width_of(text):
    return sum(2 if unicodedata.east_asian_width(sign) in "WF" else 1 for sign in text)


def drawable(text):
    """The text in one line, with boxes for signs that no font has."""
    known = _fonts()[1]
    # Marks that join others have no sign of their own in some fonts.
    return "".join(
        sign
        if ord(sign) in known or sign.isspace() or unicodedata.category(sign) in ("Mn", "Cf")
        else "□"
        for sign in visible(text)
    )


@functools.cache
def _fonts():
    """The known families that are installed, and the codes of all signs that they have."""
    matplotlib_classes()
    import matplotlib.font_manager as manager

    installed = set(manager.get_font_names())
    families = tuple(name for name in _KNOWN_FONTS if name in installed)
    codes = set()
    for family in families:
        path = manager.findfont(manager.FontProperties(family=family))
        codes.update(manager.get_font(path).get_charmap())
    return families, frozenset(codes)


def matplotlib_classes():
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(
            'Pictures need matplotlib: pip install "keras-attention-layers[plot]"'
        ) from error
    return Figure, FigureCanvasAgg
