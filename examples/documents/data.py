"""Documents with labels: read from files, as word ids in batches, and in folds."""

import json
import pathlib
import re
from collections import Counter
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
    """Reads documents: a folder with a sub-folder for each class and a file for each document.

    Or a file: lines like `{"text": "...", "label": "..."}`, or a `.csv` with these columns.
    """
    path = pathlib.Path(path)
    if path.is_dir():
        documents = _read_folder(path)
    elif path.is_file():
        kind = _read_table if path.suffix.lower() == ".csv" else _read_lines
        documents = [Document(*x) for x in kind(path)]
    else:
        refuse(
            path,
            "not there. Give a folder with a sub-folder for each class and a file for each "
            'document, or a file with lines like {"text": "...", "label": "..."}',
        )
    for name, text, label in documents:
        bad = re.search("[\0\ud800-\udfff]", text + label)
        if bad:
            refuse(f"{path}, {name}", f"holds {bad[0]!a}, which no text holds")
    if not documents:
        refuse(path, "holds no document")
    return documents


def _read_folder(path):
    files = [p for p in sorted(path.glob("*/*")) if p.is_file()]
    files = [p for p in files if not (p.parent.name[0] == "." or p.name[0] == ".")]
    if not files:
        refuse(path, f"has no sub-folder with files, such as {path / 'pos' / '1.txt'}")
    return [Document(f"{p.parent.name}/{p.name}", read_text(p), p.parent.name) for p in files]


def _read_lines(path):
    for number, line in enumerate(read_text(path).split("\n"), 1):
        if line.strip():
            try:
                entry = json.loads(line)
            except (ValueError, RecursionError) as error:
                remedy = "Tables need the ending .csv, and commas between the cells"
                refuse(f"{path}, line {number}", f"not JSON ({error}). {remedy}")
            place, entry = f"line {number}", entry if isinstance(entry, dict) else {}
            yield place, *_checked(path, place, entry)


def _read_table(path):
    table = read_table(path)
    line, names = next(table, (1, []))
    if names.count("text") != 1 or names.count("label") != 1:
        wanted = "the columns `text` and `label` once, with a comma between"
        refuse(f"{path}, line {line}", f"expected {wanted}; found {names}")
    for number, (line, cells) in enumerate(table, 1):
        if len(cells) > len(names):
            more = f"has more cells than the {len(names)} columns. Quote texts that hold commas"
            refuse(f"{path}, line {line}", more)
        entry = dict(zip(names, cells, strict=False))
        yield f"row {number}", *_checked(path, f"line {line}", entry)


def _checked(path, place, entry):
    text, label = entry.get("text"), entry.get("label")
    # Python regards True and False as integers.
    if not isinstance(text, str) or type(label) not in (str, int) or not str(label).strip():
        wanted = "a string `text` and a `label`, a string or an integer"
        refuse(f"{path}, {place}", f"expected {wanted}; found {str(entry)[:80]}")
    return text, str(label).strip()


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


def check_classes(source, documents, folds):
    """Prints the size of each class. Ends the program where one is smaller than the folds."""
    counts = Counter(document.label for document in documents)
    listed = ", ".join(f"{count:,} {label}" for label, count in sorted(counts.items()))
    print(f"{source}: {len(documents):,} documents ({listed})")
    small = min(counts, key=counts.get)
    if len(counts) < 2:
        refuse(source, f"all documents are of the class {small!r}; at least two are needed")
    if counts[small] < folds:
        few = f"has {counts[small]} documents, fewer than the {folds} folds"
        remedy = "Give fewer --folds, at least 2, or more documents"
        refuse(source, f"the class {small!r} {few}. {remedy}")


def encode(text, vocabulary, longest):
    """A text as arrays of ids. A sentence of more than `longest` words continues as the next."""
    return [
        np.array([vocabulary(token[0]) for token in sentence], "int32")
        for sentence in split_sentences(text, longest)
    ]


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
        return Batches(
            lambda order: data.batches(self.train, order),
            lambda rows: (data.padded(rows), targets[rows]),
            seed,
        )


class Folds:
    """Encoded documents in folds. Each fold has the vocabulary of its training documents.

    A fold is a block of each class in the given order, so that documents about one thing, which
    often lie next to each other, are either learned or tested. Ten folds of the movie reviews,
    sorted by file name, are the folds of their authors. A word of the vocabulary occurs `min_count`
    times.
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
