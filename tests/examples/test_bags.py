"""Bags of instances: files, generated digits, batches, poolings, and whole commands."""

import csv
import json

import numpy as np
import pytest

from examples.bags import __main__ as command
from examples.bags.data import read
from examples.bags.model import build_model, with_scaling
from tests.examples import assert_ends
from tests.helpers import assert_close, normal

HEADER = ["x", "Bag", "y", "label"]
ROWS = [["1", "b", "2", "yes"], ["3", "a", "4", "no"], ["5", "b", "6", "yes"], [*"7c8", "yes"]]
PLAIN = [[*"1712"], [*"0534"], [*"1756"], [*"1978"]]


def write(path, rows):
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)
    return path


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


@pytest.mark.parametrize(("rows", "fragment"), [
    ([], "is empty"),
    ([["bag", "x"], ["a", "1"]], "needs one column `label`, and has 0: bag, x"),
    ([[*HEADER, "slide_id"], [*ROWS[0], "1"]], "line 1: needs one column `bag`, and has 2"),
    ([["", *HEADER], ["0", *ROWS[0]]], "column 1 has no name"),
    ([HEADER, [*ROWS[0][:3], "no"], ROWS[0]], "line 3: the bag 'b' has the labels 'no' and"),
    ([HEADER, ROWS[0], ["nan", "b", "2", "yes"]], "line 3: the feature `x` must be a finite"),
    ([HEADER, ROWS[0], ["", "b", "2", "yes"]], "not ''. Fill it, or leave the instance out"),
    ([HEADER, ROWS[0], [], ["1", "", "2", "yes"]], "line 4: `Bag` is empty"),
    ([HEADER, ["1", "b\n2", "2", "yes"], ["3", "c", "4"]],
     "line 4: has 3 columns, and the first line has 4"),
])  # fmt: skip
def test_bad_tables(tmp_path, rows, fragment):
    path = write(tmp_path / "bags.csv", rows)
    assert_ends(lambda: read(path), str(path), fragment)


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


@pytest.mark.slow
def test_the_command_learns_saves_and_resumes(tmp_path, monkeypatch, capsys):
    for name, value in {"TRAIN": 20, "TEST": 10, "STEPS": 2, "MEMBERS": 2}.items():
        monkeypatch.setattr(command, name, value)
    argv = ["--output", str(tmp_path / "out")]
    command.main([*argv, "--pooling", "gated", "--folds", "2"])
    printed = capsys.readouterr().out
    assert "difference after reloading" in printed
    assert "gradient times input" in printed
    assert (tmp_path / "out" / "gated" / "bag.png").read_bytes().startswith(b"\x89PNG")
    command.main([*argv, "--pooling", "gated", "max", "--folds", "2"])
    assert "gated, repeat 1, fold 1 of 1" in printed
    assert "gated, repeat" not in capsys.readouterr().out
    results = json.loads((tmp_path / "out" / "results.json").read_text("utf-8"))
    assert [x["pooling"] for x in results] == ["gated", "SVM", "gradient boosting", "max"]
    assert all("instance AUC" in x for x in results if x["pooling"] in ("gated", "max"))
