"""Documents with the weights of their words and sentences, checked before they are shown."""

import math
from collections.abc import Sequence
from numbers import Real
from typing import NamedTuple

import keras
import numpy as np

from keras_attention._spec import refuse
from keras_attention._typing import Tensor
from keras_attention.plotting._inputs import check_numbers, string_list
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
    """Checks a document and prepares its texts and sentences, without empty ones.

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
        raise ValueError(
            "expected a `Document(words, word_weights, sentence_weights, ...)`; received "
            f"{type(document).__name__}."
        )
    texts = {name: getattr(document, name) for name in ("name", "predicted", "expected", "note")}
    document = document._replace(
        **{name: None if text is None else visible(text) for name, text in texts.items()}
    )
    name, gaps = document.name or "document", document.gaps
    remedy = "a list of words for each"
    words = [
        string_list(f"{name}: words[{n}]", sentence, "words", f"words[{n}].split()")
        for n, sentence in enumerate(
            string_list(f"{name}: words", document.words, "sentences", remedy)
        )
    ]
    weights = _cut(f"{name}: sentence_weights", document.sentence_weights, len(words), "sentence")
    if len(document.word_weights) < len(words) or (gaps is not None and len(gaps) != len(words)):
        raise ValueError(
            f"{name}: {len(words)} sentences, word_weights of {len(document.word_weights)}"
            + ("" if gaps is None else f", gaps of {len(gaps)}")
            + "; expected those of every sentence."
        )
    probability = document.probability
    number = isinstance(probability, Real) and not isinstance(probability, bool)
    if probability is not None and not (number and 0 <= probability < 1.001):
        percent = number and 1 < probability <= 100
        remedy = f"Write {probability / 100:g} for {probability:g} %." if percent else ""
        refuse(name, "its probability must be a number from 0 to 1", probability, remedy)
    largest, sentences = max(weights, default=0), []
    for number, (weight, own) in enumerate(zip(weights, words, strict=True)):
        before = [" "] * len(own) if gaps is None else list(gaps[number])
        if len(before) != len(own):
            expected = f"the text before each of its {len(own)} words"
            refuse(f"{name}, gaps[{number}]", expected, len(before))
        each = _cut(f"{name}, word_weights[{number}]", document.word_weights[number], len(own))
        share, most = _relative(weight, largest), max(each, default=0)
        strengths = [math.sqrt(share) * _relative(one, most) for one in each]
        texts = [[visible(text) for text in column] for column in (own, before)]
        sentences.append(Sentence(weight, texts[0], each, texts[1], share, strengths))
    return document, [sentence for sentence in sentences if sentence.words]


def _cut(name, weights, count, of="word"):
    """The weights without the padding, as floats."""
    try:
        weights = np.asarray(keras.ops.convert_to_numpy(weights), "float64")
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name}: expected numbers; {error}") from None
    if weights.ndim != 1 or len(weights) < count:
        expected = f"expected a weight for each {of}, here ({count},), or more with padding"
        refuse(name, expected, weights.shape)
    check_numbers(weights[:count], name)
    return weights[:count].tolist()


def _relative(value, largest):
    return value / largest if largest > 0 else 0.0


def percent(value: float) -> str:
    """A share as a percentage that shows a small one as more than zero."""
    return "<0.1%" if 0 < value < 0.0005 else f"{100 * value:.1f}%"


def verdict(document: Document) -> bool | None:
    """Whether the predicted class is the true class; None if either is unknown."""
    if document.expected is None or document.predicted is None:
        return None
    return document.predicted == document.expected
