"""The documents of a run: generated letters, or yours."""

import collections

from examples.documents import letters, reading


def load_data(arguments):
    """Documents, and for letters the number of the sentence that decides each of them."""
    source, counts = arguments.data, collections.Counter()
    if source:
        found, deciding = reading.read(source), None
    else:
        source = f"--documents {arguments.documents}"
        found, deciding = letters.make(arguments.documents, arguments.seed)
        counts.update(dict.fromkeys(letters.WISHES, 0))
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
