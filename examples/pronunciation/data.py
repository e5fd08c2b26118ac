"""Words and their phones, as ids."""

import pathlib

import keras

from examples.common.files import read_text, refuse
from keras_attention.text import Characters, Tokenizer

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


@keras.saving.register_keras_serializable(package="keras_attention_examples")
class Phones(Tokenizer):
    """The phones of a text, which has spaces between them."""

    def pieces(self, text):
        return text.split()

    def join(self, pieces):
        return " ".join(pieces)


def find_symbols(pairs):
    """The letters and the phones of words to train on.

    é is two letters, e and an accent, and 한 is three (Unicode NFD).
    """
    words, phones = zip(*pairs, strict=True)
    return Characters(words, normalization="NFD"), Phones(map(" ".join, phones))


def encode(pairs, letters, phones, backward=False):
    """Pairs of ids of words, and of their phones from left to right or backward."""
    step = -1 if backward else 1
    return [
        ([*letters.encode(word), END], [*phones.encode(" ".join(sounds[::step])), END])
        for word, sounds in pairs
    ]
