"""Splits documents into folds for cross-validation."""

import numpy as np

from examples.common.tokens import Words, count_tokens
from examples.common.vectors import first_vectors
from examples.documents.encoding import encode


class Folds:
    """Encoded documents in folds. Each fold has the vocabulary of its training documents.

    Args:
        texts: a list of `Document`.
        folds: the number of folds.
        longest: the largest number of words in a sentence.
        min_count: how often a word of the vocabulary must occur.
    """

    vectors = None  # a dictionary from words to vectors `(d,)`, if they are given

    def __init__(self, texts, folds, longest, min_count):
        self.texts, self.longest, self.min_count = texts, longest, min_count
        lines = [document.text for document in texts]
        self.classes, numbers = np.unique(labels_of(texts), return_inverse=True)
        self.fold = split_folds(numbers, folds)
        self.words = np.array([*count_tokens(lines)[0]], object)
        self.data = encode(lines, numbers, Words(self.words), longest)
        self.empty = int((self.data.sizes[:, 0] == 0).sum())

    def has_words(self, number):
        """Whether a training document of a fold has a word."""
        return bool(self.data.sizes[self.fold != number, 0].any())

    def tokens(self):
        """The lower-case words of each document, with spaces between them."""
        words = self.words[self.data.words - 1]
        ends = self.data.sentences[self.data.documents[1:]]
        return np.array([" ".join(part) for part in np.split(words, ends)[:-1]], object)

    def word_vectors(self, number, seed):
        """The vectors of the words of a fold, by their ids, or None."""
        if self.vectors is None:
            return None
        kept = self._known(number)
        return first_vectors(self.words[kept - 1], self.vectors, len(kept) + 2, seed)

    def split(self, number):
        """Encoded documents, the `Words` of a fold, its training numbers and its test numbers."""
        train, test = np.flatnonzero(self.fold != number), np.flatnonzero(self.fold == number)
        kept = self._known(number)
        ids = np.full(len(self.words) + 2, len(kept) + 1, "int32")
        ids[kept] = np.arange(1, len(kept) + 1)
        vocabulary = Words(self.words[kept - 1])
        return self.data._replace(words=ids[self.data.words]), vocabulary, train, test

    def _known(self, number):
        """The words that the training documents of a fold hold often enough, by their numbers."""
        owner = np.repeat(self.fold, np.diff(self.data.sentences[self.data.documents]))
        inside = self.data.words[owner != number]
        counts = np.bincount(inside, minlength=len(self.words) + 2)
        counts[[0, -1]] = 0
        return np.argsort(-counts, kind="stable")[: (counts >= self.min_count).sum()]


def split_folds(labels, folds):
    """The fold of each label: consecutive blocks of each class in the given order.

    Ten folds of the movie reviews, sorted by file name, are the folds of the authors.
    """
    fold = np.zeros(len(labels), int)
    for label in np.unique(labels):
        where = np.flatnonzero(labels == label)
        fold[where] = np.arange(len(where)) * folds // len(where)
    return fold


def labels_of(texts):
    # An array of objects, because NumPy makes all strings as wide as the longest one.
    return np.array([document.label for document in texts], object)
