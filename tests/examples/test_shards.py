"""Shards: what they hold, the order of training, and a killed run that resumes."""

import itertools
import json
import signal
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from examples.common import checkpoint
from examples.translation import __main__ as command
from examples.translation import model, rounds, shards, streaming, training

pytest.importorskip("grain", reason="it reads the shards")
pytest.importorskip("array_record", reason="it writes the shards")

PAIRS, SIZE = 192, 3
POOL = 32 * SIZE


class Numbers:
    """A tokenizer of texts that are ids. It adds no end."""

    def tokenize(self, lines):
        return tf.strings.to_number(tf.strings.split(lines), tf.int32)


TOKENIZERS = Numbers(), Numbers()


def make_pairs(count):
    """Pairs of different lengths. Both sides begin with the number of the pair, plus four."""
    sources = [" ".join(["5"] * (1 + 7 * n % 11)) for n in range(count)]
    targets = [" ".join(["6"] * (1 + 5 * n % 13)) for n in range(count)]
    return [[f"{n + 4} {text}" for n, text in enumerate(side)] for side in (sources, targets)]


def write(folder, *sides):
    paths = [folder / name for name in ("source.txt", "target.txt")]
    for path, lines in zip(paths, sides, strict=True):
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return [str(path) for path in paths]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("corpus")
    shards.write_shards(write(made, *make_pairs(PAIRS)), made / "shards", 4)
    return made / "shards"


def take(batches, count=None):
    return list(itertools.islice(batches, count))


def numbers(batches):
    return [row[0] - 4 for _, target in batches for row in target]


# --- making shards -------------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "files"), [(1, 1), (3, 3), (9, 4)])
def test_shards_hold_every_pair_in_order_whatever_their_number(tmp_path, count, files):
    pairs = make_pairs(101)
    index = shards.write_shards(write(tmp_path, *pairs), tmp_path / "made", count)
    assert len(list((tmp_path / "made").glob("*.arrayrecord"))) == files
    assert json.loads((tmp_path / "made" / "index.json").read_text()) == index
    found = streaming.Shards(tmp_path / "made")
    assert len(found) == 101
    assert list(found.read(range(101))) == pairs
    chosen = [77, 100, 3, 77]
    assert list(found.read(chosen)) == [[side[n] for n in chosen] for side in pairs]
    sources, targets = found.sample(50, seed=1)
    assert len(set(sources)) == 50
    assert set(zip(sources, targets, strict=True)) < set(zip(*pairs, strict=True))


def test_many_pairs_are_read_in_portions(folder, monkeypatch):
    found, keys = streaming.Shards(folder), []
    original = found.source.__getitems__
    monkeypatch.setattr(
        found.source, "__getitems__", lambda k: keys.append(len(k)) or original(k), raising=False
    )
    many = [n * 7 % PAIRS for n in range(2345)]
    assert list(found.read(many)) == [[side[n] for n in many] for side in make_pairs(PAIRS)]
    assert sum(keys) == 2345
    assert max(keys) <= 1000


def test_the_digest_is_of_the_pairs_alone(tmp_path):
    pairs = make_pairs(70)
    digests = []
    for name, lines, count in (("a", pairs, 1), ("b", pairs, 2), ("c", pairs[::-1], 1)):
        digests.append(
            shards.write_shards(write(tmp_path, *lines), tmp_path / name, count)["digest"]
        )
    assert digests[0] == digests[1] != digests[2]


def test_empty_lines_are_left_out_and_spaces_inside_are_kept(tmp_path, capsys):
    paths = write(tmp_path, ["eins", "", "drei\u2028vier \r"], ["one", "two", " three  four"])
    shards.main([*paths, "--output", str(tmp_path / "made" / "here")])
    assert "1 pairs with an empty line left out" in capsys.readouterr().out
    found = streaming.Shards(tmp_path / "made" / "here")
    assert found.read([0, 1]) == (["eins", "drei\u2028vier"], ["one", "three  four"])


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        ("a\nb\nc\n", "a\nb\n", "has 3 lines and .* has 2"),
        ("a\n" * 40, "a\n" * 45, "has 40 lines and .* has 45"),
        ("a\n" * 40 + "sch\udcf6n\n", "a\n" * 41, "source.txt, line 41: not UTF-8"),
        ("\na\n", "b\n\n", "hold no pair"),
        ("", "", "hold no pair"),
        ("a\n", None, "No such file"),
    ],
)
def test_files_that_do_not_fit_are_refused_and_nothing_is_written(
    tmp_path, source, target, message
):
    paths = [tmp_path / name for name in ("source.txt", "target.txt")]
    for path, text in zip(paths, (source, target), strict=True):
        if text is not None:
            path.write_bytes(text.encode("utf-8", "surrogateescape"))
    before = sorted(tmp_path.iterdir())
    with pytest.raises(SystemExit, match=message):
        shards.main([*map(str, paths), "--output", str(tmp_path / "made")])
    assert sorted(tmp_path.iterdir()) == before


def test_a_folder_that_exists_is_left_alone(tmp_path):
    paths = write(tmp_path, ["a"], ["b"])
    with pytest.raises(SystemExit, match="exists"):
        shards.main([*paths, "--output", str(tmp_path)])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["source.txt", "target.txt"]


def test_a_full_disk_leaves_nothing(tmp_path, monkeypatch):
    class Full:
        def write(self, record):
            pass

        def close(self):
            raise RuntimeError("no space left")

    monkeypatch.setattr(shards, "_writer", lambda path: Full())
    with pytest.raises(SystemExit, match="made cannot be written: no space left"):
        shards.main([*write(tmp_path, ["a"], ["b"]), "--output", str(tmp_path / "made")])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["source.txt", "target.txt"]


def test_what_is_no_complete_folder_of_shards_is_refused(tmp_path):
    with pytest.raises(SystemExit, match=r"no folder of shards .*No such file"):
        streaming.Shards(tmp_path)
    made = tmp_path / "made"
    index = shards.write_shards(write(tmp_path, *make_pairs(70)), made, 2)
    path = made / "index.json"
    for change, message in (
        ({"format": 1}, "format 1, expected 2"),
        ({"pairs": 999}, "holds 3 blocks of pairs, expected 32"),
        ({"shards": {"absent": ""}}, "absent is missing, truncated"),
        ({"shards": None}, "index.json is not a whole index"),
    ):
        path.write_text(json.dumps({**index, **change}))
        with pytest.raises(SystemExit, match=f"made: .*{message}.*Delete the folder"):
            streaming.Shards(made)
    path.write_text("{")
    with pytest.raises(SystemExit, match="not a whole index"):
        streaming.Shards(made)
    path.write_text(json.dumps(index))
    assert len(streaming.Shards(made)) == 70


def test_shards_that_changed_are_refused(tmp_path):
    made = tmp_path / "made"
    shards.write_shards(write(tmp_path, *make_pairs(3000)), made, 2)
    path = made / "pairs-00001.arrayrecord"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    with pytest.raises(SystemExit, match=r"pairs-00001.arrayrecord is missing, truncated"):
        streaming.Shards(made)
    shards.write_shards(write(tmp_path, *make_pairs(3100)), tmp_path / "other", 2)
    path.write_bytes((tmp_path / "other" / path.name).read_bytes())
    with pytest.raises(SystemExit, match="of another corpus"):
        streaming.Shards(made)
    place = np.flatnonzero(np.frombuffer(whole, "uint8"))[1000]  # a shard is padded with zeros
    path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
    with pytest.raises(RuntimeError, match=r"made: a shard is damaged .*Delete the folder"):
        streaming.Shards(made).read(range(3000))


def test_pools_without_a_short_pair_are_passed_over(tmp_path):
    pairs = make_pairs(3 * 32)  # three pools
    pairs[0][1:] = [f"{text} 5" + 20 * " 5" for text in pairs[0][1:]]
    shards.write_shards(write(tmp_path, *pairs), tmp_path / "made", 2)
    found = streaming.Shards(tmp_path / "made")
    batches = take(found.batches(TOKENIZERS, 1, 20, 5), 3)
    assert numbers(batches) == [0, 0, 0]


# --- the order -----------------------------------------------------------------------------------


def test_each_epoch_has_every_pair_once_over_all_processes(folder):
    found = streaming.Shards(folder)
    parts = [iter(found.batches(TOKENIZERS, SIZE, 98, 5, (n, 2))) for n in range(2)]
    # A pool is an epoch of a process here.
    assert PAIRS // 2 == POOL
    orders = []
    for _ in range(3):
        batches = [take(part, 32) for part in parts]
        shapes = {x.shape for part in batches for pair, _ in part for x in pair}
        assert shapes == {(SIZE, 100)}  # the limit, as a multiple of four
        seen = [numbers(part) for part in batches]
        assert sorted(seen[0] + seen[1]) == list(range(PAIRS))
        orders += seen
    assert len({tuple(order) for order in orders}) == 6
    assert len({tuple(sorted(order)) for order in orders}) == 6


def test_parts_are_equal_and_the_pairs_left_out_change_with_the_epoch(tmp_path):
    # Each of five processes has 32 pairs, which are a pool; two of 162 pairs are left out.
    shards.write_shards(write(tmp_path, *make_pairs(162)), tmp_path / "made", 3)
    found = streaming.Shards(tmp_path / "made")
    parts = [iter(found.batches(TOKENIZERS, 1, 99, 5, (n, 5))) for n in range(5)]
    left_out = []
    for _ in range(4):
        seen = [n for part in parts for n in numbers(take(part, 32))]
        assert len(set(seen)) == len(seen) == 160
        left_out.append(set(range(162)) - set(seen))
    assert not set.intersection(*left_out)


def test_a_batch_is_full_and_as_its_pairs_and_a_pool_is_sorted(folder):
    sources, targets = (
        [[int(x) for x in text.split()] for text in side] for side in make_pairs(PAIRS)
    )
    for pool in range(2):
        batches = take(streaming.Shards(folder).batches(TOKENIZERS, SIZE, 99, 5), 32 * (pool + 1))
        ranges = []
        for (source, _), target in batches[-32:]:
            rows = [row[0] - 4 for row in target]
            assert len(rows) == SIZE
            for n, *row in zip(rows, source, target, strict=True):
                assert row[0][row[0] != 0].tolist() == sources[n]
                assert row[1][row[1] != 0].tolist() == targets[n]
            lengths = [len(sources[n]) for n in rows]
            ranges.append((min(lengths), max(lengths)))
        assert ranges != sorted(ranges)
        ranges.sort()
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(ranges))


def test_long_pairs_are_left_out_and_batches_are_full(folder):
    batches = take(streaming.Shards(folder).batches(TOKENIZERS, SIZE, 8, 5), 400)
    lengths = [max(len(x.split()) for x in pair) for pair in zip(*make_pairs(PAIRS), strict=True)]
    short = [n for n, length in enumerate(lengths) if length <= 8]
    assert 0 < len(short) < PAIRS - SIZE
    counts = np.bincount(numbers(batches), minlength=PAIRS)
    assert {n for n in range(PAIRS) if counts[n]} == set(short)
    assert all(len(target) == SIZE for _, target in batches)
    # All of the 1,200 pairs come as often as each other, but for the pools that are not complete.
    assert counts[short].max() - counts[short].min() <= 2


def test_nothing_to_train_on_and_parts_that_do_not_exist_are_refused(folder):
    found = streaming.Shards(folder)
    with pytest.raises(ValueError, match="at most 1 tokens: raise --max-tokens"):
        next(iter(found.batches(TOKENIZERS, SIZE, 1, 5)))
    for part in ((2, 2), (-1, 2), (0, PAIRS + 1)):
        with pytest.raises(ValueError, match="part must be"):
            found.batches(TOKENIZERS, SIZE, 99, 5, part)


def assert_equal(batches, others):
    for batch, other in zip(batches, others, strict=True):
        for x, y in zip(tf.nest.flatten(batch), tf.nest.flatten(other), strict=True):
            np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("limit", [99, 8])
def test_a_restored_iterator_continues_with_the_next_pair(folder, limit):
    dataset = streaming.Shards(folder).batches(TOKENIZERS, SIZE, limit, 5, (1, 2))
    whole = take(dataset, 120)
    for done in (0, 1, 32, 33, 77):
        first = iter(dataset)
        take(first, done)
        state = json.dumps(first.get_state())
        assert len(state) < 200
        second = iter(streaming.Shards(folder).batches(TOKENIZERS, SIZE, limit, 5, (1, 2)))
        second.set_state(json.loads(state))
        assert_equal(take(second, 40), whole[done : done + 40])


def test_restoring_reads_a_few_pools_and_not_what_came_before(folder, monkeypatch):
    first = iter(streaming.Shards(folder).batches(TOKENIZERS, SIZE, 99, 5))
    take(first, 32 * 20)
    state, read = first.get_state(), []
    again = streaming.Shards(folder).batches(TOKENIZERS, SIZE, 99, 5)
    original = streaming.Shards.read
    monkeypatch.setattr(
        streaming.Shards, "read", lambda self, n: read.append(len(n)) or original(self, n)
    )
    second = iter(again)
    second.set_state(state)
    next(second)
    second.close()
    assert sum(read) <= 4 * POOL


# --- training ------------------------------------------------------------------------------------

ARGUMENTS = {"batch_size": SIZE, "seed": 5, "max_tokens": 9, "steps": 20, "save_every": 6}
ARGUMENTS |= {"learning_rate": 0.01, "smoothing": 0.1}


def test_rounds_of_a_stream_are_one_sequence(folder):
    found = streaming.Shards(folder)
    whole = take(found.batches(TOKENIZERS, SIZE, 9, 5), 20)
    stream, done, batches, ends = rounds.Stream(found, TOKENIZERS, ARGUMENTS), 0, [], []
    while done < stream.total:
        done, _, make = stream.next(done)
        # Keras may ask for an iterator and draw a batch before it trains.
        next(make())
        batches += make()
        assert len(batches) == done
        ends.append(done)
        # A run that was killed begins with the state in its checkpoint.
        entry = json.loads(json.dumps(stream.state))
        stream = rounds.Stream(found, TOKENIZERS, ARGUMENTS)
        stream.restore(entry)
    assert ends == [6, 12, 18, 20]
    assert_equal(batches, whole)


def train(folder, output):
    keras.utils.set_random_seed(7)
    stream = rounds.Stream(streaming.Shards(folder), TOKENIZERS, ARGUMENTS)
    made = model.build_model("luong-dot", 200, 200, 6, 5, 0.3, 10, False)
    saved = checkpoint.Checkpoint(output, ARGUMENTS, stream.unit)
    valid = [[[4, 5, 3]] * SIZE] * 2
    state = training.train(made, stream, valid, ARGUMENTS, saved)
    np.savez(output / "weights.npz", *made.get_weights())
    return [{**entry, "seconds": 0} for entry in state["history"]], made.get_weights()


@pytest.mark.slow
def test_a_killed_run_continues_with_exactly_the_next_pair(folder, tmp_path):
    history, weights = train(folder, tmp_path / "whole")
    work = "import pathlib, sys; from tests.examples.test_shards import train; "
    work += "train(*map(pathlib.Path, sys.argv[1:]))"
    started = [sys.executable, "-c", work, str(folder), str(tmp_path / "killed")]
    with subprocess.Popen(started, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            if line.startswith("step 12/20"):
                process.send_signal(signal.SIGKILL)
                break
    assert process.returncode == -signal.SIGKILL
    assert not (tmp_path / "killed" / "weights.npz").exists()
    resumed = subprocess.run(started, capture_output=True, text=True, check=True).stdout
    assert "Resuming after step 12" in resumed or "Resuming after step 18" in resumed
    state = json.loads((tmp_path / "killed" / "state.json").read_text())
    assert [{**entry, "seconds": 0} for entry in state["history"]] == history
    with np.load(tmp_path / "killed" / "weights.npz") as saved:
        for name, weight in zip(saved.files, weights, strict=True):
            np.testing.assert_array_equal(saved[name], weight)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--shards", "a", "--steps", "3"], "give all three or none"),
        (["--shards", "a", "--train", "b", "c"], "give one of them"),
        (["--shards", "a", "--valid", "b", "c", "--test", "d", "e"], "--shards needs --steps"),
        (["--steps", "3"], "go with --shards"),
        (["--save-every", "3"], "go with --shards"),
    ],
)
def test_bad_arguments_are_refused(arguments, message, capsys):
    with pytest.raises(SystemExit):
        command.parse(arguments)
    assert message in capsys.readouterr().err


@pytest.mark.slow
def test_the_command_trains_on_shards(tmp_path, monkeypatch, capsys):
    paths = write(tmp_path, *make_pairs(70))
    shards.main([*paths, "--output", str(tmp_path / "shards")])
    monkeypatch.setattr(command, "save", lambda *_, **__: None)
    few = write(tmp_path, *make_pairs(9))
    options = ["--valid", *few, "--test", *few, "--shards", str(tmp_path / "shards")]
    options += ["--steps", "5", "--save-every", "3", "--units", "8", "--embedding", "4"]
    options += ["--vocabulary", "40", "--beam", "2", "--output", str(tmp_path / "output")]
    command.main(options)
    assert "step 3/5: " in capsys.readouterr().out
    summary = json.loads((tmp_path / "output" / "summary.json").read_text())
    assert {"seconds_a_step", "best_step", "BLEU"} <= set(summary)
    assert len((tmp_path / "output" / "translations.txt").read_text().splitlines()) == 9
