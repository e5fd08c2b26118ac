"""Text of all scripts as matplotlib can draw it."""

import functools
import itertools
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
    """Fonts for matplotlib: the known ones that are installed, and others for `drawable` texts."""
    return [*_fonts()[0], *_others]


def shorten(text, room=LONGEST_LABEL):
    """The beginning of a text, of so many letters of average width at most, ready to be drawn.

    White space becomes single blanks, and signs that no font has become boxes.
    """
    text = " ".join(drawable(text).split()) or ("␣" if text else "")
    if width_of(text) <= room:
        return text
    # Two for the dots.
    end = sum(width <= room - 2 for width in itertools.accumulate(map(width_of, text)))
    return text[:end].rstrip() + " …"


def width_of(text):
    """About how many letters of average width it is as wide as."""
    return sum(
        2 if unicodedata.east_asian_width(sign) in "WF" else 1 for sign in text if not _joins(sign)
    )


def drawable(text):
    """The text in one line, with boxes for signs that no font has."""
    found, boxed = [], False
    for sign in visible(text):
        if _joins(sign):
            # Marks have no sign of their own in some fonts; a box does not bear them.
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


# Families beside the known ones that a text has needed, in the order in which it did.
_others = {}


@functools.cache
def _family_of(sign):
    """One of the other fonts that are installed, or None."""
    import matplotlib.font_manager as manager

    for entry in manager.fontManager.ttflist:
        # A font of last resort has a sign for everything, and none that can be read.
        usable = entry.size == "scalable" and "LastResort" not in entry.name.replace(" ", "")
        if usable and ord(sign) in _codes(entry.fname):
            return entry.name
    return None


@functools.cache
def _codes(path):
    import matplotlib.font_manager as manager

    try:
        return frozenset(manager.get_font(path).get_charmap())
    except (OSError, RuntimeError):  # a file that FreeType cannot read
        return frozenset()


@functools.cache
def _fonts():
    """The known families that are installed, and the codes of all signs that they have."""
    matplotlib_classes()
    import matplotlib.font_manager as manager

    installed = set(manager.get_font_names())
    families = tuple(name for name in _KNOWN_FONTS if name in installed)
    paths = [manager.findfont(manager.FontProperties(family=family)) for family in families]
    return families, frozenset().union(*map(_codes, paths))


def matplotlib_classes():
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(
            'Pictures need matplotlib: pip install "keras-attention-layers[plot]"'
        ) from error
    return Figure, FigureCanvasAgg
