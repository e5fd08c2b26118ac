"""A page of HTML for documents with the weights of their words and sentences."""

from collections.abc import Iterable

from keras_attention.plotting.documents import Document, percent, read_document, verdict
from keras_attention.plotting.html import WholePage, escape

__all__ = ["document_page"]

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_STYLE = """
:root {
  color-scheme: light dark;
  --paper: #ffffff; --ink: #1a1a1a; --quiet: #595959; --line: #d9d9d9;
  --word: 255 176 32; --bar: #2f6db5; --track: #e8ecf1; --right: #1b6e34; --wrong: #b3261e;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #16181b; --ink: #ececec; --quiet: #a8adb4; --line: #3a3f45;
    --word: 150 88 0; --bar: #6ea8e6; --track: #2b3036; --right: #7fd197; --wrong: #ff9d94;
  }
}
* { box-sizing: border-box; }
body {
  max-width: 60rem; margin: 0 auto; padding: 1rem;
  background: var(--paper); color: var(--ink);
  font: 1rem/1.6 system-ui, sans-serif; overflow-wrap: anywhere;
  -webkit-text-size-adjust: 100%; print-color-adjust: exact; -webkit-print-color-adjust: exact;
}
h1 { font-size: 1.5rem; line-height: 1.25; margin: 0 0 .75rem; }
h2 { font-size: 1.1rem; line-height: 1.3; margin: 0; }
p { margin: .25rem 0; }
a { color: inherit; }
article { border-top: 1px solid var(--line); margin-top: 1.5rem; padding-top: 1rem; }
ol { list-style: none; margin: .75rem 0 0; padding: 0; }
li {
  display: grid; grid-template-columns: 3.25rem clamp(1.5rem, 9vw, 6rem) 1fr;
  column-gap: .6rem; margin: .2rem 0;
}
li p, pre { white-space: pre-wrap; }
li p { margin: 0; }
mark { color: inherit; background: rgb(var(--word) / var(--s)); border-radius: .15em; }
.share { color: var(--quiet); font-size: .85rem; line-height: 1.6rem; text-align: right;
  font-variant-numeric: tabular-nums; overflow-wrap: normal; }
.bar {
  height: .8rem; margin-top: .4rem; border-radius: .15rem;
  background: linear-gradient(var(--bar) 0 0) 0 0 / calc(100% * var(--s)) 100% no-repeat;
  background-color: var(--track);
}
.legend, .none { color: var(--quiet); font-size: .9rem; }
.legend mark { color: var(--ink); padding: 0 .3em; }
.legend .bar { display: inline-block; width: 4rem; margin: 0; vertical-align: -.05rem; }
.right, .wrong { font-weight: 600; white-space: nowrap; }
.right { color: var(--right); }
.wrong { color: var(--wrong); }
article.missed { border-top: 3px double var(--wrong); }
@media (max-width: 30rem) { li { grid-template-columns: 3.25rem 1.5rem 1fr; } }
"""
_LEGEND = """
<p class="legend"><span class="bar" style="--s:.6"></span> weight of a sentence in its document; the
largest has a full bar.<br>
<mark style="--s:.1">weak</mark><mark style="--s:.45">to</mark><mark style="--s:1">strong</mark>
weight of a word in its sentence, relative to the largest there. The colour is paler in sentences of
less weight, by the square root of their bar. Point at a word or a bar for the exact number.</p>
"""


def document_page(
    documents: Iterable[Document], title: str = "Documents", note: str = ""
) -> WholePage:
    """Shows documents on a page of HTML, with words and sentences coloured by their weights.

    The page needs no other file, runs no scripts, has a light and a dark mode, and fits the screen
    of a phone. All texts are escaped, so documents may come from anywhere.

    Args:
        documents: a list of `Document`.
        title: title of the page.
        note: lines below the title, such as how far the weights can be trusted.

    Returns:
        The page as a string that notebooks display. Write it to a file, in UTF-8.

    Raises:
        ValueError: the sizes of a document do not agree, or a weight is NaN, infinite or negative.

    Example:
        >>> from keras_attention.plotting import Document, document_page
        >>> words = [["Dear", "all", "."], ["It", "broke", "."]]
        >>> weights = [[0.4, 0.5, 0.1], [0.1, 0.8, 0.1]]
        >>> page = document_page([Document(words, weights, [0.1, 0.9], name="letter")], "Letters")
        >>> page.count("<mark")
        9
    """
    if isinstance(documents, Document):
        raise ValueError("documents must be a list of `Document`; received one. Write [document].")
    read = [read_document(document) for document in documents]
    documents = [document for document, _ in read]
    articles = [_article(number, *one) for number, one in enumerate(read, 1)]
    known = [one for one in map(verdict, documents) if one is not None]
    count = f"{len(documents):,} document" + ("" if len(documents) == 1 else "s")
    if known:
        count += f"; {sum(known):,} of {len(known):,} classified rightly"
    missed = ", ".join(
        f'<a href="#d{number}"><bdi>{escape(document.name)}</bdi></a>'
        for number, document in enumerate(documents, 1)
        if verdict(document) is False
    )
    parts = [
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        f'<h1 dir="auto">{escape(title)}</h1>\n<p>{count}.</p>\n',
        f"<p>Wrong: {missed}.</p>\n" if missed else "",
        f'<pre dir="auto">{escape(note)}</pre>\n' if note else "",
        _LEGEND,
        *articles,
        "</body>\n</html>\n",
    ]
    return WholePage("".join(parts))


def _article(number, document, sentences):
    rows = [_row(sentence) for sentence in sentences]
    text = "<ol>\n" + "".join(rows) + "</ol>" if rows else '<p class="none">(no words)</p>'
    if document.note:
        text += f'\n<p class="legend" dir="auto">{escape(document.note)}</p>'
    missed = ' class="missed"' if verdict(document) is False else ""
    return (
        f'<article id="d{number}"{missed}>\n<h2><bdi>{escape(document.name)}</bdi></h2>\n'
        f"{_classes(document)}{text}\n</article>\n"
    )


def _classes(document):
    """The line with the predicted and the true class, or nothing."""
    parts = []
    if document.predicted is not None:
        share = document.probability
        share = "" if share is None else f" ({escape(percent(share))})"
        parts.append(f"predicted <strong><bdi>{escape(document.predicted)}</bdi></strong>{share}")
    if document.expected is not None:
        parts.append(f"true class <bdi>{escape(document.expected)}</bdi>")
    elif parts:
        parts.append("true class unknown")
    mark = {
        True: ' <span class="right">✓ right</span>',
        False: ' <span class="wrong">✗ wrong</span>',
        None: "",
    }[verdict(document)]
    return f"<p>{', '.join(parts)}{mark}</p>\n" if parts else ""


def _row(sentence):
    words = []
    for word, weight, gap, strength in zip(
        sentence.words, sentence.weights, sentence.gaps, sentence.strengths, strict=True
    ):
        # Each sentence starts a new line, so the space before it is dropped.
        gap = gap if words else gap.lstrip()
        words.append(
            f'{escape(gap)}<mark style="--s:{strength:.3f}" data-weight="{weight:.9g}" '
            f'title="{100 * weight:.4g}% of the sentence">{escape(word)}</mark>'
        )
    return (
        f'<li data-weight="{sentence.weight:.9g}">'
        f'<span class="share">{escape(percent(sentence.weight))}</span>'
        f'<span class="bar" style="--s:{sentence.share:.3f}" '
        f'title="{100 * sentence.weight:.4g}% of the document"></span>'
        f'<p dir="auto">{"".join(words)}</p></li>\n'
    )
