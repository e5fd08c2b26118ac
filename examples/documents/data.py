"""The documents of a run: generated letters, or yours."""

import collections

import numpy as np

from examples.documents import letters, reading
from examples.documents.folds import labels_of, split_folds


def load_data(arguments):
    """Documents, and for letters the number of the sentence that decides each of them."""
    source, counts = arguments.data, collections.Counter()
    if source:
        found, deciding = reading.read(source), None
    else:
        source = f"--documents {arguments.documents}"
        found, deciding = letters.make(arguments.documents, arguments.seed)
        counts.update(dict.fromkeys(letters.WISHES, 0))
    if arguments.without:
        fold = split_folds(labels_of(found), arguments.folds)
        kept = np.flatnonzero(fold != arguments.without - 1)
        found, deciding = ([x[n] for n in kept] if x else x for x in (found, deciding))
    counts.update(document.label for document in found)
    listed = ", ".join(f"{count:,} {label}" for label, count in sorted(counts.items()))
    print(f"{source}: {len(found):,} documents ({listed})")
    small = min(counts, key=counts.get)
    fewest = counts[small]
    if fewest < arguments.folds:
        fewer = f"--folds {fewest}, or " if fewest > 1 else ""
        raise SystemExit(
            f"{source}: the class {small!r} has {fewest} documents, fewer than the "
            f"{arguments.folds} folds. Give {fewer}more documents. Nothing was written."
        )
    return found, deciding
