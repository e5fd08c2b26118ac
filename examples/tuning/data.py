"""Generated dates as ids, letter by letter."""

import numpy as np

from examples.common import dates

START, END = 1, 2
SIGNS = "\t\n" + "0123456789-" + "abcdefghijklmnopqrstuvwxyz ,./"  # with signs for start and end
SOURCE_LENGTH, TARGET_LENGTH = 40, 11


def load_data(sizes, seed):
    """For each size `(source, target)`, ids with 0 for padding."""
    found = []
    for sources, targets in dates.make_pairs(sizes, seed):
        source = encode([text.lower() for text in sources], SOURCE_LENGTH)
        found.append((source, encode([text + "\n" for text in targets], TARGET_LENGTH)))
    return found


def encode(texts, length):
    ids = np.zeros((len(texts), length), "int32")
    for row, text in zip(ids, texts, strict=True):
        row[: len(text)] = [SIGNS.index(sign) + 1 for sign in text]
    return ids
