"""What the model trains on between two checkpoints: an epoch in memory, or steps from shards.

The `identity` of the data is stored in a checkpoint, so that other data cannot resume the run.
"""

import contextlib
import itertools

import numpy as np

from examples.translation.data import drop_long, encode, is_short, make_batches
from examples.translation.streaming import Shards


class Epochs:
    """Pairs in memory. A round is an epoch.

    Args:
        pairs: lists of ids of the sources and of the targets.
        arguments: a dictionary with the options of the training.
    """

    unit = "epoch"

    def __init__(self, pairs, arguments):
        self.pairs = self.identity = pairs
        self.size, self.seed = arguments["batch_size"], arguments["seed"]
        self.total = arguments["epochs"]
        self.steps_an_epoch = -(-len(pairs[0]) // self.size)
        self.steps = self.total * self.steps_an_epoch
        self.longest = max(map(len, pairs[1]))
        self.state = {}

    def next(self, done):
        """The round after `done` epochs: epochs done after it, its steps, and its batches."""

        # The order depends on the epoch alone, so a resumed run has the same one.
        def batches():
            order = np.random.default_rng([self.seed, done])
            return make_batches(*self.pairs, self.size, order)

        return done + 1, self.steps_an_epoch, batches

    def restore(self, entry):
        pass

    def speed(self, history):
        return {"seconds_an_epoch": float(np.median([past["seconds"] for past in history]))}


class Stream:
    """Pairs from shards. A round ends with a checkpoint, which holds the place in the shards.

    Args:
        shards: `Shards`.
        tokenizers: the tokenizers of the source and the target language.
        arguments: a dictionary with the options of the training.
    """

    unit = "step"

    def __init__(self, shards, tokenizers, arguments):
        self.identity = shards.index["digest"]
        self.longest = arguments["max_tokens"]
        self.steps = self.total = arguments["steps"]
        self.every = arguments["save_every"]
        self.dataset = shards.batches(
            tokenizers, arguments["batch_size"], self.longest, arguments["seed"]
        )
        self.state = {"place": None}

    def next(self, done):
        """The round after `done` steps: steps done after it, its steps, and its batches."""
        after = min(done + self.every - done % self.every, self.total)
        steps, place = after - done, self.state["place"]

        # Each call starts a new iterator at the saved place, because Keras may draw a batch that it
        # does not train on.
        def batches():
            with contextlib.closing(iter(self.dataset)) as iterator:
                if place is not None:
                    iterator.set_state(place)
                for number, batch in enumerate(itertools.islice(iterator, steps), 1):
                    if number == steps:
                        self.state = {"place": iterator.get_state()}
                    yield batch

        return after, steps, batches

    def restore(self, entry):
        self.state = {"place": entry["place"]}

    def speed(self, history):
        steps = np.diff([0, *(past["step"] for past in history)])
        seconds = [past["seconds"] for past in history]
        return {"seconds_a_step": float(np.median(seconds / steps))}


def make_rounds(train, tokenizers, arguments):
    """Makes the rounds for `Shards`, or for two lists of texts."""
    if isinstance(train, Shards):
        check_lengths(train.sample(1000, seed=0), tokenizers, arguments["max_tokens"])
        return Stream(train, tokenizers, arguments)
    pairs = [encode(*side) for side in zip(tokenizers, train, strict=True)]
    return Epochs(drop_long(*pairs, arguments["max_tokens"]), arguments)


def check_lengths(sample, tokenizers, limit):
    """Prints how many pairs of a sample are too long to be trained on. Refuses if all are."""
    sides = [encode(*side) for side in zip(tokenizers, sample, strict=True)]
    short = [is_short(pair, limit) for pair in zip(*sides, strict=True)]
    long = len(short) - sum(short)
    if not any(short):
        raise SystemExit(f"no pair of a sample has at most {limit} tokens: raise --max-tokens")
    if long:
        print(f"about {long / len(short):.1%} of the pairs have more than {limit} tokens: left out")
