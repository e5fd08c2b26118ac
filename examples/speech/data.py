"""Utterances: recordings of digits, and the batches that the speaker and the listener learn from.

The Free Spoken Digit Dataset, https://github.com/Jakobovski/free-spoken-digit-dataset, is a folder
of files DIGIT_SPEAKER_INDEX.wav. By its split the indices 0 to 4 are for testing.
"""

import collections
import itertools
import math
import pathlib
import re

import keras
import numpy as np
import tensorflow as tf

from examples.common.files import fingerprint, refuse
from examples.common.training import Batches, bucketed, pad
from examples.speech.model import END, FIRST, SHARED
from examples.speech.sound import MELS, RATE, log_mel, read_wav

ARCHIVE = "https://github.com/Jakobovski/free-spoken-digit-dataset/archive/refs/tags/v1.0.10.tar.gz"
NAME = re.compile(r"([0-9])_([a-z]+)_([0-9]+)\.wav")
PARTS = ["test"] * 5 + ["valid"] * 3  # of the first indices; the others are for training
PAUSE = 0.05, 0.25  # seconds
NOISE = 1e-3
VALID = 128  # utterances
SHAPES = 16  # groups of frames: lengths are multiples, so that XLA compiles few programs


class Digits:
    """Strings of spoken digits, each by one of the `voices`: by default all speakers.

    A speaker who is held out speaks all strings of the test set, and no others.
    """

    unit, letters = "digits", "0123456789"

    def __init__(self, folder, voices=None, held_out=None):
        if folder == "download":
            path = keras.utils.get_file("free-spoken-digit-dataset-1.0.10", ARCHIVE, extract=True)
            folder = next(pathlib.Path(path).rglob("recordings"))
        self.recordings = collections.defaultdict(list)
        for path in sorted(pathlib.Path(folder).glob("*.wav")):
            if match := NAME.fullmatch(path.name):
                digit, speaker, index = match.groups()
                part = PARTS[int(index)] if int(index) < len(PARTS) else "train"
                self.recordings[part, speaker, digit].append(read_wav(path))
        speakers = sorted({speaker for _, speaker, _ in self.recordings})
        self.voices = [x for x in voices or speakers if x != held_out]
        self.judged = [held_out] if held_out else self.voices
        if not self.voices or not {*self.voices, *self.judged} <= {*speakers}:
            named = "recordings such as 7_george_12.wav (digit, speaker, index)"
            found = ", ".join(speakers) or "none"
            refuse(f"--data {folder}", f"has {named} of these speakers: {found}")
        everybody = sorted({*self.voices, *self.judged})
        for part, speaker in itertools.product(("test", "valid", "train"), everybody):
            missing = [x for x in self.letters if not self.recordings[part, speaker, x]]
            if missing:
                lack = f"has no recording for the {part} set of the digits {', '.join(missing)}"
                indices = "0 to 4 are the test set, 5 to 7 the valid set, the others the train set"
                refuse(f"--data {folder}", f"{speaker} {lack}. Of the indices {indices}")

    @property
    def digest(self):
        """Changes with any recording of these voices."""
        own = sorted(x for x in self.recordings.items() if x[0][1] in self.voices)
        return fingerprint(*(part for key, x in own for part in (key, *x)))

    def make_text(self, rng, length):
        return "".join(rng.choice([*self.letters], length))

    def say(self, text, rng, part):
        """A string by one speaker, with a pause before every digit and at the end."""
        voices = self.judged if part == "test" else self.voices
        speaker = voices[rng.integers(len(voices))]
        parts = [_pause(rng)]
        for digit in text:
            recordings = self.recordings[part, speaker, digit]
            parts += [recordings[rng.integers(len(recordings))], _pause(rng)]
        samples = np.concatenate(parts)
        return (samples + rng.normal(scale=NOISE, size=len(samples))).astype("float32")


def _pause(rng):
    return np.zeros(int(rng.uniform(*PAUSE) * RATE), "float32")


def make_corpus(language, part, count, lengths, seed):
    """Generates utterances of a part, of so many letters: texts, and log-mel frames `(T, MELS)`."""
    rng = np.random.default_rng(seed)
    spoken = tf.function(log_mel, input_signature=[tf.TensorSpec((None,))], autograph=False)
    texts, frames = [], []
    for _ in range(count):
        texts.append(language.make_text(rng, int(rng.integers(lengths[0], lengths[1] + 1))))
        frames.append(spoken(language.say(texts[-1], rng, part)).numpy())
    return texts, frames


def encode(text, letters):
    return [FIRST + letters.index(letter) for letter in text]


def decode(ids, letters):
    return "".join(letters[n - FIRST] for n in ids if n >= FIRST)


def speaker_batch(texts, frames, letters):
    """Inputs, targets and weights of a batch. A step makes `SHARED` frames."""
    source = pad([encode(text, letters) for text in texts])
    steps = count_groups(frames)
    made = stack_frames(frames).reshape(len(frames), -1, SHARED * MELS)
    last = np.pad(made[:, :-1, -MELS:], [(0, 0), (1, 0), (0, 0)])
    place = np.arange(made.shape[1])
    inside = (place < steps[:, None]).astype("float32")
    stop = (place == steps[:, None] - 1).astype("float32")[..., None]
    targets, weights = {"frames": made, "stop": stop}, {"frames": inside, "stop": inside}
    return (source, last, inside > 0), targets, weights


def listener_batch(texts, frames, letters):
    """Inputs and targets of a batch. The listener writes END after the last letter."""
    target = pad([[*encode(text, letters), END] for text in texts])
    return (listened(frames), target), target


def listened(frames):
    """What the listener hears: padded frames, and which groups of them are valid."""
    padded = stack_frames(frames)
    return padded, np.arange(padded.shape[1] // SHARED) < count_groups(frames)[:, None]


def make_batches(texts, frames, make_batch, letters, size, seed, growing=0, shuffled=True):
    """`Batches` of utterances of similar length, in a new order in each epoch if `shuffled`.

    In the first `growing` epochs, the shortest ones are repeated to the size of the corpus.
    """
    lengths = np.array([len(x) for x in frames])
    by_length = np.argsort([len(text) for text in texts], kind="stable")

    def split(order):
        share = min(1.0, (batches.epoch + 1) / growing) if growing else 1.0
        chosen = by_length[np.arange(len(lengths)) % math.ceil(share * len(lengths))]
        return [chosen[x] for x in bucketed(lengths[chosen], size, order if shuffled else None)]

    def read(rows):
        return make_batch([texts[n] for n in rows], [frames[n] for n in rows], letters)

    batches = Batches(split, read, seed, steps=-(-len(lengths) // size))
    return batches


def make_data(task, language, arguments, epochs):
    """Makes `Batches` to learn from, others to watch, and counts the groups of frames a letter."""
    lengths, seed = (1, arguments.longest), arguments.seed
    texts, frames = make_corpus(language, "train", arguments.utterances, lengths, seed)
    valid = make_corpus(language, "valid", VALID, lengths, seed + 1)
    make_batch = listener_batch if task == "listen" else speaker_batch
    options = make_batch, language.letters, arguments.batch_size, seed
    # The speaker learns from short texts first, in half of the epochs.
    batches = make_batches(texts, frames, *options, growing=0 if task == "listen" else epochs / 2)
    steps = count_groups(frames).sum() / sum(map(len, texts))
    return batches, make_batches(*valid, *options, shuffled=False), steps


def count_groups(frames):
    return np.array([-(-len(x) // SHARED) for x in frames])


def stack_frames(frames):
    """Pads frames with silence to a multiple of so many groups of `SHARED`."""
    length = -(-count_groups(frames).max() // SHAPES) * SHAPES * SHARED
    return np.stack([np.pad(x, [(0, length - len(x)), (0, 0)]) for x in frames])
