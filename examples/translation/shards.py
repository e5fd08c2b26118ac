"""Makes shards of two text files, to train on a corpus that is larger than memory.

    python -m examples.translation.shards train.de train.en --output DIR

Line n of one file is the translation of line n of the other. The files are read line by line and
never held in memory. Pairs with an empty line are left out. DIR appears when it is complete.

The shards are ArrayRecord files: any record can be read without those before it. A record is a
block of 32 pairs, as lines: a source, its target, the next source, and so on. A reader keeps
only the positions of blocks in memory, a third of a byte for each pair. Block b is in shard b
modulo the number of shards. `index.json` holds the number of pairs, the size of every shard, and
the digest of all blocks, which names the corpus in the settings of a run. The order of training
does not depend on the number of shards.
"""

import contextlib
import hashlib
import itertools
import json
import pathlib

import numpy as np

from examples.common.arguments import check_extras, count, make_parser, run
from examples.common.files import fingerprint, make_folder, whole_file, write_text
from examples.common.training import POOL, Batches, pad_pairs, pair_batches, split_pairs
from examples.translation.data import drop_long, encode, read_pairs

BLOCK = 32
INDEX = "index.json"


def write_shards(paths, output, most):
    """Writes the pairs of two text files as at most `most` shards into a new folder.

    Returns the content of the index.
    """
    if output.exists():
        raise SystemExit(
            f"--output {output} exists. Delete it, or choose another folder. Nothing was written."
        )
    make_folder(output.parent)
    with whole_file(output) as folder:
        folder.mkdir()
        try:
            index = _write_records(read_pairs(paths), folder, most)
        except RuntimeError as error:  # this is how ArrayRecord says that a disk is full
            raise OSError(str(error)) from error
        write_text(folder / INDEX, json.dumps(index, indent=1) + "\n")
    return index


def _write_records(pairs, folder, most):
    from array_record.python.array_record_module import ArrayRecordWriter

    digest, writers, total = hashlib.sha256(), {}, 0
    for number in itertools.count():
        block = list(itertools.islice(pairs, BLOCK))
        if not block:
            break
        path = folder / f"pairs-{number % most:05d}.arrayrecord"
        if path not in writers:
            # Each record is compressed alone; otherwise none could be read without its neighbours.
            writers[path] = ArrayRecordWriter(str(path), "group_size:1")
        record = "\n".join(itertools.chain(*block)).encode()
        writers[path].write(record)
        digest.update(record + b"\n")
        total += len(block)
    for writer in writers.values():
        writer.close()
    sizes = {path.name: path.stat().st_size for path in writers}
    return {"pairs": total, "shards": sizes, "digest": digest.hexdigest()}


class Shards:
    """The pairs of a folder that `python -m examples.translation.shards` made.

    Memory holds the positions of the blocks, a third of a byte for each pair, and nothing else that
    depends on the number of pairs.
    """

    def __init__(self, directory):
        import grain

        self.directory = pathlib.Path(directory)
        try:
            self.index = json.loads((self.directory / INDEX).read_text(encoding="utf-8"))
            sizes, _, _ = (self.index[name] for name in ("shards", "pairs", "digest"))
            paths = [self.directory / name for name in sizes]
            for path in paths:
                if path.stat().st_size != sizes[path.name]:
                    raise ValueError(f"{path.name} is truncated or of another corpus")
            self.source = grain.sources.ArrayRecordDataSource([str(path) for path in paths])
        except (OSError, KeyError, RuntimeError, TypeError, ValueError) as error:
            raise SystemExit(self._damaged(error)) from error
        blocks, number = -(-len(self) // BLOCK), len(paths)
        # Block b is record b // number of shard b % number, and the source joins all shards.
        records = [len(range(shard, blocks, number)) for shard in range(number)]
        self.first = np.cumsum([0, *records[:-1]])

    def _damaged(self, problem):
        return (
            f"--shards {self.directory}: no complete folder of shards ({problem}). Make it with "
            "python -m examples.translation.shards."
        )

    def __len__(self):
        return self.index["pairs"]

    def read(self, numbers):
        """Reads the pairs with these numbers, as two lists of strings."""
        sides = [], []
        blocks, rows = np.divmod(np.asarray(numbers), BLOCK)
        keys = self.first[blocks % len(self.first)] + blocks // len(self.first)
        # In portions, because whole blocks are read for single pairs.
        for start in range(0, len(keys), 1000):
            part = slice(start, start + 1000)
            try:
                records = self.source.__getitems__(keys[part].tolist())
            except RuntimeError as error:
                raise RuntimeError(self._damaged(error)) from error
            for record, row in zip(records, 2 * rows[part], strict=True):
                for side, line in zip(sides, record.split(b"\n", row + 2)[row:], strict=False):
                    side.append(line.decode())
        return sides

    def sample(self, most, seed):
        """Reads at most `most` random pairs, as two lists of strings."""
        import grain

        numbers = grain.MapDataset.range(len(self)).shuffle(seed)
        return self.read([numbers[n] for n in range(min(most, len(self)))])

    def batches(self, tokenizers, size, limit, seed, backward=False):
        """Makes a Grain dataset of endless batches of exactly `size` pairs.

        The pairs are shuffled again in each pass, over the whole corpus and without a buffer. They
        are then sorted by length within pools of 32 batches. A pool may hold the end of a pass and
        the beginning of the next. Pairs of more than `limit` tokens are left out.

        The state of an iterator of this dataset is four numbers. After it is restored, it
        reads a few pools before the next batch: up to three if few pairs are too long.
        """
        import grain
        from grain.experimental import FlatMapIterDataset, FlatMapTransform

        class Each(FlatMapTransform):
            max_fan_out = POOL * size

            def flat_map(self, element):
                return element

        def short(numbers):
            pairs = encode(tokenizers, self.read(numbers), backward)
            return [pair for pair in pairs if max(map(len, pair)) <= limit]

        def bucket(pairs, order):
            rows = split_pairs(pairs, size, order)
            return [pad_pairs([pairs[n] for n in chosen]) for chosen in rows]

        # Without a short pair an iterator would look for one forever.
        drop_long(encode(tokenizers, self.sample(1000, seed)), limit)
        every = grain.MapDataset.range(len(self)).shuffle(seed)
        pools = every.repeat().batch(POOL * size, batch_fn=list).map(short)
        # One thread reads the next pool while the model trains on this one.
        pools = pools.to_iter_dataset(grain.ReadOptions(num_threads=1, prefetch_buffer_size=1))
        pools = FlatMapIterDataset(pools, Each()).batch(POOL * size, batch_fn=list)
        return FlatMapIterDataset(pools.random_map(bucket, seed=seed), Each())


class Stream(Batches):
    """Epochs of `steps` batches from `Shards.batches`. Each epoch starts where the last one ended.

    `Resume` saves the place in the shards beside the weights.
    """

    def __init__(self, pairs, steps):
        self.pairs, self.steps = pairs, steps
        self.places = {0: None}  # where each epoch begins

    def __call__(self):
        # A new iterator each time, because Keras may draw a batch that it does not train on.
        epoch = self.epoch
        with contextlib.closing(iter(self.pairs)) as iterator:
            if self.places[epoch] is not None:
                iterator.set_state(self.places[epoch])
            for number, batch in enumerate(itertools.islice(iterator, self.steps), 1):
                if number == self.steps:
                    self.places[epoch + 1] = iterator.get_state()
                yield batch

    def get_state(self):
        return {"epoch": self.epoch + 1, "place": self.places[self.epoch + 1]}

    def set_state(self, state):
        self.epoch = state["epoch"]
        self.places[self.epoch] = state["place"]


def training_batches(train, tokenizers, seed, backward, options):
    """Batches of `Shards`, or of two lists of texts.

    Returns the batches, a digest of the data, and the most tokens of a target.
    """
    size, limit = options.batch_size, options.max_tokens
    if isinstance(train, Shards):
        pairs = train.batches(tokenizers, size, limit, seed, backward=backward)
        return Stream(pairs, options.save_every), train.index["digest"], limit
    pairs = drop_long(encode(tokenizers, train, backward), limit)
    digest = fingerprint(json.dumps(pairs).encode())
    return pair_batches(pairs, size, seed), digest, max(len(target) for _, target in pairs)


def main(argv=None):
    parser = make_parser("translation.shards", __doc__)
    parser.add_argument("source", help="a text file, UTF-8")
    parser.add_argument("target", help="its translation, line by line")
    parser.add_argument("--output", required=True, type=pathlib.Path, help="a folder to make")
    parser.add_argument("--shards", type=count, default=8, help="at most (default: 8)")
    arguments = parser.parse_args(argv)
    check_extras("array_record", extra="shards")
    index = write_shards([arguments.source, arguments.target], arguments.output, arguments.shards)
    size = sum(index["shards"].values()) / 1e6
    shards = f"{len(index['shards'])} shards, {size:.1f} MB"
    print(f"{arguments.output}: {index['pairs']:,} pairs in {shards}")


if __name__ == "__main__":
    run(main)
