"""Fonts for text in all scripts, in pictures of matplotlib."""

import contextlib
import unicodedata
import warnings

# After the first, which comes with matplotlib: those of common systems for other scripts.
KNOWN = (
    "DejaVu Sans",
    *("Noto Sans CJK SC", "Noto Sans CJK JP", "WenQuanYi Micro Hei", "WenQuanYi Zen Hei"),
    *("PingFang SC", "Hiragino Sans", "Microsoft YaHei", "Yu Gothic", "Malgun Gothic"),
    *("Noto Sans Devanagari", "Nirmala UI", "Arial Unicode MS", "Noto Emoji"),
)


def families():
    """Those of the known ones that are installed."""
    import matplotlib.font_manager

    installed = set(matplotlib.font_manager.get_font_names())
    return [name for name in KNOWN if name in installed]


@contextlib.contextmanager
def boxes_for_missing():
    """Signs that no font has are drawn as boxes, without a warning."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)
        yield


def cut(text, room):
    """The beginning of a text, of so many letters of average width at most."""
    width, kept = 0, []
    for sign in " ".join(text.split()):
        width += 2 if unicodedata.east_asian_width(sign) in "WF" else 1
        if width > room:
            return "".join(kept[:-2]) + " …"
        kept.append(sign)
    return "".join(kept)
