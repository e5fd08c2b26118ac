"""Generated dates as ids, letter by letter."""

import numpy as np

from examples.common import dates

SIGNS = "\t" + "0123456789-" + "abcdefghijklmnopqrstuvwxyz ,./"  # the first one begins a target
SOURCE_LENGTH, TARGET_LENGTH = 40, 10


def load_data(sizes, seed):
    """For each size `((source, shifted target), target)`, ids with 0 for padding."""
    found = []
    for sources, targets in dates.make_pairs(sizes, seed):
        source = encode([text.lower() for text in sources], SOURCE_LENGTH)
        target = encode(targets, TARGET_LENGTH)
        shifted = np.pad(target[:, :-1], ((0, 0), (1, 0)), constant_values=1)
        found.append(((source, shifted), target))
    return found


def encode(texts, length):
    ids = np.zeros((len(texts), length), "int32")
    for row, text in zip(ids, texts, strict=True):
        row[: len(text)] = [SIGNS.index(sign) + 1 for sign in text]
    return ids
