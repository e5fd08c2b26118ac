"""Bags of instances: files, generated digits, batches, poolings, and whole commands."""

import csv
import json

import h5py
import numpy as np
import pytest

from examples.bags import __main__ as command
from examples.bags import evaluation
from examples.bags.data import Bags, make_digits, parts, read
from examples.bags.model import DropInstances, build_model, pool, with_scaling
from examples.common.files import Results
from tests.helpers import assert_close, normal
from tests.plotting.figures import assert_nothing_is_cut_off

HEADER = ["x", "Bag", "y", "label"]
ROWS = [
    ["1", "b", "2", "yes"],
    ["3", "a", "4", "no"],
    ["5", "b", "6", "yes"],
    ["7", "c", "8", "yes"],
]


def write(path, rows):
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)
    return path


def assert_ends(function, *fragments):
    with pytest.raises(SystemExit) as raised:
        function()
    for fragment in (*fragments, "Nothing was written."):
        assert fragment in str(raised.value)


PLAIN = [["1", "7", "1", "2"], ["0", "5", "3", "4"], ["1", "7", "5", "6"], ["1", "9", "7", "8"]]


@pytest.mark.parametrize(
    ("rows", "classes", "names"),
    [([HEADER, *ROWS], ["no", "yes"], [*"bac"]), (PLAIN, ["0", "1"], [*"759"])],
    ids=["header", "label and bag come first"],
)
def test_a_table_has_a_row_for_each_instance(tmp_path, rows, classes, names):
    bags = read(write(tmp_path / "bags.csv", rows))
    assert bags.instances.tolist() == [[1, 2], [5, 6], [3, 4], [7, 8]]
    assert bags.sizes.tolist() == [2, 1, 1]
    assert bags.labels.tolist() == [1, 0, 1]
    assert (bags.classes, bags.names) == (classes, names)


def test_a_folder_has_a_file_for_each_bag(tmp_path):
    features = {"one": normal(1, 3, 5), "two": normal(2, 1, 2, 5)}  # TRIDENT may add an axis
    for name, x in features.items():
        with h5py.File(tmp_path / f"{name}.h5", "w") as file:
            file["features"] = x
            file["coords"] = np.arange(x.size // 5 * 2).reshape(-1, 2)
    labels = write(tmp_path / "labels.csv", [["slide_id", "label"], ["two", "0"], ["one", "1"]])
    bags = read(tmp_path, labels)
    assert bags.names == ["two", "one"]
    assert bags.sizes.tolist() == [2, 3]
    assert bags.places.tolist() == [[0, 1], [2, 3], [0, 1], [2, 3], [4, 5]]
    assert_close(bags.instances[2:], features["one"], "float32")
    assert_ends(lambda: read(tmp_path), "give --labels FILE.csv too")
    write(labels, [["slide_id", "label"], ["three", "0"]])
    assert_ends(lambda: read(tmp_path, labels), "the bag 'three' has no file")


@pytest.mark.parametrize(
    ("rows", "fragment"),
    [
        ([], "is empty"),
        ([["bag", "x"], ["a", "1"]], "needs the columns `bag` and `label`; it has bag, x"),
        ([HEADER, [*ROWS[0][:3], "no"], ROWS[0]], "line 3: the bag 'b' has the labels 'no' and"),
        ([HEADER], "needs rows of instances"),
        ([["label", "bag"], ["1", "a"]], "needs rows of instances, with features"),
        ([["", *HEADER], ["0", *ROWS[0]]], "column 1 has no name. With pandas, call to_csv"),
        (
            [HEADER, ROWS[0], ["word", "b", "2", "yes"]],
            "line 3: the feature `x` must be a number, ",
        ),
        ([HEADER, ROWS[0], ["", "b", "2", "yes"]], "not ''. Fill it, or leave the instance out"),
        ([HEADER, ROWS[0], ["1", "", "2", "yes"]], "line 3: `Bag` is empty"),
        ([HEADER, ROWS[0], ["1", "b", "2", " "]], "line 3: `label` is empty"),
        ([HEADER, ROWS[0], ROWS[1][:3]], "line 3: has 3 columns, and the first line has 4"),
        ([HEADER, ["nan", "b", "2", "yes"]], "the bag 'b' has features that are not finite"),
        ([HEADER, ROWS[0], [], ["3", "c", "4", ""]], "line 4: `label` is empty"),
        (
            [[*HEADER, "Label"], [*ROWS[0], "1"]],
            "line 1: the columns 4, `label`, and 5, `Label`, both name the label. Remove one",
        ),
        (
            [[*HEADER, "slide_id"], [*ROWS[0], "1"]],
            "2, `Bag`, and 5, `slide_id`, both name the bag",
        ),
        (
            [HEADER, ["1", "b\n2", "2", "yes"], ["3", "c", "4"]],
            "line 4: has 3 columns, and the first line has 4",
        ),
    ],
)
def test_bad_tables(tmp_path, rows, fragment):
    path = write(tmp_path / "bags.csv", rows)
    assert_ends(lambda: read(path), str(path), fragment)


FEATURES = normal(1, 3, 5)
LABELS = [["bag", "label"], ["a", "yes"]]


def write_h5(path, **arrays):
    with h5py.File(path, "w") as file:
        for name, x in arrays.items():
            file[name] = x


@pytest.mark.parametrize(
    ("labels", "fragment"),
    [
        ([LABELS[0]], "needs a row for each bag, after the names of the columns"),
        ([LABELS[0], ["a"]], "line 2: has 1 columns, and the first line has 2"),
        ([LABELS[0], ["a", ""]], "line 2: `label` is empty"),
        ([LABELS[0], ["", "yes"]], "line 2: `bag` is empty"),
        ([*LABELS, ["a", "no"]], "line 3: the bag 'a' has the labels 'yes' and 'no'"),
        ([["bag", "label", "label"], ["a", "yes", "no"]], "line 1: the columns 2, `label`, and 3"),
        ([*LABELS, ["b", "no"]], "line 3: the bag 'b' has no file"),
    ],
)
def test_bad_labels_of_a_folder(tmp_path, labels, fragment):
    write_h5(tmp_path / "a.h5", features=FEATURES)
    path = write(tmp_path / "labels.csv", labels)
    assert_ends(lambda: read(tmp_path, path), str(path), fragment)


def test_a_bag_may_have_its_one_label_twice(tmp_path):
    write_h5(tmp_path / "a.h5", features=FEATURES, coords=np.arange(6).reshape(3, 2))
    bags = read(tmp_path, write(tmp_path / "labels.csv", [*LABELS, LABELS[1]]))
    assert (bags.names, bags.classes, bags.places.tolist()) == (
        ["a"],
        ["yes"],
        [[0, 1], [2, 3], [4, 5]],
    )


@pytest.mark.parametrize(
    ("arrays", "fragment"),
    [
        (
            {"features": ["text"]},
            "`features` must be numbers, a row for each instance; it is object",
        ),
        (
            {"features": 3.0},
            "`features` must be numbers, a row for each instance; it is float64 of",
        ),
        ({"features": np.zeros((0, 5))}, "`features` must be numbers, a row for each instance"),
        ({"features": np.zeros((5, 0))}, "`features` must be numbers, a row for each instance"),
        ({"features": FEATURES + 1j}, "it is complex128 of shape (3, 5)"),
        ({"features": FEATURES, "coords": "a"}, "`coords` must be numbers"),
        ({"features": FEATURES, "coords": FEATURES[:, :1]}, "`features` has 3 instances, and"),
        ({"other": FEATURES}, "has no dataset `features`; it has other"),
    ],
)
def test_bad_files_of_a_folder(tmp_path, arrays, fragment):
    write_h5(tmp_path / "a.h5", **arrays)
    labels = write(tmp_path / "labels.csv", LABELS)
    assert_ends(lambda: read(tmp_path, labels), str(tmp_path / "a.h5"), fragment)


@pytest.mark.parametrize("size", [0, 100, 1500])
def test_a_file_that_is_no_hdf5_or_is_cut_off(tmp_path, size):
    write_h5(tmp_path / "a.h5", features=np.zeros((100, 5)))
    content = (tmp_path / "a.h5").read_bytes()
    (tmp_path / "a.h5").write_bytes(content[:size] or b"text")
    labels = write(tmp_path / "labels.csv", LABELS)
    path = str(tmp_path / "a.h5")
    assert_ends(lambda: read(tmp_path, labels), f"{path}: cannot be read as HDF5")


@pytest.mark.parametrize("rows", [1, 20_000], ids=["small", "over 128 KiB"])
def test_a_stray_quote_swallows_no_rows(tmp_path, rows):
    path = tmp_path / "bags.csv"
    path.write_text('bag,label,x\na,yes,1\na,"yes,1\n' + "b,no,2\n" * rows, encoding="utf-8")
    assert_ends(lambda: read(path), f"{path}, line 3: a quote is in the wrong place", "Close it")


def test_spaces_around_values_do_not_matter(tmp_path):
    path = tmp_path / "bags.csv"
    path.write_text("bag, label, x\na, yes, 1\na , yes,2\n", encoding="utf-8")
    bags = read(path)
    assert (bags.classes, bags.names, bags.sizes.tolist()) == (["yes"], ["a"], [2])


def test_too_few_bags_of_a_class(tmp_path):
    rows = [HEADER, *[["1", str(n), "2", "yes" if n else "no"] for n in range(9)]]
    path = write(tmp_path / "bags.csv", rows)
    argv = ["--data", str(path), "--output", str(tmp_path / "out")]
    assert_ends(lambda: command.main(argv), "the class 'no' has 1 bags, fewer than the 10 folds")


def test_a_path_that_is_not_there(tmp_path):
    assert_ends(lambda: read(tmp_path / "no.csv"), "not there. Give a .csv")


def test_bags_of_digits():
    bags = make_digits(20, 30, seed=3)
    assert bags.sizes.min() >= 10
    assert bags.sizes.max() <= 60
    held = [bags.truth[bags.of(bag)].any() for bag in range(50)]
    assert held == (bags.labels == 1).tolist()
    halves = np.split(bags.instances, [bags.of(20).start])
    first, second = ({image.tobytes() for image in half} for half in halves)
    assert not first & second


def test_padded_bags_and_scaled_ones():
    bags = make_digits(6, 0, seed=3)
    chosen = np.array([4, 1])
    given = bags.padded(chosen)
    for row, bag in enumerate(chosen):
        size = bags.sizes[bag]
        np.testing.assert_array_equal(given["instances"][row, :size], bags.instances[bags.of(bag)])
        assert given["mask"][row].tolist() == [n < size for n in range(max(bags.sizes[chosen]))]
    assert not given["instances"][~given["mask"]].any()
    scaled, (mean, deviation) = bags.scaled(chosen)
    rows = np.concatenate([scaled.instances[bags.of(bag)] for bag in chosen])
    np.testing.assert_allclose(rows.mean(0), 0, atol=1e-5)
    np.testing.assert_allclose(scaled.instances * deviation + mean, bags.instances, atol=1e-4)


def test_every_bag_is_tested_once():
    bags = make_digits(20, 0, seed=3)
    tests = [test for _, _, test in parts(bags, 5, repeats=2, seed=1)]
    for repeat in (tests[:5], tests[5:]):
        assert sorted(np.concatenate(repeat)) == list(range(20))
    assert all(np.bincount(bags.labels[test]).tolist() == [2, 2] for test in tests)


@pytest.mark.parametrize("kind", ["mean", "max"])
def test_plain_poolings(kind):
    bags, mask = normal(1, 3, 5, 7), np.arange(5) < np.array([[5], [2], [0]])
    bags[~mask] = np.nan
    found = pool(bags.astype("float32"), mask, kind)
    pooled = np.mean if kind == "mean" else np.max
    expected = [pooled(bags[0], axis=0), pooled(bags[1, :2], axis=0), np.zeros(7)]
    assert_close(found, expected, "float32")


def test_dropped_instances():
    mask = np.arange(400) < np.array([[400], [12], [7], [0]])
    drop = DropInstances(0.5)
    np.testing.assert_array_equal(drop(mask), mask)
    for _ in range(20):
        kept = np.array(drop(mask, training=True))
        assert not (kept & ~mask).any()
        assert 8 <= kept[1].sum() <= 12
        assert kept[2:].sum(axis=1).tolist() == [7, 0]
        assert 0.3 < kept[0].mean() < 0.7
    np.testing.assert_array_equal(DropInstances(0.0)(mask, training=True), mask)


def test_the_reader_averages_members_and_knows_the_scale():
    model, reader = build_model(7, 2, "gated", [11], 0.3, members=3)
    bags, mask = normal(1, 2, 4, 7).astype("float32"), np.arange(4) < np.array([[4], [2]])
    logits = model.predict_on_batch({"instances": bags, "mask": mask})
    assert logits.shape == (2, 3, 2)
    found = reader.predict_on_batch({"instances": bags, "mask": mask})
    exponents = np.exp(logits)
    expected = (exponents / exponents.sum(2, keepdims=True)).mean(1)
    assert_close(found["probabilities"], expected, "float32")
    assert_close(found["weights"].sum(1), np.ones(2), "float32")
    mean, deviation = normal(2, 7), 1 + np.abs(normal(3, 7))
    raw = {"instances": (bags * deviation + mean).astype("float32"), "mask": mask}
    again = with_scaling(reader, mean, deviation).predict_on_batch(raw)
    np.testing.assert_allclose(again["weights"], found["weights"], atol=1e-4)


@pytest.mark.parametrize(("asked", "steps"), [(4, 5), (9, 10)])
def test_a_training_has_the_steps_of_its_schedule(asked, steps):
    options = command.parse(["--steps", str(asked), "--members", "1"])
    bags, chosen = make_digits(6, 0, seed=3), np.arange(6)
    model, _, make_twin = command.build(bags, "mean", options)
    command.train(model, make_twin, bags, chosen, 1, options)
    rate, done = model.optimizer._learning_rate, int(model.optimizer.iterations)
    assert done == options.steps == steps
    assert float(rate(done)) == 0 < float(rate(done - 1))


def test_the_report_names_what_the_largest_class_gets_right(tmp_path, capsys):
    labels = np.arange(20) // 19
    bags = Bags(np.zeros((20, 1)), np.ones(20, int), labels, ["often", "rare"], [])
    results = Results(tmp_path / "results.json", {})
    results.add({"pooling": "mean", "repeat": 1, "fold": 1, "accuracy": 95.0})
    evaluation.report(results, ["mean"], bags)
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[2:4] == [["always", "often", "95.0"], ["mean", "95.0"]]


class Reader:
    """Sees the feature 0 alone, and gives its weights to the instances that have it, or others."""

    def __init__(self, right):
        self.right = right

    def predict_on_batch(self, given):
        seen = given["instances"][:, :, 0].sum(axis=1) / 4
        weights = given["instances"][:, :, 0] if self.right else given["instances"][:, :, 1]
        return {"probabilities": np.stack([1 - seen, seen], axis=1), "weights": weights}


@pytest.mark.parametrize("right", [True, False])
def test_weights_that_lose_to_random_ones_are_no_reasons(right, monkeypatch):
    """Of 40 instances four decide, which hold a feature of their own."""
    rng = np.random.default_rng(0)
    instances = np.zeros((20, 40, 2), "float32")
    for bag in instances:
        bag[rng.permutation(40), (np.arange(40) >= 4).astype(int)] = 1
    bags = Bags(instances.reshape(-1, 2), np.full(20, 40), np.arange(20) % 2, ["no", "yes"], [])
    monkeypatch.setattr(evaluation, "gradients", lambda *given: np.zeros((len(given[2]), 40)))
    table, matter = evaluation.measure_reasons(Reader(right), bags, np.arange(20))
    assert matter is right
    assert (evaluation.NO_REASONS in table) is not right
    # Without the four deciding instances, the probability falls from 1 to 0.
    lost = ["1.000", "0.000"] if right else ["0.000", "1.000"]
    assert table.splitlines()[2].split() == ["weights", *lost]


def test_the_picture_names_the_features_far_from_the_mean_and_weights_that_lose(tmp_path):
    rows = np.zeros((40, 230))
    rows[::2] = 1  # a mean of 0.5, and a deviation of 0.5
    rows[0, [7, 200]] = 9, -50  # in deviations, the instance 0 is farther away in the second one
    table = [["bag", *(f"protein{n}" for n in range(230)), "label"]]
    table += [["a", *map(str, row), "yes"] for row in rows]
    bags = read(write(tmp_path / "bags.csv", table))
    scaled, _ = bags.scaled(np.array([0]))
    weights = np.eye(40)[0]
    for matter in (True, False):
        figure = evaluation.draw(bags, scaled, 0, weights, matter)
        [axes] = figure.axes
        label = axes.get_yticklabels()[0].get_text()
        assert label.startswith("0: protein200 -50, protein7 9, protein")
        assert "…" not in label
        assert (evaluation.NO_REASONS in figure.get_supxlabel()) is not matter
        assert_nothing_is_cut_off(figure)


def test_a_picture_of_places_or_images_says_that_weights_lose():
    bags = make_digits(2, 0, seed=3)
    places = np.arange(2 * len(bags.instances)).reshape(-1, 2)
    for each in (bags, bags._replace(truth=None, places=places)):
        figure = evaluation.draw(each, each, 1, np.ones(each.sizes[1]), False)
        assert figure.get_supxlabel() == evaluation.NO_REASONS
        assert_nothing_is_cut_off(figure)


@pytest.mark.parametrize("count", [8, 39, 40])
def test_the_baselines_learn_from_few_bags(count, tmp_path):
    labels, sizes, chosen = np.arange(count) % 2, np.ones(count, int), np.arange(count)
    bags = Bags(labels[:, None].astype("float32"), sizes, labels, ["no", "yes"], [])
    results = Results(tmp_path / "results.json", {})
    evaluation.add_baselines(results, {}, bags, chosen, chosen, seed=1)
    assert [entry["accuracy"] for entry in results.results] == [100, 100]


def test_the_command_estimates_the_time_left_without_tracing(tmp_path, monkeypatch, capsys):
    """Trainings of 3 minutes and baselines of 1; at first a model takes 50 more, to be traced."""
    minutes, traced = [0.0], set()

    def train(model, *given):
        minutes[0] += 3 if model in traced else 53
        traced.add(model)
        return 3 * 60

    def add_baselines(*given):
        minutes[0] += 1

    rows = [[str(n), f"bag {n}", str(n), "no" if n % 2 else "yes"] for n in range(12)]
    path = write(tmp_path / "bags.csv", [HEADER, *rows])
    monkeypatch.setattr(command.time, "perf_counter", lambda: 60 * minutes[0])
    monkeypatch.setattr(command, "build", lambda bags, pooling, options: (pooling, None, None))
    monkeypatch.setattr(command, "train", train)
    monkeypatch.setattr(evaluation, "evaluate", lambda *given: {"accuracy": 50.0})
    monkeypatch.setattr(evaluation, "add_baselines", add_baselines)
    for name in ("save", "report"):
        monkeypatch.setattr(evaluation, name, lambda *given: None)
    argv = ["--data", str(path), "--folds", "3", "--pooling", "gated", "mean"]
    command.main([*argv, "--output", str(tmp_path / "out")])
    told = [line.rsplit(", ", 1)[1] for line in capsys.readouterr().out.splitlines()[1:]]
    # Before they were measured, the baselines count as long as a training.
    left = [5 * 3 + 3 * 3, 4 * 3 + 3 * 3, 3 * 3 + 2, 2 * 3 + 2, 3 + 1]
    assert told == [*(f"about {n} min left" for n in left), "about 1 min left"]


@pytest.mark.slow
def test_the_command_learns_saves_and_resumes(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(command, "TRAIN", 20)
    monkeypatch.setattr(command, "TEST", 10)
    argv = ["--output", str(tmp_path / "out"), "--steps", "10", "--members", "2"]
    command.main([*argv, "--pooling", "gated", "--folds", "2"])
    printed = capsys.readouterr().out
    assert "The reloaded SavedModel agrees" in printed
    assert "gradient times input" in printed
    assert (tmp_path / "out" / "gated" / "bag.png").read_bytes().startswith(b"\x89PNG")
    command.main([*argv, "--pooling", "gated", "max", "--folds", "2"])
    assert "gated, repeat 1, fold 1 of 1" in printed
    assert "gated, repeat" not in capsys.readouterr().out
    results = json.loads((tmp_path / "out" / "results.json").read_text("utf-8"))
    names = [x["pooling"] for x in results]
    assert names == ["gated", "SVM", "gradient boosting", "max"]
    assert all("instance AUC" in x for x in results if x["pooling"] in ("gated", "max"))
