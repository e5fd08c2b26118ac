"""Bags of instances: read from files, generated from digits, in folds and in batches."""

import collections
import csv
import io
import pathlib
from typing import NamedTuple

import numpy as np

from examples.common.files import read_text, refuse
from examples.common.training import Batches, budgeted

# The bags of a batch, and the instances of a padded batch, at most.
BATCH, CELLS = 16, 20_000
ID_COLUMNS = ("bag", "bag_id", "slide_id")


class Bags(NamedTuple):
    """Bags with a class each.

    Attributes:
        instances: `(N, D)`, the instances of all bags, one bag after the other.
        sizes: the number of instances of each bag.
        labels: the number of the class of each bag.
        classes: the names of the classes.
        names: the names of the bags.
        truth: `(N,)`, which instances make their bag positive, or None if nobody knows.
        places: `(N, 2)`, where the instances lie in an image, or None.
    """

    instances: np.ndarray
    sizes: np.ndarray
    labels: np.ndarray
    classes: list
    names: list
    truth: np.ndarray | None = None
    places: np.ndarray | None = None

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
        return [chosen[x] for x in budgeted(self.sizes[chosen][:, None], BATCH, CELLS, order)]

    def training(self, chosen, members, steps, seed):
        """The bags for `fit`, in epochs of so many batches. Each member sees all bags."""
        labels = np.repeat(self.labels[:, None], members, 1)
        return Batches(
            lambda order: self.batches(chosen, order),
            lambda rows: (self.padded(rows), labels[rows]),
            seed,
            steps,
        ).dataset()


def read(path, labels=None):
    """Reads bags. Ends the program with the reason where that is impossible.

    A `.csv` has a row for each instance: the columns `bag` and `label`, and features. Without a
    header the first column is the label and the second the bag. A folder has an HDF5 file for each
    bag, with a dataset `features` `(N, D)`; `labels` is a `.csv` with the columns `bag` (the name
    of the file without its end) and `label`.
    """
    path = pathlib.Path(path)
    if path.is_dir():
        bags = _read_folder(path, labels)
    elif path.is_file():
        bags = _read_table(path)
    else:
        refuse(path, "not there. Give a .csv with the columns bag and label, or a folder of .h5")
    for bag, name in enumerate(bags.names):
        if not np.isfinite(bags.instances[bags.of(bag)]).all():
            remedy = "Replace them, or leave the instance out"
            refuse(path, f"the bag {name!r} has features that are not finite. {remedy}")
    return bags


def _rows(path):
    lines = csv.reader(io.StringIO(read_text(path), newline=""))
    rows = [[x.strip() for x in row] for row in lines if row]
    if not rows:
        refuse(path, "is empty")
    return rows


def _columns(path, header):
    """The numbers of the columns of bags and labels."""
    names = [name.lower() for name in header]
    if "" in names:  # the index that pandas writes
        remedy = "With pandas, call to_csv(path, index=False)"
        refuse(path, f"column {names.index('') + 1} has no name. {remedy}")
    bag = next((names.index(x) for x in ID_COLUMNS if x in names), None)
    if bag is None or "label" not in names:
        refuse(path, f"needs the columns `bag` and `label`; it has {', '.join(header[:8])}")
    return bag, names.index("label")


def _read_table(path):
    rows, bag, label, first = _rows(path), 1, 0, 1
    names = [f"column {n}" for n in range(1, len(rows[0]) + 1)]
    try:
        [float(x) for x in rows[0]]
    except ValueError:
        names, (bag, label) = rows[0], _columns(path, rows[0])
        rows, first = rows[1:], 2
    features = [n for n in range(len(names)) if n not in (bag, label)]
    if not rows or not features:
        refuse(path, "needs rows of instances, with features beside the bag and the label")
    grouped, labels = collections.defaultdict(list), {}
    for number, row in enumerate(rows, first):
        line = f"{path}, line {number}"
        if len(row) != len(names):
            refuse(line, f"has {len(row)} columns, and the first line has {len(names)}")
        if not (row[bag] and row[label]):
            refuse(line, f"`{names[label] if row[bag] else names[bag]}` is empty")
        for n in features:
            try:
                float(row[n])
            except ValueError:
                wrong = f"the feature `{names[n]}` must be a number, not {row[n]!r}"
                refuse(line, f"{wrong}. Fill it, or leave the instance out")
        grouped[row[bag]].append(np.array([row[n] for n in features], "float32"))
        if labels.setdefault(row[bag], row[label]) != row[label]:
            both = f"{labels[row[bag]]!r} and {row[label]!r}"
            refuse(line, f"the bag {row[bag]!r} has the labels {both}. A bag has one label")
    return _made({name: np.stack(x) for name, x in grouped.items()}, labels)


def _read_folder(path, labels):
    import h5py

    if labels is None:
        refuse(path, "give --labels FILE.csv too, with the columns bag and label")
    header, *rows = _rows(labels)
    bag, label = _columns(labels, header)
    grouped, places = {}, []
    for row in rows:
        file = path / f"{row[bag]}.h5"
        if not file.is_file():
            refuse(labels, f"the bag {row[bag]!r} has no file {file}")
        with h5py.File(file) as opened:
            if "features" not in opened:
                refuse(file, f"has no dataset `features`; it has {', '.join(opened) or 'none'}")
            features = opened["features"][()]
            if "coords" in opened:
                places.append(opened["coords"][()].reshape(-1, 2))
        grouped[row[bag]] = features.reshape(-1, features.shape[-1]).astype("float32")
    if len({x.shape[1] for x in grouped.values()}) > 1:
        refuse(path, "the files have features of several widths")
    bags = _made(grouped, {row[bag]: row[label] for row in rows})
    places = np.concatenate(places) if len(places) == len(grouped) else None
    return bags._replace(places=places)


def _made(grouped, labels):
    names = list(grouped)
    classes, numbers = np.unique([labels[name] for name in names], return_inverse=True)
    sizes = np.array([len(grouped[name]) for name in names])
    return Bags(np.concatenate([*grouped.values()]), sizes, numbers, classes.tolist(), names)


def make_digits(train, test, seed):
    """Bags of 10 to 60 images of digits. Every other bag holds at least one 9.

    A tenth of the images of such a bag are nines. The first `train` bags and the `test` others
    share no image.
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
    classes = ["without a 9", "with a 9"]
    return Bags(images[rows].astype("float32"), sizes, labels, classes, names, digits[rows] == 9)


def check_classes(source, bags, folds):
    """Prints the size of each class. Ends the program where one is smaller than the folds."""
    counts = np.bincount(bags.labels)
    listed = ", ".join(f"{n} {name}" for n, name in zip(counts, bags.classes, strict=True))
    print(
        f"{source}: {len(bags.sizes)} bags ({listed}) of {bags.sizes.min()} to {bags.sizes.max()} "
        f"instances with {bags.instances.shape[1]} features"
    )
    if len(counts) < 2:
        refuse(source, f"all bags are of the class {bags.classes[0]!r}; at least two are needed")
    if counts.min() < folds:
        small = bags.classes[counts.argmin()]
        few = f"has {counts.min()} bags, fewer than the {folds} folds"
        refuse(source, f"the class {small!r} {few}. Give fewer --folds, at least 2, or more bags")


def parts(bags, folds, repeats, seed):
    """The names, the training bags and the test bags of every part of a cross-validation.

    Each class is spread over all folds.
    """
    from sklearn.model_selection import StratifiedKFold

    found = []
    for repeat in range(repeats):
        split = StratifiedKFold(folds, shuffle=True, random_state=seed + repeat).split
        for fold, part in enumerate(split(bags.labels, bags.labels), 1):
            found.append(({"repeat": repeat + 1, "fold": fold}, *part))
    return found
