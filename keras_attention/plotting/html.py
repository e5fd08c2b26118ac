"""Highlighted text as HTML."""

import html

from keras_attention.plotting._text import visible
from keras_attention.plotting.weights import check_shape, checked, string_list

__all__ = ["highlight"]


def highlight(tokens, weights, joiner=" "):
    """Text as HTML, the stronger coloured the larger the weight of a token.

    Args:
        tokens: T strings; whatever they contain is escaped.
        weights: `(T,)`; the largest has the strongest colour, however large it is.
        joiner: what is between two tokens, or T strings, the text before each.

    Returns:
        A string, which notebooks show as what it describes: `<p>` with a `<mark>` a token, and the
        exact weight where one points at it.

    Raises:
        ValueError: the sizes do not agree; a weight is NaN, infinite or negative.

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
        raise ValueError(
            f"joiner: one string, or one before each token, here {len(tokens)}; received "
            f"{len(gaps)}."
        )
    most = max(weights.max(initial=0), 1e-30)
    words = [
        f'{escape(gap)}<mark style="color:inherit;border-radius:.15em;'
        f'background:rgb(255 176 32 / {weight / most:.3f})" title="{weight:.4g}">'
        f"{escape(token)}</mark>"
        for token, gap, weight in zip(tokens, gaps, weights, strict=False)
    ]
    # With colours of its own, it can be read on dark pages too.
    style = "color:#1a1a1a;background:#ffffff;line-height:1.8;padding:.3em;white-space:pre-wrap"
    return Page(f'<p dir="auto" style="{style}">{"".join(words)}</p>')


class Page(str):
    """A string of HTML, which notebooks show as such."""

    __slots__ = ()

    def _repr_html_(self):
        return str(self)


def escape(text):
    """The text as part of a page of HTML."""
    return html.escape(visible(text))
