"""Spoken digits: strings of recordings with pauses, by one speaker each.

The Free Spoken Digit Dataset, https://github.com/Jakobovski/free-spoken-digit-dataset, is a folder
of files DIGIT_SPEAKER_INDEX.wav. By its split the indices 0 to 4 are for testing.
"""

import collections
import copy
import pathlib
import re

import keras
import numpy as np

from examples.speech.sound import RATE, read_wav

ARCHIVE = "https://github.com/Jakobovski/free-spoken-digit-dataset/archive/refs/tags/v1.0.10.tar.gz"
NAME = re.compile(r"([0-9])_([a-z]+)_([0-9]+)\.wav")
TEST = range(5)  # indices
PAUSE = 0.05, 0.25  # seconds
NOISE = 1e-3


class Digits:
    """Strings of spoken digits.

    Args:
        folder: a folder with recordings.
    """

    letters = "0123456789"

    def __init__(self, folder):
        found = [(NAME.fullmatch(path.name), path) for path in sorted(folder.glob("*.wav"))]
        found = [(match.groups(), path) for match, path in found if match]
        if not found:
            raise SystemExit(
                f"--data {folder}: has no recording such as 7_george_12.wav (digit, speaker, index)"
            )
        self.voices = sorted({speaker for (_, speaker, _), _ in found})
        self.recordings = collections.defaultdict(list)
        for (digit, speaker, index), path in found:
            part = "test" if int(index) in TEST else "train"
            self.recordings[part, speaker, digit].append(read_wav(path))
        for part in ("train", "test"):
            for speaker in self.voices:
                missing = [x for x in self.letters if not self.recordings[part, speaker, x]]
                if missing:
                    raise SystemExit(
                        f"--data {folder}: {speaker} has no recording for the {part} set of the "
                        f"digits {', '.join(missing)}. The indices 0 to 4 are the test set."
                    )

    def with_voice(self, voice=None):
        """The same with one speaker, the first one if none is named."""
        if voice not in (None, *self.voices):
            raise SystemExit(f"--voice {voice}: the speakers are {', '.join(self.voices)}")
        digits = copy.copy(self)
        digits.voices = [voice or self.voices[0]]
        return digits

    def make_text(self, rng, length):
        return "".join(rng.choice(list(self.letters), length))

    def say(self, text, rng, part):
        """A string by one speaker, with a pause before every digit and at the end."""
        speaker = self.voices[rng.integers(len(self.voices))]
        parts = [_pause(rng)]
        for digit in text:
            recordings = self.recordings[part, speaker, digit]
            parts += [recordings[rng.integers(len(recordings))], _pause(rng)]
        samples = np.concatenate(parts)
        return (samples + rng.normal(scale=NOISE, size=len(samples))).astype("float32")


def _pause(rng):
    return np.zeros(int(rng.uniform(*PAUSE) * RATE), "float32")


def find_folder(data):
    """The folder with the recordings, which are downloaded if `data` is "download"."""
    if data != "download":
        return pathlib.Path(data)
    path = keras.utils.get_file("free-spoken-digit-dataset-1.0.10", ARCHIVE, extract=True)
    return next(pathlib.Path(path).rglob("recordings"))
