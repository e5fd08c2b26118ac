"""A page of HTML that shows what each target token read."""

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from keras_attention._typing import Tensor
from keras_attention.plotting._inputs import check_shape, checked, string_list
from keras_attention.plotting._text import Text
from keras_attention.plotting.html import WholePage, escape

__all__ = ["attention_page"]

_STYLE = """
:root {
  color-scheme: light dark;
  --paper: #ffffff; --ink: #1a1a1a; --quiet: #595959; --line: #767676; --read: 255 176 32;
  --chosen: #1f5fa8;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #16181b; --ink: #ececec; --quiet: #a8adb4; --line: #8a9097; --read: 150 88 0;
    --chosen: #8ab8ee;
  }
}
* { box-sizing: border-box; }
body {
  max-width: 75rem; margin: 0 auto; padding: 1rem;
  background: var(--paper); color: var(--ink); font: 1rem/1.6 system-ui, sans-serif;
  overflow-wrap: anywhere; -webkit-text-size-adjust: 100%;
}
h1 { font-size: 1.4rem; line-height: 1.25; margin: 0 0 .5rem; }
h2 { font-size: 1rem; margin: 0 0 .3rem; }
p { margin: .25rem 0; }
.hint { color: var(--quiet); font-size: .9rem; }
.tokens { display: flex; flex-wrap: wrap; gap: .3rem; margin: .4rem 0 1rem; }
.maps {
  display: grid; gap: 1rem;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 18rem), 1fr));
}
button, .source span {
  font: inherit; color: inherit; border: 1px solid var(--line); border-radius: .25rem;
  padding: 0 .4rem; min-height: 1.75rem;
}
button { background: none; cursor: pointer; }
button:hover, button:focus-visible { outline: 3px solid var(--chosen); outline-offset: 1px; }
button[aria-pressed=true] { background: var(--chosen); color: var(--paper); }
.source span { background: rgb(var(--read) / var(--s)); }
.source span.most { border-width: 2px; border-color: var(--chosen); font-weight: 600; }
"""

# What the page shows without scripts is the mean over all target tokens.
_SCRIPT = """
const maps = JSON.parse(document.getElementById("weights").textContent);
const buttons = [...document.querySelectorAll("button")];
const panels = [...document.querySelectorAll(".source")];
const said = document.getElementById("said");
let pinned = -1;
function show(row) {
  panels.forEach((panel, m) => {
    const weights = maps[m][row < 0 ? maps[m].length - 1 : row];
    const most = Math.max(...weights, 1e-30);
    [...panel.children].forEach((token, n) => {
      token.style.setProperty("--s", weights[n] / most);
      token.title = weights[n].toPrecision(3);
      token.className = weights[n] === most ? "most" : "";
    });
  });
  said.textContent = row < 0 ? said.dataset.all : buttons[row].textContent + " reads:";
}
function pin(row) {
  pinned = pinned === row ? -1 : row;
  buttons.forEach((button, n) => button.setAttribute("aria-pressed", n === pinned));
  show(pinned);
}
buttons.forEach((button, row) => {
  button.addEventListener("mouseenter", () => show(row));
  button.addEventListener("mouseleave", () => show(pinned));
  button.addEventListener("focus", () => show(row));
  button.addEventListener("blur", () => show(pinned));
  button.addEventListener("click", () => pin(row));
  button.addEventListener("keydown", event => {
    const step = {ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1}[event.key];
    if (step) {
      event.preventDefault();
      buttons[(row + step + buttons.length) % buttons.length].focus();
    } else if (event.key === "Escape") {
      pin(pinned);
    }
  });
});
show(-1);
"""


def attention_page(
    weights: Tensor | Mapping[str, Tensor] | Sequence[Sequence[float]],
    source: Iterable[Text],
    target: Iterable[Text],
    title: str = "Attention",
) -> WholePage:
    """Makes a page that shows what a target token read when the reader points at it.

    A click pins a token, a second click or Escape releases it, and the arrow keys move to the next
    one. Several maps, such as layers or hops, stand side by side and follow the same token. The
    page needs no other file and no network, has a light and a dark mode, and fits the screen of a
    phone. Without scripts it shows the mean over all target tokens. All texts are escaped.

    Sizes: Tq target and Tk source tokens.

    Args:
        weights: `(Tq, Tk)`, the weights of one sample, or a dictionary of several such maps by
            their names.
        source: Tk strings. target: Tq strings.
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
    source, target = string_list("source", source), string_list("target", target)
    maps = dict(weights) if isinstance(weights, Mapping) else {"": weights}
    if not maps or not target:
        raise ValueError(
            "attention_page: expected at least one map and one target token; received "
            f"{len(maps)} maps and {len(target)} target tokens."
        )
    found, panels = [], []
    for name, given in maps.items():
        array = checked(given)
        check_shape(
            f"weights {name}".strip(), array, (len(target), len(source)), "(target, source)"
        )
        rows = np.concatenate([array, array.mean(axis=0, keepdims=True)])
        found.append([[float(f"{x:.4g}") for x in row] for row in rows])
        panels.append(_panel(name, source, rows[-1]))
    # A "<" could end the script.
    data = json.dumps(found).replace("<", "\\u003c")
    everything = "The mean over all target tokens:"
    buttons = "".join(
        f'<button type="button" aria-pressed="false">{escape(x)}</button>' for x in target
    )
    return WholePage(
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_policy()}">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        f'<h1 dir="auto">{escape(title)}</h1>\n'
        '<p class="hint">Point at a token to see what it read. Click to pin it.</p>\n'
        f'<div class="tokens" role="group" aria-label="target tokens">{buttons}</div>\n'
        f'<p id="said" role="status" data-all="{everything}">{everything}</p>\n'
        f'<div class="maps">{"".join(panels)}</div>\n'
        f'<script type="application/json" id="weights">{data}</script>\n'
        f"<script>{_SCRIPT}</script>\n</body>\n</html>\n"
    )


def _panel(name, source, mean):
    most = max(mean.max(initial=0), 1e-30)
    tokens = "".join(
        f'<span style="--s:{x / most:.3f}" title="{x:.3g}">{escape(token)}</span>'
        for token, x in zip(source, mean, strict=True)
    )
    heading = f"<h2>{escape(name)}</h2>" if name else ""
    return f'<section>{heading}<div class="tokens source">{tokens}</div></section>\n'


def _policy():
    """Allows nothing but our own script and styles."""
    digest = base64.b64encode(hashlib.sha256(_SCRIPT.encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
        "base-uri 'none'; form-action 'none'"
    )
