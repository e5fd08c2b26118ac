"""Trains the models, and pronounces the words of the dev and test sets with them."""

import json
import pathlib
import sys
import time

import keras
import numpy as np
import tensorflow as tf

from examples.common.arguments import command_line
from examples.common.checkpoint import Checkpoint
from examples.common.devices import COMPILED
from examples.common.directions import combine, direction
from examples.common.files import fingerprint
from examples.common.schedules import warmup_cosine
from examples.common.seeds import reseed, seed_model
from examples.pronunciation.data import (
    END,
    PAD,
    Symbols,
    as_dataset,
    encode_phones,
    encode_words,
    known_letters,
    make_batches,
    pad,
)
from examples.pronunciation.evaluation import score
from examples.pronunciation.model import build_model
from keras_attention.search import reverse_tokens

# Options that a checkpoint does not depend on.
FREE = ("data", "output", "ensemble", "backward", "beam", "seed")


class Pronouncer:
    """A trained model, or several that decide together, with the letters and phones it knows.

    Args:
        left_to_right, right_to_left: lists of `Seq2Seq` models, of which one may be empty.
        letters, phones: the `Symbols` of both sides.
        beam: the width of the search.
        longest: the largest number of phones of a word.
    """

    def __init__(self, left_to_right, right_to_left, letters, phones, beam, longest):
        self.models = [*left_to_right, *right_to_left]
        self.model = combine(left_to_right, right_to_left)
        self.turned = not left_to_right  # the model writes the last phone first
        self.letters, self.phones = letters, phones
        # Without a length penalty the score is the log probability of the phones.
        self.options = {"max_length": longest, "beam_width": beam, "length_penalty": 0.0}

    def __call__(self, words):
        """The phones of each word, a list of strings."""
        return [self.phones.decode(row) for row in self.search(words).tokens]

    def search(self, words):
        """The `SearchResult` of the words."""
        ids = pad(encode_words(self.letters, words))
        found = self.model.generate(ids, **self.options)
        if not self.turned:
            return found
        return found._replace(tokens=reverse_tokens(found.tokens, END, PAD))


def run(words, arguments):
    """Trains all models and pronounces the dev and test words.

    Returns:
        The `Pronouncer` of all models, the phones that it found for the test words, and a summary.
    """
    letters = known_letters(word for word, _ in words["train"])
    phones = Symbols.of(sounds for _, sounds in words["train"])
    longest = 2 * max(len(sounds) for _, sounds in words["train"])
    settings = {name: x for name, x in vars(arguments).items() if name not in FREE}
    # The letters too: the way in which words become letters may change.
    known = json.dumps([words["train"], words["dev"], letters.names])
    settings["words"] = fingerprint(known.encode())
    left, right, summaries = [], [], []
    for number in range(arguments.ensemble):
        backward = number >= arguments.ensemble - arguments.backward
        seed = arguments.seed + number
        model, history = learn(words, letters, phones, seed, backward, settings, arguments.output)
        (right if backward else left).append(model)
        alone = ([], [model]) if backward else ([model], [])
        _, scores = judge(Pronouncer(*alone, letters, phones, arguments.beam, longest), words)
        seconds = sum(entry["seconds"] for entry in history)
        identity = {"seed": seed, "direction": direction(backward)}
        summaries.append({**identity, "train_seconds": seconds, **scores})
    pronouncer = Pronouncer(left, right, letters, phones, arguments.beam, longest)
    found, scores = judge(pronouncer, words)
    summary = {
        "attention": arguments.attention,
        "language": arguments.language or "invented",
        "command": command_line("pronunciation"),
        "keras": keras.__version__,
        "tensorflow": tf.__version__,
        "parameters": left[0].count_params(),
        "models": summaries,
        **scores,
    }
    return pronouncer, found["test"], summary


def learn(words, letters, phones, seed, backward, settings, output):
    """Trains one model, or resumes. Returns it and the history of its epochs."""
    settings = {**settings, "seed": seed, **({"backward": True} if backward else {})}
    seed_model(seed)
    model = build_model(
        settings["attention"],
        *(len(letters), len(phones)),
        *(settings[name] for name in ("units", "embedding", "layers", "dropout")),
        backward,
    )
    sides = {
        split: (
            encode_words(letters, [word for word, _ in words[split]]),
            encode_phones(phones, [x[::-1] if backward else x for _, x in words[split]]),
        )
        for split in ("train", "dev")
    }
    (first, _) = next(make_batches(*sides["train"], settings["batch_size"]))
    model(first)  # builds the weights
    folder = f"checkpoint-{settings['attention']}{'-backward' * backward}-{seed}"
    checkpoint = Checkpoint(pathlib.Path(output) / folder, settings)
    print(
        f"\n{settings['attention']}, {direction(backward)}, seed {seed}: "
        f"{model.count_params():,} parameters",
        flush=True,
    )
    return model, train(model, sides, settings, checkpoint)


def judge(pronouncer, words):
    """The phones that were found for the dev and test words, and their error rates."""
    start = time.perf_counter()
    found = {s: pronouncer([word for word, _ in words[s]]) for s in ("dev", "test")}
    seconds = time.perf_counter() - start
    scores = {split: score(found[split], words[split]) for split in found}
    return found, {"search_seconds": seconds, **scores}


def train(model, sides, settings, checkpoint):
    """Trains to the end, or resumes an earlier run. Returns the history of the epochs.

    Args:
        model: what `build_model` returns.
        sides: {"train": (source ids, target ids), "dev": ...}, lists of lists.
        settings: a dictionary with the options of the training.
        checkpoint: a `Checkpoint`.
    """
    size, epochs, seed = (settings[name] for name in ("batch_size", "epochs", "seed"))
    steps = {split: -(-len(pairs[0]) // size) for split, pairs in sides.items()}
    rate = warmup_cosine(settings["learning_rate"], steps["train"] * epochs, last=0.01)
    optimizer = keras.optimizers.Adam(rate, beta_2=0.98, global_clipnorm=1.0)
    model.compile(optimizer, jit_compile=COMPILED)
    checked = as_dataset(lambda: make_batches(*sides["dev"], size), steps["dev"])
    for done in range(checkpoint.restore(model), epochs):
        reseed(model, seed, done)
        order = np.random.default_rng([seed, done])
        batches = as_dataset(lambda: make_batches(*sides["train"], size, order), steps["train"])  # noqa: B023
        start = time.perf_counter()
        verbose = 1 if sys.stdout.isatty() else 0
        history = model.fit(batches, shuffle=False, verbose=verbose).history
        entry = {
            "epoch": done + 1,
            "train_loss": history["loss"][0],
            "dev_loss": model.evaluate(checked, verbose=0),
            "seconds": time.perf_counter() - start,
        }
        checkpoint.save(model, entry)
        print(
            f"epoch {done + 1}/{epochs}: training loss {entry['train_loss']:.4f}, dev loss "
            f"{entry['dev_loss']:.4f}, {entry['seconds']:.0f} s",
            flush=True,
        )
    return checkpoint.state["history"]
