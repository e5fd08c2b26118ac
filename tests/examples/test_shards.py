"""Shards: what they hold, and the order of training, of which any batch can be read."""

import itertools
from unittest.mock import Mock

import numpy as np
import pytest

from examples.translation import shards
from examples.translation.data import drop_long, encode
from tests.examples.test_translation import Numbers

pytest.importorskip("grain", reason="it reads the shards")
pytest.importorskip("array_record", reason="it writes the shards")

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


def test_what_cannot_be_written_or_read(corpus, tmp_path, monkeypatch):
    from array_record.python import array_record_module

    paths = write(tmp_path, ["a"], ["b"])
    with pytest.raises(SystemExit, match="exists"):
        shards.main([*paths, "--output", str(tmp_path)])
    with pytest.raises(SystemExit, match=r"no folder of shards .* Make it with python -m"):
        shards.Shards(tmp_path)
    with pytest.raises(SystemExit, match="at most 1 tokens: raise --max-tokens"):
        stream(corpus, limit=1)

    full = Mock(**{"return_value.write.side_effect": RuntimeError("no space left")})
    monkeypatch.setattr(array_record_module, "ArrayRecordWriter", full)
    with pytest.raises(SystemExit, match="made cannot be written: no space left"):
        shards.main([*paths, "--output", str(tmp_path / "made")])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["source.txt", "target.txt"]


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
