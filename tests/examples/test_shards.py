"""Shards: what they hold, the order of training, and where an iterator resumes."""

import itertools
import json

import numpy as np
import pytest
import tensorflow as tf

from examples.translation import __main__ as command
from examples.translation import shards
from tests.examples.test_translation import Numbers

pytest.importorskip("grain", reason="it reads the shards")
pytest.importorskip("array_record", reason="it writes the shards")

PAIRS, SIZE = 192, 3
POOL = 32 * SIZE


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


def test_shards_hold_every_pair_in_order_whatever_their_number(tmp_path):
    pairs, digests = make_pairs(101), set()
    for count, files in ((1, 1), (3, 3), (9, 4)):
        made = tmp_path / str(count)
        index = shards.write_shards(write(tmp_path, *pairs), made, count)
        digests.add(index["digest"])
        assert len(list(made.glob("*.arrayrecord"))) == files
        assert json.loads((made / "index.json").read_text()) == index
        found = shards.Shards(made)
        assert len(found) == 101
        chosen = [n * 7 % 101 for n in range(2345)]  # read in portions
        assert list(found.read(chosen)) == [[side[n] for n in chosen] for side in pairs]
        sources, targets = found.sample(50, seed=1)
        assert len(set(sources)) == 50
        assert set(zip(sources, targets, strict=True)) < set(zip(*pairs, strict=True))
    assert len(digests) == 1
    other = shards.write_shards(write(tmp_path, *pairs[::-1]), tmp_path / "other", 1)
    assert other["digest"] not in digests


def test_a_folder_that_exists_is_left_alone(tmp_path):
    paths = write(tmp_path, ["a"], ["b"])
    with pytest.raises(SystemExit, match="exists"):
        shards.main([*paths, "--output", str(tmp_path)])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["source.txt", "target.txt"]


def test_a_full_disk_leaves_nothing(tmp_path, monkeypatch):
    from array_record.python import array_record_module

    class Full:
        def __init__(self, *_):
            pass

        def write(self, record):
            raise RuntimeError("no space left")

    monkeypatch.setattr(array_record_module, "ArrayRecordWriter", Full)
    with pytest.raises(SystemExit, match="made cannot be written: no space left"):
        shards.main([*write(tmp_path, ["a"], ["b"]), "--output", str(tmp_path / "made")])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["source.txt", "target.txt"]


def test_what_is_no_complete_folder_of_shards_is_refused(tmp_path):
    made = tmp_path / "made"
    index = shards.write_shards(write(tmp_path, *make_pairs(3000)), made, 2)
    shard = made / "pairs-00001.arrayrecord"
    whole = shard.read_bytes()
    shard.write_bytes(whole[:-1])
    with pytest.raises(SystemExit, match=r"pairs-00001.arrayrecord is truncated or of another"):
        shards.Shards(made)
    place = np.flatnonzero(np.frombuffer(whole, "uint8"))[1000]  # a shard is padded with zeros
    shard.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
    with pytest.raises(RuntimeError, match=r"made: no complete folder .*Make it with"):
        shards.Shards(made).read(range(3000))
    shard.write_bytes(whole)
    parts = [{x: y for x, y in index.items() if x != name} for name in index]
    texts = map(json.dumps, [{**index, "shards": {"absent": 1}}, *parts])
    for text in (*texts, "{}", "{", None):
        (made / "index.json").unlink()
        if text is not None:
            (made / "index.json").write_text(text)
        with pytest.raises(SystemExit, match=r"made: no complete folder of shards .*Make it with"):
            shards.Shards(made)


def test_pools_without_a_short_pair_are_passed_over(tmp_path):
    pairs = make_pairs(3 * 32)  # three pools
    pairs[0][1:] = [f"{text} 5" + 20 * " 5" for text in pairs[0][1:]]
    shards.write_shards(write(tmp_path, *pairs), tmp_path / "made", 2)
    found = shards.Shards(tmp_path / "made")
    batches = take(found.batches(TOKENIZERS, 1, 20, 5), 3)
    assert numbers(batches) == [0, 0, 0]


def test_a_batch_is_full_and_as_its_pairs_and_a_pool_is_sorted(folder):
    sources, targets = (
        [[int(x) for x in text.split()] for text in side] for side in make_pairs(PAIRS)
    )
    for pool in range(2):
        batches = take(shards.Shards(folder).batches(TOKENIZERS, SIZE, 99, 5), 32 * (pool + 1))
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
    assert sorted(numbers(batches)) == list(range(PAIRS))  # two pools are a pass


def test_long_pairs_are_left_out_and_batches_are_full(folder):
    batches = take(shards.Shards(folder).batches(TOKENIZERS, SIZE, 8, 5), 400)
    lengths = [max(len(x.split()) for x in pair) for pair in zip(*make_pairs(PAIRS), strict=True)]
    short = [n for n, length in enumerate(lengths) if length <= 8]
    assert 0 < len(short) < PAIRS - SIZE
    counts = np.bincount(numbers(batches), minlength=PAIRS)
    assert {n for n in range(PAIRS) if counts[n]} == set(short)
    assert all(len(target) == SIZE for _, target in batches)
    # All of the 1,200 pairs come as often as each other, but for the pools that are not complete.
    assert counts[short].max() - counts[short].min() <= 2


def test_nothing_to_train_on_is_refused(folder):
    found = shards.Shards(folder)
    with pytest.raises(SystemExit, match="at most 1 tokens: raise --max-tokens"):
        found.batches(TOKENIZERS, SIZE, 1, 5)


def assert_equal(batches, others):
    for batch, other in zip(batches, others, strict=True):
        for x, y in zip(tf.nest.flatten(batch), tf.nest.flatten(other), strict=True):
            np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("limit", [99, 8])
def test_a_restored_iterator_continues_with_the_next_pair(folder, limit):
    dataset = shards.Shards(folder).batches(TOKENIZERS, SIZE, limit, 5)
    whole = take(dataset, 120)
    for done in (0, 1, 32, 33, 77):
        first = iter(dataset)
        take(first, done)
        state = json.dumps(first.get_state())
        assert len(state) < 200
        second = iter(shards.Shards(folder).batches(TOKENIZERS, SIZE, limit, 5))
        second.set_state(json.loads(state))
        assert_equal(take(second, 40), whole[done : done + 40])


def test_restoring_reads_a_few_pools_and_not_what_came_before(folder, monkeypatch):
    first = iter(shards.Shards(folder).batches(TOKENIZERS, SIZE, 99, 5))
    take(first, 32 * 20)
    state, read = first.get_state(), []
    again = shards.Shards(folder).batches(TOKENIZERS, SIZE, 99, 5)
    original = shards.Shards.read
    monkeypatch.setattr(
        shards.Shards, "read", lambda self, n: read.append(len(n)) or original(self, n)
    )
    second = iter(again)
    second.set_state(state)
    next(second)
    second.close()
    assert sum(read) <= 4 * POOL


def test_epochs_of_a_stream_are_one_sequence(folder):
    found = shards.Shards(folder)
    whole = take(found.batches(TOKENIZERS, SIZE, 9, 5), 18)
    stream, batches = shards.Stream(found.batches(TOKENIZERS, SIZE, 9, 5), 6), []
    for epoch in range(3):
        # Keras may ask for an iterator and draw a batch before it trains.
        next(stream())
        stream.epoch = epoch
        next(stream())
        batches += stream.dataset().as_numpy_iterator()
        state = json.loads(json.dumps(stream.get_state()))
        if epoch == 1:  # killed
            stream = shards.Stream(found.batches(TOKENIZERS, SIZE, 9, 5), 6)
            stream.set_state(state)
    assert_equal(batches, whole)


@pytest.mark.slow
def test_the_command_trains_on_shards(tmp_path, monkeypatch, capsys):
    paths = write(tmp_path, *make_pairs(70))
    shards.main([*paths, "--output", str(tmp_path / "shards")])
    monkeypatch.setattr(command, "save", lambda *_: None)
    few = write(tmp_path, *make_pairs(9))
    options = ["--valid", *few, "--test", *few, "--shards", str(tmp_path / "shards")]
    options += ["--steps", "6", "--save-every", "3", "--units", "8", "--embedding", "4"]
    options += ["--vocabulary", "40", "--beam", "2", "--output", str(tmp_path / "output")]
    command.main(options)
    assert "epoch 2 of 2" in capsys.readouterr().out
    summary = json.loads((tmp_path / "output" / "summary.json").read_text())
    assert {"seconds_a_step", "best_epoch", "BLEU"} <= set(summary)
    assert len((tmp_path / "output" / "translations.txt").read_text().splitlines()) == 9
