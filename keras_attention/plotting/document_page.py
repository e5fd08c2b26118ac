"""A page of HTML for documents with the weights of their words and sentences."""

from collections.abc import Iterable

from keras_attention.plotting.documents import Document, percent, read_document, verdict
from keras_attention.plotting.html import WholePage, escape, file_text, whole_page

__all__ = ["document_page"]

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
    """Show documents on a page of HTML, with words and sentences coloured by their weights.

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
    verdicts = [verdict(document) for document, _ in read]
    count = f"{len(read):,} document" + ("" if len(read) == 1 else "s")
    if any(one is not None for one in verdicts):
        right, wrong = verdicts.count(True), verdicts.count(False)
        count += f"; {right:,} of {right + wrong:,} classified rightly"
    missed = ", ".join(
        f'<a href="#d{number}"><bdi>{escape(document.name)}</bdi></a>'
        for number, (document, _) in enumerate(read, 1)
        if verdict(document) is False
    )
    body = [
        f"<p>{count}.</p>\n",
        f"<p>Wrong: {missed}.</p>\n" if missed else "",
        f'<pre dir="auto">{escape(note)}</pre>\n' if note else "",
        _LEGEND,
        *(_article(number, *one) for number, one in enumerate(read, 1)),
    ]
    return whole_page(title, file_text("document_page.css"), "".join(body))


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
    """Return the line with the predicted and true class, or ""."""
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
