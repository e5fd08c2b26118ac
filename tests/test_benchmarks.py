"""The variants that a benchmark compares compute the same. Nothing is timed here."""

import etth
import flow
import hierarchy
import keras
import large_bags
import memory_network
import numpy as np
import pytest

SIZES = {"batch": 2, "context": 7, "query": 3, "units": 5}


def test_both_forms_of_the_flow_agree():
    flow.assert_agree(SIZES)


def test_both_forms_of_a_large_bag_agree():
    (ours, weights), (plain, others) = (large_bags.function_of(x, 7) for x in ("ours", "plain"))
    bag = np.random.default_rng(0).normal(size=(1, 7, large_bags.FEATURES)).astype("float32")
    for n, (weight, other) in enumerate(zip(weights, others, strict=True)):
        weight.assign(np.random.default_rng(n).normal(scale=0.1, size=weight.shape))
        other.assign(keras.ops.reshape(weight, other.shape))
    np.testing.assert_allclose(ours(bag), plain(bag), atol=1e-5)


def write_hours(path, count):
    numbers = np.random.default_rng(0).normal(size=(count, 7)).round(3)
    rows = [",".join(["2016-07-01", *map(str, row)]) for row in numbers]
    path.write_text("\n".join(["date,a,b,c,d,e,f,g", *rows]))
    return path


def test_the_table_of_etth_has_a_header(tmp_path, monkeypatch, capsys):
    path = write_hours(tmp_path / "hours.csv", 360)
    monkeypatch.setattr(etth, "PARTS", (200, 280, 360))
    monkeypatch.setattr(etth, "fit", lambda *given: None)
    options = ["--horizons", "24", "--history", "48", "--attention-history", "24"]
    monkeypatch.setattr("sys.argv", ["etth.py", str(path), *options])
    etth.main()
    header, *rows = (line.split() for line in capsys.readouterr().out.splitlines())
    assert header == ["horizon", "model", "squared", "absolute", "seconds"]
    assert [row[:2] for row in rows] == [
        ["24", name] for name in ("persistence", "ridge", "DLinear", "attention")
    ]
    table = etth.read(path)
    test = np.array([table[n : n + 24] for n in range(280, 337)])
    gaps = test - np.array([table[n - 24 : n] for n in range(280, 337)])
    assert rows[0][2:4] == [f"{np.mean(gaps**2):.3f}", f"{np.mean(np.abs(gaps)):.3f}"]


@pytest.mark.parametrize(
    ("change", "fragment"),
    [
        (lambda path: path.unlink(), "not found"),
        (lambda path: write_hours(path, 359), "359 hours, fewer than 360"),
        (lambda path: path.write_text("date,a\nx,1\n"), "invalid column index 2 at row 1"),
        (lambda path: path.write_text("date\nx" + ",a" * 7), "could not convert string 'a'"),
    ],
)
def test_files_that_are_no_etth(change, fragment, tmp_path, monkeypatch):
    monkeypatch.setattr(etth, "PARTS", (200, 280, 360))
    path = write_hours(tmp_path / "hours.csv", 360)
    change(path)
    with pytest.raises(SystemExit, match=rf"{path}: .*{fragment}.*as ETTh1.csv\."):
        etth.read(path)


def test_the_outlier_is_wrapped_and_loses_nothing():
    alone, whole, wrapped = (
        hierarchy.make_documents(*case) for case in ((False, None), (True, None), (True, 25))
    )
    sizes = [sum(len(x) for y in data.ids for x in y) for data in (alone, whole, wrapped)]
    assert sizes[0] + 1500 < sizes[1] == sizes[2]
    assert whole.sizes.max(axis=0).tolist() == [120, 200]
    assert wrapped.sizes.max(axis=0).tolist() == [127, 25]
    assert np.array_equal(whole.sizes[:-1], alone.sizes)


TINY = {"words": 11, "sentences": 5, "length": 3, "units": 7}


@pytest.mark.slow
def test_all_modes_of_training_agree():
    memory_network.assert_agree(TINY)
