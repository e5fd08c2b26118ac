"""Words and their phones, from files or invented, as padded ids."""

import collections
import pathlib
import unicodedata

import numpy as np
import tensorflow as tf

from examples.common.batching import bucketed
from examples.pronunciation.language import make_sets

PAD, UNKNOWN, START, END = range(4)
MARKS = ["", "�", "<", ">"]  # how the four tokens are shown
SPLITS = ("train", "dev", "test")
INVENTED = (4_000, 500, 1_000)
SMALL = (3_000, 200, 300)


def load(arguments):
    """Returns `{"train": pairs, "dev": pairs, "test": pairs}`; a pair is `(word, phones)`."""
    if arguments.data:
        return {split: read(find(arguments.data, arguments.language, split)) for split in SPLITS}
    sizes = SMALL if arguments.smoke else INVENTED
    return dict(zip(SPLITS, make_sets(sizes, arguments.seed), strict=True))


def find(folder, language, split):
    """The file `LANGUAGE_SPLIT.tsv` in the folder or in a folder inside it."""
    name = f"{language}_{split}.tsv"
    found = sorted(pathlib.Path(folder).rglob(name))
    if len(found) != 1:
        paths = pathlib.Path(folder).rglob("*_train.tsv")
        known = sorted({p.stem.removesuffix("_train") for p in paths})
        raise SystemExit(
            f"--data {folder} holds {len(found) or 'no'} files {name}; expected one. "
            f"Languages with a training file there: {', '.join(known) or 'none'}"
        )
    return found[0]


def read(path):
    """Reads lines of a word, a tab and phones with spaces between them."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, ValueError) as error:
        raise SystemExit(f"{path} cannot be read: {error}") from error
    pairs = []
    for number, line in enumerate(lines, 1):
        word, tab, phones = line.partition("\t")
        if not line.strip():
            continue
        if not (word and tab and phones.split()) or "\t" in phones:
            raise SystemExit(
                f"{path}, line {number}: expected a word, a tab and phones with spaces between "
                f"them, found {line!r}"
            )
        pairs.append((word, phones.split()))
    if not pairs:
        raise SystemExit(f"{path} holds no word")
    return pairs


class Symbols:
    """Letters or phones and their ids.

    Args:
        names: the symbols; the first has the id 4.
    """

    def __init__(self, names):
        self.names = [*MARKS, *names]
        self.ids = {name: i for i, name in enumerate(self.names) if i > END}

    @classmethod
    def of(cls, sequences):
        """All symbols of these sequences, the most frequent first."""
        counts = collections.Counter(x for sequence in sequences for x in sequence)
        return cls(sorted(counts, key=lambda x: (-counts[x], x)))

    def __len__(self):
        return len(self.names)

    def encode(self, sequence):
        return [self.ids.get(x, UNKNOWN) for x in sequence]

    def decode(self, ids):
        """The symbols before the end token."""
        ids = [int(i) for i in ids]
        end = ids.index(END) if END in ids else len(ids)
        return [self.names[i] for i in ids[:end] if i > END]


def decompose(word):
    """The letters of a word, where é is e and an accent, and 한 its three letters (Unicode NFD)."""
    return unicodedata.normalize("NFD", word)


def known_letters(words):
    """The `Symbols` of the letters of these words."""
    return Symbols.of(map(decompose, words))


def encode_words(letters, words):
    """Ids of words with a sign before and after each, so that attention can read the ends."""
    return [[START, *letters.encode(decompose(word)), END] for word in words]


def encode_phones(phones, sequences):
    return [[*phones.encode(sequence), END] for sequence in sequences]


def make_batches(sources, targets, size, order=None):
    """Yields padded batches `((source, target), target)` of similar length.

    Args:
        sources, targets: lists of lists of ids.
        size: the number of words in a batch.
        order: a NumPy generator to shuffle with, or None.
    """
    lengths = [(len(t), len(s)) for s, t in zip(sources, targets, strict=True)]
    for batch in bucketed(lengths, size, order):
        source, target = (pad([side[i] for i in batch]) for side in (sources, targets))
        yield (source, target), target


def as_dataset(make, steps):
    """A `tf.data.Dataset` of the `steps` batches that the generator function `make` yields."""
    ids = tf.TensorSpec((None, None), "int32")
    batches = tf.data.Dataset.from_generator(make, output_signature=((ids, ids), ids))
    return batches.apply(tf.data.experimental.assert_cardinality(steps)).prefetch(4)


def pad(rows):
    # Multiples of four give few different shapes, so few programs are compiled.
    length = -(-max(map(len, rows)) // 4) * 4
    return np.array([[*row, *[PAD] * (length - len(row))] for row in rows], "int32")
