"""Documents with labels: read from files, as word ids in batches, and in folds."""

import pathlib
from collections import Counter
from functools import partial
from typing import NamedTuple

import numpy as np

from examples.common.files import read_table, read_text, refuse
from examples.common.text import Words, split_sentences, tokenize
from examples.common.training import COMPILED, Batches, bucketed

# The documents, and the words of a padded batch, at most.
BATCH, CELLS = 32, 40_000
# XLA compiles a program for each shape, so there it gets few different ones.
MULTIPLE = 16 if COMPILED else 1


class Document(NamedTuple):
    name: str
    text: str
    label: str


def read(path):
    """Reads a folder with a sub-folder for each class, or a `.csv` with columns text and label."""
    path = pathlib.Path(path)
    if path.is_file():
        documents = [*_read_table(path)]
    else:
        files = [p for p in sorted(path.glob("*/*")) if p.is_file()]
        files = [p for p in files if not (p.parent.name[0] == "." or p.name[0] == ".")]
        name = "{0.parent.name}/{0.name}".format
        documents = [Document(name(p), read_text(p), p.parent.name) for p in files]
    if not documents:
        wanted = "a folder with a sub-folder for each class, and a file in it for each document"
        refuse(path, f"holds no document. Give {wanted}, or a .csv with the columns text and label")
    return documents


def _read_table(path):
    table = read_table(path)
    line, names = next(table, (1, []))
    if names.count("text") != 1 or names.count("label") != 1:
        wanted = "the columns `text` and `label` once, with a comma between"
        refuse(f"{path}, line {line}", f"expected {wanted}; found {names}")
    for number, (line, cells) in enumerate(table, 1):
        if len(cells) != len(names):
            cure = "Quote texts that hold commas"
            refuse(f"{path}, line {line}", f"has {len(cells)} cells, not {len(names)}. {cure}")
        entry = dict(zip(names, cells, strict=True))
        if not entry["label"].strip():
            refuse(f"{path}, line {line}", "`label` is empty")
        yield Document(f"row {number}", entry["text"], entry["label"].strip())


class Encoded:
    """Documents as word ids: arrays for the sentences of each, and the numbers of their classes."""

    def __init__(self, ids, labels):
        self.ids, self.labels = ids, np.asarray(labels)
        sizes = [(len(x), max(map(len, x), default=0)) for x in ids]
        # Sentences and words of each padded document.
        self.sizes = np.maximum(-(-np.array(sizes) // MULTIPLE), 1) * MULTIPLE

    def padded(self, chosen):
        """The ids `(B, S, W)` of some documents; 0 is padding."""
        padded = np.zeros((len(chosen), *self.sizes[chosen].max(axis=0)), "int32")
        for row, n in zip(padded, chosen, strict=True):
            for ids, sentence in zip(row, self.ids[n], strict=False):
                ids[: len(sentence)] = sentence
        return padded

    def batches(self, chosen, order=None):
        """Splits documents into batches of similar sizes, shuffled by a NumPy generator."""
        return [chosen[x] for x in bucketed(self.sizes[chosen], BATCH, order, CELLS)]


def encode(text, vocabulary, longest):
    """A text as arrays of ids. A sentence of more than `longest` words continues as the next."""
    sentences = split_sentences(text, longest)
    return [np.array([vocabulary(token[0]) for token in x], "int32") for x in sentences]


class Fold(NamedTuple):
    """Encoded documents, the `Words` of a fold, the numbers of its documents, and of classes."""

    data: Encoded
    vocabulary: Words
    train: np.ndarray
    test: np.ndarray
    classes: int

    def batches(self, seed):
        """The training documents for `fit`: ids, and a one for the class of each document."""
        data, targets = self.data, np.eye(self.classes, dtype="float32")[self.data.labels]
        split = partial(data.batches, self.train)
        return Batches(split, lambda rows: (data.padded(rows), targets[rows]), seed)


class Folds:
    """Encoded documents in folds. Each fold has the vocabulary of its training documents.

    A fold is a block of each class in the given order: documents about one thing often lie next to
    each other. A word of the vocabulary occurs `min_count` times.
    """

    def __init__(self, documents, folds, longest, min_count):
        from sklearn.model_selection import StratifiedKFold

        self.documents, self.longest, self.min_count = documents, longest, min_count
        # Arrays of objects, because NumPy makes all strings as wide as the longest one.
        self.texts = np.array([x.text for x in documents], object)
        labels = np.array([x.label for x in documents], object)
        self.classes, self.labels = np.unique(labels, return_inverse=True)
        self.folds = list(StratifiedKFold(folds).split(self.texts, self.labels))
        words = Counter(x[0].lower() for text in self.texts for x in tokenize(text))
        self.words = np.array([*words], object)
        vocabulary = Words(self.words)
        ids = [encode(text, vocabulary, longest) for text in self.texts]
        self.data = Encoded(ids, self.labels)

    def split(self, number):
        """The `Fold` of a number, counted from 1."""
        train, test = self.folds[number - 1]
        ids = np.zeros(len(self.words) + 2, "int32")
        used = np.concatenate([sentence for n in train for sentence in self.data.ids[n]] or [[0]])
        counts = np.bincount(used.astype(int), minlength=len(ids))
        counts[[0, -1]] = 0
        known = np.argsort(-counts, kind="stable")[: (counts >= self.min_count).sum()]
        ids[1:] = len(known) + 1  # the unknown word
        ids[known] = np.arange(1, len(known) + 1)
        data = Encoded([[ids[x] for x in document] for document in self.data.ids], self.labels)
        return Fold(data, Words(self.words[known - 1]), train, test, len(self.classes))
