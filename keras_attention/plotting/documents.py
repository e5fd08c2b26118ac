"""Documents with the weights of their words and sentences, checked before they are shown."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from keras_attention._spec import is_number, raise_value_error
from keras_attention._typing import Tensor
from keras_attention.plotting._inputs import checked, string_list
from keras_attention.plotting._text import Text, visible

__all__ = ["Document"]


class Document(NamedTuple):
    """A document with the weights of a hierarchical attention.

    Sizes: S sentences of up to W words. Weights after the last word or sentence belong to padding
    and are ignored.

    Attributes:
        words: S lists of strings, the words of each sentence.
        word_weights: `(S, W)`, as `HierarchicalAttention` returns them for one document, or S
            lists.
        sentence_weights: `(S,)`.
        name: name of the document.
        predicted: the class that the model predicts, or None.
        probability: the probability of the predicted class, 0 to 1, or None.
        expected: the true class, or None if it is not known.
        gaps: S lists of strings, the text before each word; None for single blanks.
        note: a sentence below the document, for example which words the model does not know.

    Example:
        >>> from keras_attention.plotting import Document, document_page
        >>> words = [["Dear", "all", "."], ["It", "broke", "."]]
        >>> word_weights, sentence_weights = [[0.4, 0.5, 0.1], [0.1, 0.8, 0.1]], [0.1, 0.9]
        >>> letter = Document(words, word_weights, sentence_weights, predicted="complaint")
        >>> right, wrong = (letter._replace(expected=x) for x in ("complaint", "praise"))
        >>> document_page([right, wrong]).count("✗ wrong")
        1
    """

    words: Sequence[Sequence[Text]]
    word_weights: Tensor | Sequence[Sequence[float]]
    sentence_weights: Tensor | Sequence[float]
    name: Text = ""
    predicted: Text | None = None
    probability: float | None = None
    expected: Text | None = None
    gaps: Sequence[Sequence[Text]] | None = None
    note: Text = ""


class Sentence(NamedTuple):
    """A sentence, ready to be shown.

    Attributes:
        weight: weight of the sentence in its document.
        words: the words.
        weights: weight of each word in the sentence.
        gaps: the text before each word.
        share: weight of the sentence divided by the largest weight of a sentence.
        strengths: how strongly to colour each word, 0 to 1.
    """

    weight: float
    words: list[str]
    weights: list[float]
    gaps: list[str]
    share: float
    strengths: list[float]


def read_document(document: Document) -> tuple[Document, list[Sentence]]:
    """Check a document and prepare its texts and sentences, without empty ones.

        strength = sqrt(p / largest p in the document) w / largest w in the sentence

    Here w is the weight of a word and p the weight of its sentence. Yang et al. use sqrt(p) w, so
    that a word counts only where its sentence does. Without the divisions, however, the words of
    short sentences would outshine all others, since a few words share a weight of one.

    Returns:
        `(document, sentences)`, a `Document` and a list of `Sentence`.

    Raises:
        ValueError: `document` is not a `Document`; the sizes do not agree; a weight is NaN,
            infinite or negative; the probability is not a number from 0 to 1.

    Reference: Yang et al. (2016), https://aclanthology.org/N16-1174, visualization of attention.
    """
    if not isinstance(document, Document):
        expected = "expected a `Document(words, word_weights, sentence_weights, ...)`"
        raise_value_error("plotting", expected, document)
    texts = {name: getattr(document, name) for name in ("name", "predicted", "expected", "note")}
    texts = {name: visible(text) for name, text in texts.items() if text is not None}
    document = document._replace(**texts)
    where, probability = texts["name"] or "document", document.probability
    if probability is not None and not (is_number(probability) and 0 <= probability < 1.001):
        expected = "`probability` must be a number from 0 to 1, no percentage"
        raise_value_error(where, expected, probability)
    words = string_list(where, "words", document.words, "sentences")
    weights = document.sentence_weights
    weights = checked(
        where, "sentence_weights", weights, "(sentences,)", (len(words),), padded=True
    )
    for name in ("word_weights", "gaps"):
        column = getattr(document, name)
        if column is not None and len(column) < len(words):
            expected = f"`{name}` must have a row for each of {len(words)} sentences"
            raise_value_error(where, expected, column)
    largest, sentences = weights.max(initial=0), []
    for n, weight in enumerate(weights.tolist()):
        own = string_list(where, f"words[{n}]", words[n], "words")
        gaps = [" "] * len(own) if document.gaps is None else list(document.gaps[n])
        if len(gaps) != len(own):
            expected = f"`gaps[{n}]` must hold the text before each of {len(own)} words"
            raise_value_error(where, expected, gaps)
        name, sizes = f"word_weights[{n}]", (len(own),)
        each = checked(where, name, document.word_weights[n], "(words,)", sizes, padded=True)
        share = weight / (largest or 1)
        strengths = math.sqrt(share) * each / (each.max(initial=0) or 1)
        own, gaps = ([visible(text) for text in texts] for texts in (own, gaps))
        if own:
            sentences.append(Sentence(weight, own, each.tolist(), gaps, share, strengths.tolist()))
    return document, sentences


def percent(value: float) -> str:
    """Format a share as a percentage, above zero for a small share."""
    return "<0.1%" if 0 < value < 0.0005 else f"{100 * value:.1f}%"


def verdict(document: Document) -> bool | None:
    """Return whether the predicted class is the true class; None if either is unknown."""
    if document.expected is None or document.predicted is None:
        return None
    return document.predicted == document.expected
