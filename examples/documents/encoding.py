"""Documents as word ids: sentences of words, padded in batches."""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from examples.common.sentences import split_sentences


class Encoded(NamedTuple):
    """Word ids of many documents in one row.

    words: `(N,)`. sentences: `(M + 1,)`, where in `words` each sentence begins. documents:
    `(D + 1,)`, where in `sentences` each document begins. labels: `(D,)`.
    """

    words: np.ndarray
    sentences: np.ndarray
    documents: np.ndarray
    labels: np.ndarray

    @property
    def sizes(self):
        """`(D, 2)`: the sentences of each document, and the words of its longest sentence."""
        lengths = np.append(np.diff(self.sentences), 0)
        longest = [lengths[a:b].max(initial=0) for a, b in zip(*self._bounds(), strict=True)]
        return np.stack([np.diff(self.documents), longest], axis=1)

    def padded(self, index, multiple=1):
        """Ids `(B, S, W)` of some of the documents; S and W are multiples of `multiple`."""
        lengths = np.diff(self.sentences)
        spans = [(self.documents[n], self.documents[n + 1]) for n in index]
        sentences = max((b - a for a, b in spans), default=0)
        words = max((lengths[a:b].max(initial=0) for a, b in spans), default=0)
        shape = (-(-max(size, 1) // multiple) * multiple for size in (sentences, words))
        ids = np.zeros((len(index), *shape), "int32")
        for row, (a, b) in enumerate(spans):
            inside = np.arange(ids.shape[2]) < lengths[a:b, None]
            ids[row, : b - a][inside] = self.words[self.sentences[a] : self.sentences[b]]
        return ids

    def _bounds(self):
        return self.documents[:-1], self.documents[1:]


def encode(texts, labels, vocabulary, longest):
    """Encodes texts.

    Args:
        texts: a list of strings.
        labels: the number of the class of each text.
        vocabulary: a function from flat tokens to ids.
        longest: the largest number of words in a sentence.
    """
    parts = []
    for start in range(0, max(len(texts), 1), 500):
        sentences = split_sentences(tf.constant(texts[start : start + 500], "string"), longest)[0]
        lengths = sentences.values.row_lengths(), sentences.row_lengths()
        parts.append([x.numpy() for x in (vocabulary(sentences.flat_values), *lengths)])
    words, sentences, documents = (np.concatenate(part) for part in zip(*parts, strict=True))
    splits = (np.concatenate([[0], np.cumsum(x)]) for x in (sentences, documents))
    return Encoded(words, *splits, np.array(labels, "int32"))
