"""Reports the accuracy over the folds, and compares the poolings fold by fold."""

import numpy as np


def report(results, arguments, task):
    folds, found = range(1, arguments.runs + 1), {}
    print(
        f"\n{len(task.texts):,} documents, {len(folds)} of {arguments.folds} folds; mean and "
        "standard deviation over them"
    )
    for pooling in arguments.pooling:
        entries = [results.find(pooling=pooling, fold=fold) for fold in folds]
        found[pooling] = np.array([entry["accuracy"] for entry in entries])
        print(f"{pooling}: accuracy {spread(found[pooling])}%")
        if "deciding" in entries[0]:
            deciding = np.mean([entry["deciding"] for entry in entries])
            print(f"  the sentence with the largest weight decides in {deciding:.1f}%")
    for pooling in arguments.pooling:
        if "attention" in found and pooling != "attention":
            print(f"attention over {pooling}: {spread(found['attention'] - found[pooling])} points")
    if arguments.smoke and min(scores.mean() for scores in found.values()) < 90:
        raise SystemExit("smoke run: expected at least 90% right")


def spread(values):
    return f"{values.mean():.2f}" + (f" ± {values.std(ddof=1):.2f}" if len(values) > 1 else "")
