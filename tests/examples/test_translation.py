"""Translation: data, shards, errors, resuming, and a short run of the whole command."""

import itertools
import json
import subprocess
import sys

import numpy as np
import pytest

from examples.common import dates
from examples.translation import __main__ as command
from examples.translation import data, shards
from examples.translation.data import drop_long, encode

pytest.importorskip("sentencepiece", reason="the tokenizers need it")


@pytest.mark.parametrize(("source", "target", "message"), [
    ("eins\nzwei\ndrei\n", "one\ntwo\n", "a has more lines than .*b, which has 2: line n of"),
    ("a\n" * 40, "a\n" * 45, "b has more lines than .*a, which has 40"),
    ("fine\nsch\udcf6n\n", "one\ntwo\n", "a, line 2: not UTF-8"),
    ("fine\na\0\n", "one\ntwo\n", "a, line 2: holds a NUL.*iconv -f utf-16"),
    ("\n\n", "\none\n", "hold no pair"),
    ("one\n", None, "b: No such file"),
])  # fmt: skip
def test_files_that_do_not_fit_are_refused_before_anything_is_written(
    tmp_path, source, target, message
):
    paths = [tmp_path / "a", tmp_path / "b"]
    for path, text in zip(paths, (source, target), strict=True):
        if text is not None:
            path.write_bytes(text.encode("utf-8", "surrogateescape"))
    before, pair = sorted(tmp_path.iterdir()), [*map(str, paths)]
    files = ["--train", *pair, "--valid", *pair, "--test", *pair]
    for main, given in ((command.main, files), (shards.main, pair)):
        with pytest.raises(SystemExit, match=message):
            main([*given, "--output", str(tmp_path / "output")])
    assert sorted(tmp_path.iterdir()) == before


def test_pairs_with_an_empty_side_are_left_out_and_counted(tmp_path, capsys):
    source, target = (str(tmp_path / name) for name in "ab")
    (tmp_path / "a").write_text("eins\n\ndrei\u2028vier\r\n", "utf-8-sig", newline="")
    (tmp_path / "b").write_text("one\ntwo\nthree four\n", "utf-8")
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


class Numbers:  # A tokenizer of texts that are ids
    end_id = 3

    def encode(self, text):
        return [*map(int, text.split())]


@pytest.mark.exhaustive
def test_two_directions_learn_and_serve(tmp_path):
    options = f"--output {tmp_path} --ensemble 2 --backward 1".split()
    started = [sys.executable, "-m", "examples.translation", *options]
    run = subprocess.run(started, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "seed 2, right to left: " in run.stdout
    assert "it ran in a process without keras" in run.stdout
    summary = json.loads((tmp_path / "summary.json").read_text())
    # Each writes dates in its direction, and their translations are read from left to right.
    members = [(x["backward"], x["seed"], x["score"] > 0.8) for x in summary["members"]]
    assert members == [(False, 1, True), (True, 2, True)]
    assert summary["score"] > 0.8 > summary["without_attention"]
    assert (tmp_path / "alignment.png").read_bytes().startswith(b"\x89PNG")
    assert len((tmp_path / "translations.txt").read_text().splitlines()) == 1000
    folders = sorted(path.name for path in tmp_path.glob("checkpoint-*"))
    backward = "checkpoint-bahdanau-backward-2"
    assert folders == ["checkpoint-bahdanau-1", backward, "checkpoint-none-1"]


PAIRS, SIZE = 192, 3  # two pools are a pass
TOKENIZERS = Numbers(), Numbers()


def make_pairs(count):
    """Pairs of different lengths. Both sides begin with the number of the pair, plus four."""
    sides = (7, 11, " 5"), (5, 13, " 6")
    return [[f"{n + 4}" + word * (1 + a * n % b) for n in range(count)] for a, b, word in sides]


def write(folder, *sides):
    paths = [folder / name for name in ("source.txt", "target.txt")]
    for path, lines in zip(paths, sides, strict=True):
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return [str(path) for path in paths]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    pytest.importorskip("grain", reason="it reads the shards")
    pytest.importorskip("array_record", reason="it writes the shards")
    made = tmp_path_factory.mktemp("corpus")
    assert shards.write_shards(write(made, *make_pairs(PAIRS)), made / "shards") == PAIRS
    return made / "shards"


def stream(corpus, limit=99, steps=64):
    return shards.Stream(shards.Shards(corpus), TOKENIZERS, SIZE, limit, 5, False, steps)


def test_shards_hold_every_pair(corpus):
    found = shards.Shards(corpus)
    assert len(list(corpus.glob("*.arrayrecord"))) == shards.SHARDS
    assert sorted(zip(*found.sample(PAIRS, 1), strict=True)) == sorted(
        zip(*make_pairs(PAIRS), strict=True)
    )
    assert len(set(found.sample(50, seed=1)[0])) == 50
    assert found.sample(50, seed=1) != found.sample(50, seed=2)


def test_a_pass_has_every_pair_once_in_batches_of_similar_length(corpus):
    pairs = encode(TOKENIZERS, make_pairs(PAIRS))
    batches, seen = [*stream(corpus)()], []
    for pool in (batches[:32], batches[32:]):
        ranges = []
        for (source, same), target in pool:
            assert same is target
            rows = [row[0] - 4 for row in target]
            for n, *row in zip(rows, source, target, strict=True):
                assert [x[x != 0].tolist() for x in row] == [list(x) for x in pairs[n]]
            sizes = [len(pairs[n][0]) for n in rows]
            ranges.append((min(sizes), max(sizes)))
            seen += rows
        assert ranges != sorted(ranges)
        ranges.sort()
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(ranges))
    assert sorted(seen) == list(range(PAIRS))


def test_long_pairs_are_left_out_and_epochs_are_one_sequence(corpus):
    targets = [target for _, target in stream(corpus, limit=8, steps=300)()]
    assert {len(target) for target in targets} == {SIZE}
    pairs = encode(TOKENIZERS, make_pairs(PAIRS))
    short = {pairs.index(pair) for pair in drop_long(pairs, 8)}
    assert {row[0] - 4 for target in targets for row in target} == short
    assert len(short) < PAIRS
    whole, found = [*stream(corpus, steps=70)()], []
    for epoch in (0, 1):
        later = stream(corpus, steps=35)
        later.epoch = epoch
        found += later.dataset().as_numpy_iterator()
    for (x, _), (y, _) in zip(whole, found, strict=True):
        for a, b in zip(x, y, strict=True):
            np.testing.assert_array_equal(a, b)
