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
    ],
)
def test_bad_tables(tmp_path, rows, fragment):
    path = write(tmp_path / "bags.csv", rows)
    assert_ends(lambda: read(path), str(path), fragment)


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


@pytest.mark.parametrize("count", [8, 39, 40])
def test_the_baselines_learn_from_few_bags(count, tmp_path):
    labels, sizes, chosen = np.arange(count) % 2, np.ones(count, int), np.arange(count)
    bags = Bags(labels[:, None].astype("float32"), sizes, labels, ["no", "yes"], [])
    results = Results(tmp_path / "results.json", {})
    evaluation.add_baselines(results, {}, bags, chosen, chosen, seed=1)
    assert [entry["accuracy"] for entry in results.results] == [100, 100]


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
