"""Batches of similar length, so that little is spent on padding."""

import numpy as np


def bucketed(lengths, size, order=None):
    """Splits `range(len(lengths))` into index arrays of at most `size`.

    Args:
        lengths: `(N,)` or `(N, keys)`, what to sort by, the last column first.
        order: a NumPy generator to shuffle with, or None to keep all sorted by length.

    Returns:
        A list of index arrays; every index is in one of them. With `order`, samples are shuffled,
        sorted within pools of 32 batches, and the batches shuffled again.
    """
    lengths = np.reshape(lengths, (len(lengths), -1))
    index = np.arange(len(lengths)) if order is None else order.permutation(len(lengths))
    pool = len(index) if order is None else 32 * size
    batches = []
    for start in range(0, len(index), pool):
        part = index[start : start + pool]
        part = part[np.lexsort(lengths[part].T)]
        batches += [part[i : i + size] for i in range(0, len(part), size)]
    if order is not None:
        order.shuffle(batches)
    return batches
