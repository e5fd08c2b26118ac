"""Reports the accuracy over the folds, and compares attention with the others fold by fold."""

import numpy as np

from examples.documents.baselines import BASELINES


def report(results, arguments, task):
    folds, found = range(1, arguments.runs + 1), {}
    print(
        f"\n{len(task.texts):,} documents, {len(folds)} of {arguments.folds} folds; mean and "
        "standard deviation over them"
    )
    for pooling in (*arguments.pooling, *BASELINES):
        entries = [results.find(pooling=pooling, fold=fold) for fold in folds]
        if None in entries:
            continue  # linear models need a word in every fold
        found[pooling] = np.array([entry["accuracy"] for entry in entries])
        print(f"{pooling}: accuracy {spread(found[pooling])}%")
        if "deciding" in entries[0]:
            deciding = np.mean([entry["deciding"] for entry in entries])
            print(f"  the sentence with the largest weight decides in {deciding:.1f}%")
    for pooling in found:
        if "attention" in found and pooling != "attention":
            gain = found["attention"] - found[pooling]
            print(f"attention over {pooling}: {spread(gain)} points{standard_error(gain)}")
    if arguments.smoke and min(found[pooling].mean() for pooling in arguments.pooling) < 90:
        raise SystemExit("smoke run: expected at least 90% right")


def spread(values):
    return f"{values.mean():.2f}" + (f" ± {values.std(ddof=1):.2f}" if len(values) > 1 else "")


def standard_error(values):
    count = len(values)
    return f", standard error {values.std(ddof=1) / count**0.5:.2f}" if count > 1 else ""
