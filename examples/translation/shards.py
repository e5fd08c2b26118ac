"""Makes shards of two text files, to train on a corpus that is larger than memory.

    python -m examples.translation.shards train.de train.en --output DIR

Line n of one file is the translation of line n of the other. The files are read line by line and
never held in memory. Pairs with an empty line are left out. DIR appears when it is complete.

The shards are ArrayRecord files: any record can be read without those before it. A record is a
block of 32 pairs, as lines: a source, its target, the next source, and so on. A reader keeps
only the positions of blocks in memory, a third of a byte for each pair. Block b is in shard b
modulo the number of shards. `index.json` holds the number of pairs, a checksum of every shard, and
the digest of all blocks, which names the corpus in a checkpoint. The order of training does not
depend on the number of shards.
"""

import contextlib
import hashlib
import itertools
import json
import os
import pathlib
import sys

from examples.common.arguments import check_at_least_one, make_parser
from examples.common.extras import check_extras
from examples.common.files import make_folder, whole_file, write_text
from examples.translation.reading import read_pairs

BLOCK = 32
FORMAT = 2
INDEX = "index.json"
CHECKED = 2**16  # bytes at the end of a shard


def write_shards(paths, output, count):
    """Writes the pairs of two text files as `count` shards, or fewer if there are few blocks.

    Args:
        paths: the names of the two text files.
        output: the folder to make. It must not exist.
        count: the largest number of shards.

    Returns:
        The content of the index.
    """
    if output.exists():
        raise SystemExit(
            f"--output {output} exists. Delete it, or choose another folder. Nothing was written."
        )
    make_folder(output.parent)
    with whole_file(output) as folder:
        folder.mkdir()
        index = _write_records(_full_pairs(paths), folder, count)
        if not index["pairs"]:
            raise SystemExit(
                f"{paths[0]} and {paths[1]} hold no pair of lines. Nothing was written."
            )
        write_text(folder / INDEX, json.dumps(index, indent=1) + "\n")
    return index


def _write_records(pairs, folder, count):
    digest, names, writers = hashlib.sha256(), [], []
    index = {"format": FORMAT, "pairs": 0}
    for number in itertools.count():
        block = list(itertools.islice(pairs, BLOCK))
        if not block:
            break
        if number < count:
            names.append(f"pairs-{number:05d}.arrayrecord")
            writers.append(_writer(folder / names[-1]))
        record = "\n".join(itertools.chain(*block)).encode()
        with _full_disk():
            writers[number % count].write(record)
        digest.update(record + b"\n")
        index["pairs"] += len(block)
    with _full_disk():
        for writer in writers:
            writer.close()
    checksums = {name: checksum(folder / name) for name in names}
    return {**index, "shards": checksums, "digest": digest.hexdigest()}


@contextlib.contextmanager
def _full_disk():
    try:
        yield
    except RuntimeError as error:
        # This is how ArrayRecord says that a disk is full.
        raise OSError(str(error)) from error


def checksum(path):
    """The digest of the size of a shard and of its end, which holds the places of its blocks."""
    with open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - CHECKED))
        return hashlib.sha256(f"{size} ".encode() + file.read()).hexdigest()


def _writer(path):
    from array_record.python.array_record_module import ArrayRecordWriter

    # Each record is compressed alone; otherwise one could not be read without its neighbours.
    return ArrayRecordWriter(str(path), "group_size:1")


def _full_pairs(paths):
    """Yields the pairs without an empty line. Prints how many were left out.

    On a terminal it also prints how much of the files was read.
    """
    size, done = sum(os.path.getsize(path) for path in paths if os.path.exists(path)), 0
    left_out = 0
    for number, pair in enumerate(read_pairs(paths), 1):
        done += sum(len(line.encode()) + 1 for line in pair)
        if number % 50_000 == 0 and sys.stdout.isatty():
            print(f"{number:,} pairs, {done / size:.0%}", end="          \r", flush=True)
        if all(pair):
            yield pair
        else:
            left_out += 1
    if left_out:
        print(f"{paths[0]}: {left_out:,} pairs with an empty line left out")


def main(argv=None):
    parser = make_parser("translation.shards", __doc__)
    parser.add_argument("source", help="a text file, UTF-8")
    parser.add_argument("target", help="its translation, line by line")
    parser.add_argument("--output", required=True, metavar="DIR", help="a folder to make")
    least = f"at most, each of at least {BLOCK} pairs (default: 8)"
    parser.add_argument("--shards", type=int, default=8, metavar="N", help=least)
    arguments = parser.parse_args(argv)
    check_at_least_one(parser, arguments, ["shards"])
    check_extras("array_record", extra="shards")
    output = pathlib.Path(arguments.output)
    index = write_shards([arguments.source, arguments.target], output, arguments.shards)
    size = sum(path.stat().st_size for path in output.iterdir())
    print(
        f"{output}: {index['pairs']:,} pairs in {len(index['shards'])} shards, {size / 1e6:.1f} MB"
    )


if __name__ == "__main__":
    main()
