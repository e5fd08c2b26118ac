"""Highlighted text as HTML."""

import html
from collections.abc import Iterable, Sequence

from keras_attention._spec import refuse
from keras_attention._typing import Tensor
from keras_attention.plotting._inputs import check_shape, checked, string_list
from keras_attention.plotting._text import Text, visible

__all__ = ["highlight"]


def highlight(
    tokens: Iterable[Text],
    weights: Tensor | Sequence[float],
    joiner: str | list[Text] | tuple[Text, ...] = " ",
) -> str:
    """Colours the tokens of a text by their weights, as HTML.

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
    tokens = string_list("tokens", tokens)
    weights = checked(weights)
    if not isinstance(joiner, (str, list, tuple)):
        raise ValueError(f"joiner: a string, or one before each token; received {joiner!r}.")
    check_shape("weights", weights, (len(tokens),), "(tokens,)")
    gaps = ["", *[joiner] * (len(tokens) - 1)] if isinstance(joiner, str) else list(joiner)
    if len(gaps) != len(tokens) and len(tokens):
        refuse("joiner", f"one string, or one before each token, here {len(tokens)}", len(gaps))
    most = max(weights.max(initial=0), 1e-30)
    words = [
        f'{escape(gap)}<mark style="color:inherit;border-radius:.15em;'
        f'background:rgb(255 176 32 / {weight / most:.3f})" title="{weight:.4g}">'
        f"{escape(token)}</mark>"
        for token, gap, weight in zip(tokens, gaps, weights, strict=False)
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


def escape(text: Text) -> str:
    """Makes a text visible and escapes it for HTML."""
    return html.escape(visible(text))
