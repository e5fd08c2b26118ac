"""The records that commands write with `--record`."""

import argparse
import datetime
import importlib
import sys
import tomllib

import numpy as np
import pytest

from examples.common.records import add_record, write_record
from tests import ROOT

OLD = """
[figures]
gone = 1

[headlines]
right = "{scores, right:.1f}% of {n}, {table[a, b][x]}"
"""


def test_a_record_is_read_by_the_site_and_keeps_its_headlines(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "_ext"))
    records = importlib.import_module("records")
    monkeypatch.setattr(records, "FOLDER", tmp_path)
    monkeypatch.setattr(sys, "orig_argv", ["/bin/python3", "-m", "examples.x", "--output", "a b"])
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    path = tmp_path / "run.toml"
    path.write_text(OLD, "utf-8")
    scores = {"right": np.float32(75.25), "all": [1], "keras": "0"}
    figures = {"n": 4, "scores": scores, "unknown": None}
    table = [["", "", "x"], ["a", "b", "0.50"], ["a", "±", "1e-07"]]
    write_record(path, {**figures, "command": "twice"}, {"table": table}, seeds=[1, 2])
    assert [file.name for file in tmp_path.iterdir()] == ["run.toml"]
    assert records.headlines("run") == ["75.2% of 4, 0.50"]
    found = tomllib.loads(path.read_text("utf-8"))
    assert found["figures"] == {"n": 4, "scores, right": 75.25}
    assert found["tables"]["table"] == [["", "", "x"], ["a", "b", 0.5], ["a", "±", "1e-07"]]
    assert found["command"] == "KERAS_BACKEND=jax python -m examples.x --output 'a b'"
    assert found["date"] == datetime.date.today()
    assert found["seeds"] == [1, 2]
    assert {"python", "keras"} <= found["versions"].keys()
    assert "cores" in found["machine"]


def test_nothing_is_written_without_the_option_or_with_a_figure_that_is_not_finite(
    tmp_path, capsys
):
    parser = argparse.ArgumentParser()
    add_record(parser)
    write_record(parser.parse_args([]).record, {"x": 1})
    path = parser.parse_args(["--record", str(tmp_path / "x.toml")]).record
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_record(path, {"x": float("nan")})
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(SystemExit):
        parser.parse_args(["--record", str(tmp_path / "missing" / "x.toml")])
    assert f"the folder {tmp_path / 'missing'} does not exist" in capsys.readouterr().err
