"""Makes shards of two text files, to train on a corpus that is larger than memory.

    python -m examples.translation.shards train.de train.en --output DIR

Line n of one file is the translation of line n of the other. The files are read line by line. Pairs
with an empty line are left out. DIR appears when it is complete. The shards are ArrayRecord files,
in which Grain reads any pair without those before it.
"""

import functools
import pathlib

from examples.common.arguments import check_extras, make_parser, run
from examples.common.files import fingerprint, make_folder, refuse, whole_file
from examples.common.training import POOL, Batches, pad_pairs, split_pairs
from examples.translation.data import drop_long, encode, read_pairs

SHARDS = 8


def write_shards(paths, output):
    """Writes the pairs of two text files as a new folder of shards. Returns how many there are."""
    from array_record.python.array_record_module import ArrayRecordWriter

    if output.exists():
        refuse(f"--output {output}", "exists. Delete it, or choose another folder")
    make_folder(output.parent)
    with whole_file(output) as folder:
        folder.mkdir()
        names = [str(folder / f"pairs-{n}.arrayrecord") for n in range(SHARDS)]
        # Memory holds the position of each group, and a reader decompresses a group for a pair.
        writers, total = [ArrayRecordWriter(name, "group_size:32") for name in names], 0
        try:
            for total, pair in enumerate(read_pairs(paths), 1):
                writers[total % SHARDS].write("\n".join(pair).encode())
            for writer in writers:
                writer.close()
        except RuntimeError as error:  # this is how ArrayRecord says that a disk is full
            raise OSError(str(error)) from error
    return total


class Shards:
    """The pairs of a folder that `python -m examples.translation.shards` made."""

    def __init__(self, directory):
        import grain

        paths = sorted(pathlib.Path(directory).glob("*.arrayrecord"))
        try:
            source = grain.sources.ArrayRecordDataSource([str(path) for path in paths])
        except (RuntimeError, TypeError, ValueError) as error:
            make = "Make it with python -m examples.translation.shards"
            refuse(f"--shards {directory}", f"no folder of shards ({error}). {make}")
        self.pairs = grain.MapDataset.source(source)
        self.digest = fingerprint([path.stat().st_size for path in paths])

    def sample(self, most, seed):
        """Reads at most `most` random pairs, as two lists of strings."""
        records = self.pairs.shuffle(seed)
        return split([records[n] for n in range(min(most, len(records)))])


class Stream(Batches):
    """Epochs of batches of exactly `size` pairs from `Shards`, of which any can be read.

    The pairs are shuffled again in each pass, over the whole corpus and without a buffer. They are
    sorted by length within pools of `POOL` batches. In place of pairs of more than `limit` tokens,
    others of their pool come twice.
    """

    def __init__(self, shards, tokenizers, size, limit, seed, backward, steps):
        def bucket(records, order):
            pairs = drop_long(encode(tokenizers, split(records), backward), limit, quiet=True)
            pairs = [pairs[n % len(pairs)] for n in range(POOL * size)]
            return [pad_pairs([pairs[n] for n in rows]) for rows in split_pairs(pairs, size, order)]

        drop_long(encode(tokenizers, shards.sample(1000, seed)), limit)  # says how many are long
        pools = shards.pairs.shuffle(seed).repeat().batch(POOL * size, batch_fn=list)
        self.pool = functools.lru_cache(maxsize=1)(pools.random_map(bucket, seed=seed).__getitem__)
        self.steps = steps

    def __call__(self):
        for number in range(self.epoch * self.steps, (self.epoch + 1) * self.steps):
            yield self.pool(number // POOL)[number % POOL]


def split(records):
    return [list(side) for side in zip(*(x.decode().split("\n") for x in records), strict=True)]


def main(argv=None):
    parser = make_parser("translation.shards", __doc__)
    parser.add_argument("source", help="a text file, UTF-8")
    parser.add_argument("target", help="its translation, line by line")
    parser.add_argument("--output", required=True, type=pathlib.Path, help="a folder to make")
    options = parser.parse_args(argv)
    check_extras("array_record", extra="shards")
    total = write_shards([options.source, options.target], options.output)
    print(f"{options.output}: {total:,} pairs in {SHARDS} files")


if __name__ == "__main__":
    run(main)
