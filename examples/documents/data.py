"""Documents with labels: read from files, as word ids in batches, and in folds."""

import collections
import json
import pathlib
import re
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from examples.common.files import read_table, read_text, refuse
from examples.common.text import Words, count_tokens, in_parts, split_sentences
from examples.common.training import COMPILED, Batches, budgeted

# The documents, and the words of a padded batch, at most.
BATCH, CELLS = 32, 40_000
# XLA compiles a program for each shape, so there it gets few different ones.
MULTIPLE = 16 if COMPILED else 1


class Document(NamedTuple):
    name: str
    text: str
    label: str


def read(path):
    """Reads documents. Ends the program with the reason where that is impossible.

    A folder has a sub-folder for each class, and a file in it for each document. A file has lines
    like `{"text": "...", "label": "..."}`, or the columns `text` and `label` if it is a `.csv`. A
    `.json` file is SQuAD: its paragraphs are documents, the titles of their articles the classes.
    """
    path = pathlib.Path(path)
    if path.is_dir():
        documents = _read_folder(path)
    elif path.is_file():
        kinds = {".csv": _read_table, ".json": _read_articles}
        kind = kinds.get(path.suffix.lower(), _read_lines)
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
            remedy = "If the file is UTF-16, convert it: iconv -f utf-16 -t utf-8"
            refuse(f"{path}, {name}", f"holds {bad[0]!a}, which no text holds. {remedy}")
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
    known = isinstance(label, (str, int)) and not isinstance(label, bool)
    if not isinstance(text, str) or not known or not str(label).strip():
        wanted = "a string `text` and a `label`, a string or an integer"
        refuse(f"{path}, {place}", f"expected {wanted}; found {str(entry)[:80]}")
    return text, str(label).strip()


def _read_articles(path):
    try:
        for article in json.loads(read_text(path))["data"]:
            title = article["title"]
            for number, paragraph in enumerate(article["paragraphs"], 1):
                if not (isinstance(title, str) and isinstance(paragraph["context"], str)):
                    raise TypeError("`title` and `context` must be strings")
                yield f"{title}, paragraph {number}", paragraph["context"], title
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        refuse(
            path,
            f"not a file of SQuAD, which holds articles in `data` ({error!r}). Put other documents "
            'into a .jsonl file, with lines like {"text": "...", "label": "..."}',
        )


class Encoded:
    """Documents as word ids.

    Args:
        ids: ragged, `(documents, sentences, words)`.
        labels: the number of the class of each document.
    """

    def __init__(self, ids, labels):
        self.ids, self.labels = ids, np.asarray(labels)
        longest = tf.maximum(tf.reduce_max(ids.row_lengths(axis=2), axis=1), 0)
        sizes = np.stack([ids.row_lengths(), longest], axis=1)
        # Sentences and words of each padded document.
        self.sizes = np.maximum(-(-sizes // MULTIPLE), 1) * MULTIPLE

    def padded(self, chosen):
        """The ids `(B, S, W)` of some documents; 0 is padding."""
        shape = (None, *self.sizes[chosen].max(axis=0))
        return tf.gather(self.ids, chosen).to_tensor(shape=shape).numpy()

    def batches(self, chosen, order=None):
        """Splits documents into batches of similar sizes, shuffled by a NumPy generator."""
        return [chosen[x] for x in budgeted(self.sizes[chosen], BATCH, CELLS, order)]


def check_classes(source, documents, folds):
    """Prints the size of each class. Ends the program where one is smaller than the folds."""
    counts = collections.Counter(document.label for document in documents)
    listed = ", ".join(f"{count:,} {label}" for label, count in sorted(counts.items()))
    print(f"{source}: {len(documents):,} documents ({listed})")
    small = min(counts, key=counts.get)
    if len(counts) < 2:
        refuse(source, f"all documents are of the class {small!r}; at least two are needed")
    if counts[small] < folds:
        few = f"has {counts[small]} documents, fewer than the {folds} folds"
        remedy = "Give fewer --folds, at least 2, or more documents"
        refuse(source, f"the class {small!r} {few}. {remedy}")


def encode(texts, labels, vocabulary, longest):
    """Encodes texts. A sentence of more than `longest` words continues as the next one."""
    parts = [split_sentences(part, longest)[0] for part in in_parts(texts, 500)]
    words = tf.concat(parts, axis=0)
    return Encoded(words.with_flat_values(vocabulary(words.flat_values)), labels)


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
    sorted by file name, are the folds of their authors.

    Args:
        documents: a list of `Document`.
        folds: the number of folds.
        longest: the largest number of words in a sentence.
        min_count: how often a word of the vocabulary must occur.
    """

    def __init__(self, documents, folds, longest, min_count):
        from sklearn.model_selection import StratifiedKFold

        self.documents, self.longest, self.min_count = documents, longest, min_count
        # Arrays of objects, because NumPy makes all strings as wide as the longest one.
        self.texts = np.array([x.text for x in documents], object)
        labels = np.array([x.label for x in documents], object)
        self.classes, self.labels = np.unique(labels, return_inverse=True)
        self.folds = list(StratifiedKFold(folds).split(self.texts, self.labels))
        self.words = np.array([*count_tokens(self.texts)[0]], object)
        self.data = encode(self.texts, self.labels, Words(self.words), longest)

    def split(self, number):
        """The `Fold` of a number, counted from 1."""
        train, test = self.folds[number - 1]
        ids = np.zeros(len(self.words) + 2, "int32")
        counts = np.bincount(tf.gather(self.data.ids, train).flat_values, minlength=len(ids))
        counts[[0, -1]] = 0
        known = np.argsort(-counts, kind="stable")[: (counts >= self.min_count).sum()]
        ids[1:] = len(known) + 1  # the unknown word
        ids[known] = np.arange(1, len(known) + 1)
        words = self.data.ids.with_flat_values(tf.gather(ids, self.data.ids.flat_values))
        data, vocabulary = Encoded(words, self.labels), Words(self.words[known - 1])
        return Fold(data, vocabulary, train, test, len(self.classes))
