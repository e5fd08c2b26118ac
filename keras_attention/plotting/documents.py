"""Documents with the weights of their words and sentences, checked before they are shown."""

import math
from numbers import Real
from typing import Any, NamedTuple

import keras
import numpy as np

from keras_attention.plotting._text import visible
from keras_attention.plotting.weights import check_numbers, string_list

__all__ = ["Document"]


class Document(NamedTuple):
    """A document, and what a hierarchical attention read of it.

    Args:
        words: S lists of strings, the words of each sentence.
        word_weights: `(S, W)`, as `HierarchicalAttention` returns them for one document, or lists.
        sentence_weights: `(S,)`. What is behind the last word or sentence is padding.
        name: of the document.
        predicted: its class by the model, where there is one.
        probability: of that class.
        expected: its true class, where that is known.
        gaps: S lists of strings, the text before each word; single blanks if not given.
    """

    words: list
    word_weights: Any
    sentence_weights: Any
    name: str = ""
    predicted: str | None = None
    probability: float | None = None
    expected: str | None = None
    gaps: list | None = None


class Sentence(NamedTuple):
    """A sentence as it is shown.

    weight: of the sentence in its document. words: strings. weights, gaps: one a word. share: of
    the weight in the largest of a sentence of the document. strengths: how strongly each word is
    shown, 0 to 1.
    """

    weight: float
    words: list
    weights: list
    gaps: list
    share: float
    strengths: list


def read_document(document):
    """The document with its texts as they are shown, and its sentences, without empty ones.

    Yang et al. multiply a word's weight by the root of its sentence's, so that a word counts only
    where its sentence does. Here each is first divided by the largest: otherwise the words of
    short sentences, which share a weight of one among few, would outshine all others.

    Returns:
        `(document, sentences)`, a `Document` and a list of `Sentence`.

    Raises:
        ValueError: it is no `Document`; the sizes do not agree; a weight is NaN, infinite or
            negative; the probability is none.
    """
    if not isinstance(document, Document):
        raise ValueError(
            "expected a `Document(words, word_weights, sentence_weights, ...)`; received "
            f"{type(document).__name__}."
        )
    texts = {name: getattr(document, name) for name in ("name", "predicted", "expected")}
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
        raise ValueError(
            f"{name}: its probability must be a number from 0 to 1; received {probability!r}."
            + (f" Write {probability / 100:g} for {probability:g} %." if percent else "")
        )
    largest, sentences = max(weights, default=0), []
    for number, (weight, own) in enumerate(zip(weights, words, strict=True)):
        before = [" "] * len(own) if gaps is None else list(gaps[number])
        if len(before) != len(own):
            raise ValueError(
                f"{name}, gaps[{number}]: the text before each of its {len(own)} words; received "
                f"{len(before)}."
            )
        each = _cut(f"{name}, word_weights[{number}]", document.word_weights[number], len(own))
        share, most = _relative(weight, largest), max(each, default=0)
        strengths = [math.sqrt(share) * _relative(one, most) for one in each]
        texts = [[visible(text) for text in column] for column in (own, before)]
        sentences.append(Sentence(weight, texts[0], each, texts[1], share, strengths))
    return document, [sentence for sentence in sentences if sentence.words]


def _cut(name, weights, count, of="word"):
    """The first weights, as floats."""
    try:
        weights = np.asarray(keras.ops.convert_to_numpy(weights), "float64")
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name}: expected numbers; {error}") from None
    if weights.ndim != 1 or len(weights) < count:
        raise ValueError(
            f"{name}: expected a weight for each {of}, here ({count},), or more where padding is "
            f"behind; received {weights.shape}."
        )
    check_numbers(weights[:count], name)
    return weights[:count].tolist()


def _relative(value, largest):
    return value / largest if largest > 0 else 0.0


def percent(value):
    return "<0.1%" if 0 < value < 0.0005 else f"{100 * value:.1f}%"


def verdict(document):
    """Whether the prediction is the true class, or None where that is unknown."""
    if document.expected is None or document.predicted is None:
        return None
    return document.predicted == document.expected
