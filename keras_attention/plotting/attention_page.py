"""A page of HTML that shows what each target token read."""

import base64
import json
from collections.abc import Iterable, Mapping, Sequence

from keras_attention._spec import raise_value_error
from keras_attention._typing import Tensor
from keras_attention.plotting._inputs import checked, string_list
from keras_attention.plotting._text import Text
from keras_attention.plotting.html import WholePage, escape, file_text, whole_page
from keras_attention.plotting.images import image_pixels, png

__all__ = ["attention_page"]


def attention_page(
    weights: Tensor | Mapping[str, Tensor] | Sequence[Sequence[float]],
    source: Iterable[Text] | Tensor,
    target: Iterable[Text],
    title: str = "Attention",
) -> WholePage:
    """Make a page that shows what a target token read when the reader points at it.

    A click pins a token, a second click or Escape releases it, and the arrow keys move to the next
    one. Several maps, such as layers or hops, stand side by side and follow the same token. The
    page needs no other file and no network, has a light and a dark mode, and fits the screen of a
    phone. Without scripts it shows the mean over all target tokens. All texts are escaped.

    Sizes: Tq target and Tk source tokens, H x W cells of an image of Y x X pixels.

    Args:
        weights: `(Tq, Tk)`, the weights of one sample, or `(Tq, H, W)` over an image; or a
            dictionary of several such maps by their names.
        source: Tk strings; or an image `(Y, X)` or `(Y, X, C)`, see `plot_attention_image`.
        target: Tq strings.
        title: the heading of the page.

    Returns:
        The page as a string that notebooks display. Write it to a file, in UTF-8.

    Raises:
        ValueError: the sizes do not agree; a weight is NaN, infinite or negative; there is no map
            or no target token.

    Example:
        >>> from keras_attention.plotting import attention_page
        >>> page = attention_page([[0.9, 0.1], [0.2, 0.8]], ["das", "Haus"], ["the", "house"])
        >>> page.count("<button")
        2
    """
    where = "attention_page"
    image = source if len(getattr(source, "shape", ())) > 1 else None
    source = [] if image is not None else string_list(where, "source", source)
    target = string_list(where, "target", target)
    maps = dict(weights) if isinstance(weights, Mapping) else {"": weights}
    if not maps or not target:
        expected = "expected at least one map and one target token"
        raise_value_error(where, expected, [weights, target])
    values, panels = [], []
    for name, weights in maps.items():
        shape, sizes = "(target tokens, source tokens)", (len(target), len(source))
        if image is not None:
            shape, sizes = "(target tokens, rows, columns)", (len(target), None, None)
        array = checked(where, f"weights {name}".strip(), weights, shape, sizes)
        grid, array = array.shape[1:], array.reshape(len(target), -1)
        rows = [*array, array.mean(axis=0)]
        values.append([[float(f"{x:.4g}") for x in row] for row in rows])
        style = "" if image is None else _style(image_pixels(where, image), grid)
        panels.append(_panel(name, source or [""] * len(rows[-1]), rows[-1], style))
    # A "<" could end the script.
    data = json.dumps(values).replace("<", "\\u003c")
    everything = "The mean over all target tokens:"
    buttons = "".join(
        f'<button type="button" aria-pressed="false">{escape(x)}</button>' for x in target
    )
    body = (
        '<p class="hint">Point at a token to see what it read. Click to pin it.</p>\n'
        f'<div class="tokens" role="group" aria-label="target tokens">{buttons}</div>\n'
        f'<p id="said" role="status" data-all="{everything}">{everything}</p>\n'
        f'<div class="maps">{"".join(panels)}</div>\n'
        f'<script type="application/json" id="weights">{data}</script>\n'
    )
    style, script = file_text("attention_page.css"), file_text("attention_page.js")
    return whole_page(title, style, body, script)


def _style(pixels, grid):
    """Return the attributes of a panel whose tokens are the cells of an image."""
    data, (high, wide) = base64.b64encode(png(pixels)).decode(), pixels.shape[:2]
    style = f"--columns:{grid[1]};aspect-ratio:{wide}/{high};background-image:url(data:image/png;"
    return f' image" style="{style}base64,{data})'


def _panel(name, source, mean, style):
    most = max(mean.max(initial=0), 1e-30)
    tokens = "".join(
        f'<span style="--s:{x / most:.3f}" title="{x:.3g}">{escape(token)}</span>'
        for token, x in zip(source, mean, strict=True)
    )
    heading = f"<h2>{escape(name)}</h2>" if name else ""
    return f'<section>{heading}<div class="tokens source{style}">{tokens}</div></section>\n'
