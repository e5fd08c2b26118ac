"""Bags of instances: read from files, generated from digits, in folds and in batches."""

import math
from functools import partial
from typing import NamedTuple

import numpy as np

from examples.common.files import read_table, refuse
from examples.common.training import Batches, bucketed

# The bags of a batch, and the instances of a padded batch, at most.
BATCH, CELLS = 16, 20_000
ID_COLUMNS = ("bag", "bag_id", "slide_id")


class Bags(NamedTuple):
    """Bags with a class each.

    instances: `(N, D)`, those of all bags, one bag after the other. sizes, labels, names: of each
    bag; a label is the number of a class in `classes`. features: their names, or None. truth:
    `(N,)`, which instances make their bag positive, or None if nobody knows.
    """

    instances: np.ndarray
    sizes: np.ndarray
    labels: np.ndarray
    classes: list
    names: list
    features: list | None = None
    truth: np.ndarray | None = None

    def of(self, bag):
        """The rows of one bag."""
        end = self.sizes[: bag + 1].sum()
        return slice(end - self.sizes[bag], end)

    def padded(self, chosen):
        """Instances `(B, T, D)` and mask `(B, T)` of some bags. An empty bag has one masked row."""
        longest = max(self.sizes[chosen].max(initial=0), 1)
        padded = np.zeros((len(chosen), longest, self.instances.shape[1]), "float32")
        mask = np.arange(longest) < self.sizes[chosen][:, None]
        padded[mask] = np.concatenate([self.instances[self.of(bag)] for bag in chosen])
        return {"instances": padded, "mask": mask}

    def scaled(self, chosen):
        """All bags, standardised by the instances of some, and the mean and deviation of these."""
        rows = np.concatenate([self.instances[self.of(bag)] for bag in chosen])
        mean, deviation = rows.mean(axis=0), rows.std(axis=0)
        deviation[deviation < 1e-6] = 1
        return self._replace(instances=(self.instances - mean) / deviation), (mean, deviation)

    def batches(self, chosen, order=None):
        """Splits bags into batches of similar sizes, shuffled by a NumPy generator."""
        return [chosen[x] for x in bucketed(self.sizes[chosen], BATCH, order, CELLS)]

    def training(self, chosen, members, steps, seed):
        """The bags for `fit`, in epochs of so many batches. Each member sees all bags."""
        labels = np.repeat(self.labels[:, None], members, 1)
        split = partial(self.batches, chosen)
        return Batches(split, lambda x: (self.padded(x), labels[x]), seed, steps).dataset()


def read(path):
    """Reads a `.csv` with a row for each instance: the columns `bag` and `label`, and features.

    Without a header the first column is the label and the second the bag.
    """
    features, entries = _entries(path)
    if not entries or not features:
        refuse(path, "needs rows of instances, with features beside the bag and the label")
    grouped, labels = {}, {}
    for place, bag, label, cells in entries:
        for name, cell in zip(features, cells, strict=True):
            if not _is_number(cell):
                wrong = f"the feature `{name}` must be a finite number, not {cell!r}"
                refuse(place, f"{wrong}. Fill it, or leave the instance out")
        grouped.setdefault(bag, []).append([*map(float, cells)])
        if labels.setdefault(bag, label) != label:
            both = f"{labels[bag]!r} and {label!r}"
            refuse(place, f"the bag {bag!r} has the labels {both}. A bag has one label")
    classes, numbers = np.unique([*labels.values()], return_inverse=True)
    sizes = np.array([len(x) for x in grouped.values()])
    instances = np.concatenate([*grouped.values()]).astype("float32")
    return Bags(instances, sizes, numbers, classes.tolist(), [*grouped], features)


def _entries(path):
    """The names of the features, and for each row its line, bag, label and features."""
    rows = [(line, [cell.strip() for cell in cells]) for line, cells in read_table(path)]
    if not rows:
        refuse(path, "is empty")
    (first, names), bag, label = rows[0], 1, 0
    if len(names) > 1 and all(map(_is_number, names)):
        names = [f"column {n}" for n in range(1, len(names) + 1)]
    else:
        (bag, label), rows = _columns(f"{path}, line {first}", names), rows[1:]
    entries, others = [], [n for n in range(len(names)) if n not in (bag, label)]
    for line, cells in rows:
        place = f"{path}, line {line}"
        if len(cells) != len(names):
            refuse(place, f"has {len(cells)} columns, and the first line has {len(names)}")
        if not (cells[bag] and cells[label]):
            refuse(place, f"`{names[label] if cells[bag] else names[bag]}` is empty")
        entries.append((place, cells[bag], cells[label], [cells[n] for n in others]))
    return [names[n] for n in others], entries


def _is_number(text):
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _columns(place, header):
    """The numbers of the columns of bags and labels."""
    names, columns = [name.lower() for name in header], []
    if "" in names:  # the index that pandas writes
        refuse(place, f"column {names.index('') + 1} has no name")
    for wanted in (ID_COLUMNS, ("label",)):
        found = [n for n, name in enumerate(names) if name in wanted]
        if len(found) != 1:
            columns = ", ".join(header[:8])
            refuse(place, f"needs one column `{wanted[0]}`, and has {len(found)}: {columns}")
        columns += found
    return columns


def make_digits(train, test, seed):
    """Bags of 10 to 60 images of digits. Every other bag holds nines, a tenth of its images.

    The first `train` bags and the `test` others share no image.
    """
    from sklearn.datasets import load_digits

    images, digits = load_digits(return_X_y=True)
    rng = np.random.default_rng(seed)
    sizes, labels = rng.integers(10, 61, train + test), np.arange(train + test) % 2
    halves = np.array_split(rng.permutation(len(digits)), 2)
    chosen = []
    for bag, (size, label) in enumerate(zip(sizes, labels, strict=True)):
        half = halves[int(bag >= train)]
        rows = rng.choice(half[digits[half] != 9], size)
        if label:
            nines = rng.random(size) < 0.1
            nines[rng.integers(size)] = True
            rows[nines] = rng.choice(half[digits[half] == 9], nines.sum())
        chosen.append(rows)
    rows = np.concatenate(chosen)
    names = [str(bag + 1) for bag in range(len(sizes))]
    classes, instances = ["without a 9", "with a 9"], images[rows].astype("float32")
    return Bags(instances, sizes, labels, classes, names, truth=digits[rows] == 9)


def parts(bags, folds, repeats, seed):
    """The names, the training bags and the test bags of every part of a cross-validation."""
    from sklearn.model_selection import StratifiedKFold

    found = []
    for repeat in range(repeats):
        split = StratifiedKFold(folds, shuffle=True, random_state=seed + repeat).split
        for fold, part in enumerate(split(bags.labels, bags.labels), 1):
            found.append(({"repeat": repeat + 1, "fold": fold}, *part))
    return found
