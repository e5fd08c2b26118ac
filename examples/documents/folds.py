"""Documents in folds for cross-validation."""

import documents
import numpy as np
from tokens import Words, count_tokens


class Folds:
    """Encoded documents in folds, each with a vocabulary of its own training documents.

    Args:
        texts: list of `Document`.
        folds: their number.
        longest: words of a sentence, at most.
        min_count: how often a word of the vocabulary must occur.
    """

    def __init__(self, texts, folds, longest, min_count):
        self.texts, self.longest, self.min_count = texts, longest, min_count
        lines = [document.text for document in texts]
        # Objects: NumPy's strings are all as wide as the longest.
        labels = np.array([document.label for document in texts], object)
        self.classes, numbers = np.unique(labels, return_inverse=True)
        self.fold = split_folds(numbers, folds)
        self.words = np.array([*count_tokens(lines)[0]], object)
        self.data = documents.encode(lines, numbers, Words(self.words), longest)
        self.empty = int((self.data.sizes[:, 0] == 0).sum())

    def split(self, number):
        """Encoded documents, the `Words` of a fold, and the numbers of both kinds of documents."""
        train, test = np.flatnonzero(self.fold != number), np.flatnonzero(self.fold == number)
        words = self.data.words
        owner = np.repeat(self.fold, np.diff(self.data.sentences[self.data.documents]))
        counts = np.bincount(words[owner != number], minlength=len(self.words) + 2)
        counts[[0, -1]] = 0
        kept = np.argsort(-counts, kind="stable")[: (counts >= self.min_count).sum()]
        ids = np.full(len(counts), len(kept) + 1, "int32")
        ids[kept] = np.arange(1, len(kept) + 1)
        vocabulary = Words(self.words[kept - 1])
        return self.data._replace(words=ids[words]), vocabulary, train, test


def split_folds(labels, folds):
    """The fold of each document: consecutive blocks of each class in the given order.

    In the order of file names these are, for ten folds, those of the movie reviews' authors.
    """
    fold = np.zeros(len(labels), int)
    for label in np.unique(labels):
        where = np.flatnonzero(labels == label)
        fold[where] = np.arange(len(where)) * folds // len(where)
    return fold
