"""Words and their phones, as ids."""

import collections
import pathlib
import unicodedata

from examples.common.files import read_text, refuse

PAD, UNKNOWN, START, END = range(4)
SPLITS = ("train", "dev", "test")


def load(folder, language):
    """Returns `{"train": pairs, "dev": pairs, "test": pairs}`; a pair is `(word, phones)`."""
    return {split: read(find(folder, language, split)) for split in SPLITS}


def find(folder, language, split):
    """The file `LANGUAGE_SPLIT.tsv` in the folder or in a folder inside it."""
    name = f"{language}_{split}.tsv"
    paths = sorted(pathlib.Path(folder).rglob(name))
    if len(paths) != 1:
        others = pathlib.Path(folder).rglob("*_train.tsv")
        languages = sorted({path.stem.removesuffix("_train") for path in others})
        there = f"Languages with a training file there: {', '.join(languages) or 'none'}"
        refuse(f"--data {folder}", f"expected one file {name}, found {len(paths)}. {there}")
    return paths[0]


def read(path):
    """Reads lines of a word, a tab and phones with spaces between them."""
    pairs = []
    for number, line in enumerate(read_text(path).splitlines(), 1):
        word, _, phones = line.partition("\t")
        if not line.strip():
            continue
        if not (word and phones.split()) or "\t" in phones:
            wanted = "a word, a tab and phones with spaces between them"
            refuse(f"{path}, line {number}", f"expected {wanted}, found {line!r}")
        pairs.append((word, phones.split()))
    if not pairs:
        refuse(path, "holds no word")
    return pairs


class Symbols:
    """Letters or phones and their ids: all symbols of these sequences, the most frequent first."""

    def __init__(self, sequences):
        counts = collections.Counter(x for sequence in sequences for x in sequence)
        names = sorted(counts, key=lambda x: (-counts[x], x))
        self.names = ["", "�", "<", ">", *names]  # the four tokens first
        self.ids = {name: i for i, name in enumerate(names, END + 1)}

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


def find_symbols(pairs):
    """The letters and the phones of words to train on."""
    return Symbols(decompose(word) for word, _ in pairs), Symbols(phones for _, phones in pairs)


def encode_words(letters, words):
    """Ids of words with a sign before and after each, so that attention can read the ends."""
    return [[START, *letters.encode(decompose(word)), END] for word in words]


def encode_phones(phones, sequences):
    return [[*phones.encode(sequence), END] for sequence in sequences]


def encode(pairs, letters, phones, backward=False):
    """Pairs of ids of words, and of their phones from left to right or backward."""
    words, sequences = zip(*pairs, strict=True)
    sequences = encode_phones(phones, [x[::-1] if backward else x for x in sequences])
    return list(zip(encode_words(letters, words), sequences, strict=True))
