"""Batches of samples of similar length, so that little time is spent on padding."""

import numpy as np

POOL = 32  # batches


def bucketed(lengths, size, order=None):
    """Splits `range(len(lengths))` into index arrays of at most `size`.

    Args:
        lengths: `(N,)` or `(N, keys)`, the sort keys; the last column counts first.
        order: a NumPy generator to shuffle with, or None to keep everything sorted by length.

    Returns:
        A list of index arrays that together hold every index once. With `order`, samples are
        shuffled, sorted within pools of `POOL` batches, and the batches are shuffled again.
    """
    batches = []
    for part in _sorted_pools(lengths, size, order):
        batches += [part[i : i + size] for i in range(0, len(part), size)]
    if order is not None:
        order.shuffle(batches)
    return batches


def budgeted(sizes, size, cells, order=None):
    """Like `bucketed`, with smaller batches where the samples are large.

    Args:
        sizes: `(N, axes)`, the size of each sample along the padded axes.
        size: the largest number of samples in a batch.
        cells: the largest number of cells in a padded batch. A batch of one sample may have more.
        order: as in `bucketed`.
    """
    sizes = np.asarray(sizes)
    batches = []
    for part in _sorted_pools(np.column_stack([sizes, sizes.prod(axis=1)]), size, order):
        batch, widest = [], np.zeros(sizes.shape[1], sizes.dtype)
        for n in part:
            wider = np.maximum(widest, sizes[n])
            if batch and (len(batch) == size or (len(batch) + 1) * wider.prod() > cells):
                batches.append(np.array(batch))
                batch, wider = [], sizes[n]
            batch.append(n)
            widest = wider
        batches.append(np.array(batch))
    if order is not None:
        order.shuffle(batches)
    return batches


def _sorted_pools(lengths, size, order):
    lengths = np.column_stack([lengths])  # (N, keys)
    index = np.arange(len(lengths)) if order is None else order.permutation(len(lengths))
    pool = max(len(index), 1) if order is None else POOL * size
    for start in range(0, len(index), pool):
        part = index[start : start + pool]
        yield part[np.lexsort(lengths[part].T)]
