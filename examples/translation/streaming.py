"""Batches from shards: shuffled, bucketed by length, and resumed at the exact pair."""

import functools
import json
import pathlib

import numpy as np

from examples.common.batching import POOL
from examples.translation.data import encode, is_short, make_batches
from examples.translation.shards import BLOCK, FORMAT, INDEX, checksum


class Shards:
    """The pairs of a folder that `python -m examples.translation.shards` made.

    `len()` is the number of pairs. Memory holds the positions of the blocks, a third of a byte for
    each pair, and nothing else that depends on the number of pairs.

    Args:
        directory: the folder.
    """

    def __init__(self, directory):
        import grain

        self.directory = pathlib.Path(directory)
        self.index = self._read_index()
        paths = [str(self.directory / name) for name in self.index["shards"]]
        try:
            self.source = grain.sources.ArrayRecordDataSource(paths)
        except (RuntimeError, ValueError) as error:
            raise SystemExit(self._damaged(error)) from error
        blocks, count = -(-len(self) // BLOCK), len(paths)
        if len(self.source) != blocks:
            problem = f"it holds {len(self.source)} blocks of pairs, expected {blocks}"
            raise SystemExit(self._damaged(problem))
        # Block b is record b // count of shard b % count, and the source joins all shards.
        sizes = [len(range(shard, blocks, count)) for shard in range(count)]
        self.first = np.cumsum([0, *sizes[:-1]])

    def _read_index(self):
        """Reads the index, and checks that the shards are there, complete and of this corpus."""
        path = self.directory / INDEX
        try:
            index = json.loads(path.read_text(encoding="utf-8"))
            form, names, _, _ = (index[x] for x in ("format", "shards", "pairs", "digest"))
            names = dict(names)
        except OSError as error:
            raise SystemExit(
                f"--shards {self.directory}: no folder of shards ({path}: {error.strerror}). Make "
                "it with python -m examples.translation.shards. Nothing was written."
            ) from error
        except (ValueError, KeyError, TypeError) as error:
            raise SystemExit(self._damaged(f"{path} is not a whole index: {error!r}")) from error
        if form != FORMAT:
            raise SystemExit(self._damaged(f"it has the format {form}, expected {FORMAT}"))
        for name, expected in names.items():
            path = self.directory / name
            if not path.exists() or checksum(path) != expected:
                problem = f"{path} is missing, truncated or of another corpus"
                raise SystemExit(self._damaged(problem))
        return index

    def _damaged(self, problem):
        return (
            f"--shards {self.directory}: {problem}. Delete the folder and make it again with "
            "python -m examples.translation.shards."
        )

    def __len__(self):
        return self.index["pairs"]

    def read(self, numbers):
        """Reads the pairs with these numbers, as two lists of strings."""
        pairs = []
        # In portions, because whole blocks are read for single pairs.
        for start in range(0, len(numbers), 1000):
            pairs += self._read(numbers[start : start + 1000])
        return [a for a, _ in pairs], [b for _, b in pairs]

    def _read(self, numbers):
        blocks, rows = np.divmod(np.asarray(numbers), BLOCK)
        shards = blocks % len(self.first)
        keys = self.first[shards] + blocks // len(self.first)
        try:
            records = self.source.__getitems__(keys.tolist())
        except RuntimeError as error:
            raise RuntimeError(self._damaged(f"a shard is damaged ({error})")) from error
        for record, row in zip(records, 2 * rows, strict=True):
            yield [line.decode() for line in record.split(b"\n", row + 2)[row : row + 2]]

    def sample(self, count, seed):
        """Reads at most `count` random pairs, as two lists of strings."""
        import grain

        numbers = grain.MapDataset.range(len(self)).shuffle(seed)
        return self.read([numbers[n] for n in range(min(count, len(self)))])

    def batches(self, tokenizers, size, limit, seed, part=(0, 1)):
        """Makes a Grain dataset of endless batches, as `make_batches` yields them.

        Every batch has exactly `size` pairs. The pairs are shuffled again in each epoch, over the
        whole corpus and without a buffer. They are then sorted by length within pools of 32
        batches. A pool may hold the end of an epoch and the beginning of the next.

        The state of an iterator of this dataset is four numbers. After it is restored, it
        reads a few pools before the next batch: up to three if few pairs are too long.

        Args:
            tokenizers: the tokenizers of the source and the target language.
            size: the number of pairs in a batch.
            limit: the largest number of tokens; longer pairs are left out.
            seed: the seed of the order.
            part: `(process, processes)`. Each process reads its own pairs, as many as the others.
                Each epoch leaves out fewer than `processes` pairs, different ones each time. All
                batches are then padded to `limit` tokens, because processes that train one model
                need batches of one shape.
        """
        import grain
        from grain.experimental import FlatMapIterDataset, FlatMapTransform

        class Each(FlatMapTransform):
            max_fan_out = POOL * size

            def flat_map(self, element):
                return element

        process, processes = part
        if not 0 <= process < processes <= len(self):
            raise ValueError(
                f"part must be (process, processes) with 0 <= process < processes <= {len(self)}, "
                f"the number of pairs; received {part}"
            )
        every = grain.MapDataset.range(len(self)).shuffle(seed)
        some = [every[n] for n in range(min(1000, len(self)))]
        # Otherwise an iterator would look for a short pair forever.
        if not self._encode(tokenizers, limit, some):
            raise ValueError(
                f"none of {len(some):,} training pairs has at most {limit} tokens: raise "
                "--max-tokens"
            )
        own = every[process : len(self) - len(self) % processes : processes]
        pools = own.repeat().batch(POOL * size, batch_fn=list)
        pools = pools.map(functools.partial(self._encode, tokenizers, limit))
        # One thread reads the next pool while the model trains on this one.
        pools = pools.to_iter_dataset(grain.ReadOptions(num_threads=1, prefetch_buffer_size=1))
        pools = FlatMapIterDataset(pools, Each()).batch(POOL * size, batch_fn=list)
        length = limit if processes > 1 else None
        pools = pools.random_map(functools.partial(_bucket, size, length), seed=seed)
        return FlatMapIterDataset(pools, Each())

    def _encode(self, tokenizers, limit, numbers):
        sides = zip(tokenizers, self.read(numbers), strict=True)
        pairs = zip(*(encode(tokenizer, lines) for tokenizer, lines in sides), strict=True)
        return [pair for pair in pairs if is_short(pair, limit)]


def _bucket(size, length, pairs, order):
    sources, targets = zip(*pairs, strict=True)
    return list(make_batches(sources, targets, size, order, length))
