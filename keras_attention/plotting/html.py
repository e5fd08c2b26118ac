"""Highlighted text as HTML."""

import base64
import hashlib
import html
from collections.abc import Iterable, Sequence
from importlib import resources

from keras_attention._spec import raise_value_error
from keras_attention._typing import Tensor
from keras_attention.plotting._inputs import checked, string_list
from keras_attention.plotting._text import Text, visible

__all__ = ["highlight"]


def highlight(
    tokens: Iterable[Text],
    weights: Tensor | Sequence[float],
    joiner: str | list[Text] | tuple[Text, ...] = " ",
) -> str:
    """Colour the tokens of a text by their weights, as HTML.

    Args:
        tokens: T strings, which are escaped.
        weights: `(T,)`. The largest weight gets the full colour, whatever its size.
        joiner: the text between two tokens, or T strings, the text before each token.

    Returns:
        A string that notebooks render: a `<p>` with a `<mark>` per token, which shows the exact
        weight when pointed at.

    Raises:
        ValueError: the sizes do not agree, or a weight is NaN, infinite or negative.

    Example:
        >>> from keras_attention.plotting import highlight
        >>> page = highlight(["good", "<movie>"], [0.8, 0.2])
        >>> "&lt;movie&gt;" in page
        True
    """
    tokens = string_list("highlight", "tokens", tokens)
    weights = checked("highlight", "weights", weights, "(tokens,)", (len(tokens),))
    gaps = ["", *[joiner] * (len(tokens) - 1)][: len(tokens)] if isinstance(joiner, str) else joiner
    if not isinstance(gaps, (list, tuple)) or len(gaps) != len(tokens):
        expected = f"`joiner` must be one string, or one before each token, here {len(tokens)}"
        raise_value_error("highlight", expected, joiner)
    most = max(weights.max(initial=0), 1e-30)
    words = [
        f'{escape(gap)}<mark style="color:inherit;border-radius:.15em;'
        f'background:rgb(255 176 32 / {weight / most:.3f})" title="{weight:.4g}">'
        f"{escape(token)}</mark>"
        for token, gap, weight in zip(tokens, gaps, weights, strict=True)
    ]
    # Fixed colours, so that the text is readable on dark pages too.
    style = "color:#1a1a1a;background:#ffffff;line-height:1.8;padding:.3em;white-space:pre-wrap"
    return Page(f'<p dir="auto" style="{style}">{"".join(words)}</p>')


class Page(str):
    """A string of HTML that notebooks render."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        return str(self)


class WholePage(Page):
    """A whole page of HTML, which notebooks show in a frame of its own."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        style = "width:100%;height:32rem;border:1px solid #999"
        frame = f'sandbox="allow-scripts" style="{style}" title="attention"'
        return f'<iframe srcdoc="{html.escape(self)}" {frame}></iframe>'


def whole_page(title: str, style: str, body: str, script: str = "") -> WholePage:
    """Make a page of HTML, which loads nothing and runs no script but this one."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return WholePage(
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        f"script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
        "img-src data:; base-uri 'none'; form-action 'none'\">\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n"
        f'<h1 dir="auto">{escape(title)}</h1>\n{body}'
        f"{script and f'<script>{script}</script>'}\n</body>\n</html>\n"
    )


def file_text(name: str) -> str:
    """Read a file in this folder."""
    return resources.files("keras_attention.plotting").joinpath(name).read_text("utf-8")


def escape(text: Text) -> str:
    """Make a text visible and escape it for HTML."""
    return html.escape(visible(text))
