"""Translation: data, errors, resuming, and a short run of the whole command."""

import json
import subprocess
import sys

import pytest

from examples.common import dates
from examples.translation import __main__ as command
from examples.translation import data, shards
from tests import Killed

pytest.importorskip("sentencepiece", reason="the tokenizers need it")


def write(path, text, encoding="utf-8"):
    path.write_bytes(text.encode(encoding))
    return str(path)


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        ("eins\nzwei\ndrei\n", "one\ntwo\n", "a has more lines than .*b, which has 2: line n of"),
        ("a\n" * 40, "a\n" * 45, "b has more lines than .*a, which has 40"),
        ("fine\nsch\udcf6n\n", "one\ntwo\n", "a, line 2: not UTF-8"),
        ("fine\na\0\n", "one\ntwo\n", "a, line 2: holds a NUL.*iconv -f utf-16"),
        ("\n\n", "\none\n", "hold no pair"),
        ("", "", "hold no pair"),
        ("one\n", None, "b: No such file"),
    ],
)
def test_files_that_do_not_fit_are_refused_before_anything_is_written(
    tmp_path, source, target, message
):
    paths = [tmp_path / "a", tmp_path / "b"]
    for path, text in zip(paths, (source, target), strict=True):
        if text is not None:
            path.write_bytes(text.encode("utf-8", "surrogateescape"))
    before, pair = sorted(tmp_path.iterdir()), [*map(str, paths)]
    files = ["--train", *pair, "--valid", *pair, "--test", *pair]
    with pytest.raises(SystemExit, match=message):
        command.main([*files, "--output", str(tmp_path / "output")])
    with pytest.raises(SystemExit, match=message):
        shards.main([*pair, "--output", str(tmp_path / "output")])
    assert sorted(tmp_path.iterdir()) == before


def test_pairs_with_an_empty_side_are_left_out_and_counted(tmp_path, capsys):
    source = write(tmp_path / "a", "eins\n\ndrei\u2028vier\r\n", "utf-8-sig")
    target = write(tmp_path / "b", "one\ntwo\nthree four\n")
    pairs = [("eins", "one"), ("drei\u2028vier", "three four")]
    assert list(data.read_pairs([source, target])) == pairs
    assert "1 pairs" in capsys.readouterr().out
    assert len(list(data.read_pairs([source, target], keep_empty=True))) == 3


def test_dates_are_right_reproducible_and_disjoint():
    date = dates.datetime.date(1998, 9, 3)
    written = {dates.write(date, pattern) for pattern in dates.FORMATS}
    assert len(written) == len(dates.FORMATS)
    assert {"3rd of September 1998", "3 Sep 1998", "Thursday, 3 September 1998"} <= written
    endings = [dates.write(date.replace(day=day), "{nth}") for day in (1, 2, 11, 12, 13, 21, 22)]
    assert endings == ["1st", "2nd", "11th", "12th", "13th", "21st", "22nd"]
    assert dates.write(date.replace(month=8, day=31), "{ordinal}") == "thirty-first"
    first, second = dates.make_pairs([300, 200], seed=5)
    assert (first, second) == tuple(dates.make_pairs([300, 200], seed=5))
    assert not set(first[1]) & set(second[1])
    assert first != dates.make_pairs([300, 200], seed=6)[0]


class Numbers:
    """A tokenizer of texts that are ids."""

    end_id = 3

    def encode(self, text):
        return [*map(int, text.split())]


def test_a_run_with_other_validation_data_is_refused(tmp_path, monkeypatch):
    def stop(*_):
        raise Killed

    monkeypatch.setattr(command, "build_model", stop)
    pairs, valid, other = dates.make_pairs((20, 5, 5), seed=3)
    tokenizers = [data.learn_subwords(side, 100, "char") for side in pairs]
    parsed = command.parse(["--output", str(tmp_path)])
    for _ in range(2):
        with pytest.raises(Killed):
            command.train(1, False, {"train": pairs, "valid": valid}, tokenizers, parsed)
    with pytest.raises(SystemExit, match=r"\(validation data: '.*' then, '.*' now\)"):
        command.train(1, False, {"train": pairs, "valid": other}, tokenizers, parsed)


@pytest.mark.exhaustive
def test_two_directions_learn_and_serve(tmp_path):
    started = [sys.executable, "-m", "examples.translation", "--output", str(tmp_path)]
    started += ["--ensemble", "2", "--backward", "1"]
    run = subprocess.run(started, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "seed 2, right to left: " in run.stdout
    assert "it ran in a process without keras" in run.stdout
    summary = json.loads((tmp_path / "summary.json").read_text())
    # Each writes dates in its direction, and their translations are read from left to right.
    assert [member["backward"] for member in summary["members"]] == [False, True]
    assert [member["seed"] for member in summary["members"]] == [1, 2]
    assert all(member["score"] > 0.8 for member in summary["members"])
    assert summary["score"] > 0.8 > summary["without_attention"]
    assert (tmp_path / "alignment.png").read_bytes().startswith(b"\x89PNG")
    assert len((tmp_path / "translations.txt").read_text().splitlines()) == 1000
    folders = sorted(path.name for path in tmp_path.glob("checkpoint-*"))
    backward = "checkpoint-bahdanau-backward-2"
    assert folders == ["checkpoint-bahdanau-1", backward, "checkpoint-none-1"]
