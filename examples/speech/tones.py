"""A spoken language of tones, for training without data.

Each of twelve letters is a pattern of two or three short tones: one of three low tones, then one or
two of six high ones. The length of every tone and the loudness of every letter vary, and there is
noise. `python -m examples.speech.tones` writes a sample.
"""

import itertools
import pathlib

import numpy as np

from examples.common.files import make_folder
from examples.speech.sound import HOP, RATE, SCALE, log_mel, write_wav

LOW = 320.0 * 2.0 ** (np.arange(3) / 3)  # Hz
HIGH = 760.0 * 2.0 ** (np.arange(6) / 3)
TONES = np.concatenate([LOW, HIGH])
# The tones of each letter, as positions in `TONES`.
PATTERNS = {
    "a": (0, 3),
    "b": (0, 5, 3),
    "c": (0, 7),
    "d": (0, 8, 5),
    "e": (1, 4),
    "f": (1, 6, 4),
    "g": (1, 8),
    "h": (1, 3, 7),
    "i": (2, 5),
    "j": (2, 7, 4),
    "k": (2, 6),
    "l": (2, 4, 8),
}
LETTERS = "".join(PATTERNS)
SECONDS = 0.03, 0.06  # of a tone
LOUDNESS = 0.2, 0.8
NOISE = 0.005
FADE = 0.004  # seconds
SILENCE = 0.05  # seconds, before and after


class Tones:
    """The language."""

    letters = LETTERS
    voices = ()

    def make_text(self, rng, length):
        """A random word. A letter may follow itself."""
        return "".join(rng.choice(list(LETTERS), length))

    def say(self, text, rng, part=None):
        """Speaks a text: samples at `RATE`, in [-1, 1]."""
        silence = np.zeros(int(SILENCE * RATE))
        parts = [silence, *(_letter(letter, rng) for letter in text), silence]
        samples = np.concatenate(parts)
        return (samples + rng.normal(scale=NOISE, size=len(samples))).astype("float32")

    def understand(self, frames):
        return understand(frames)


def _letter(letter, rng):
    return rng.uniform(*LOUDNESS) * np.concatenate([_tone(n, rng) for n in PATTERNS[letter]])


def _tone(number, rng):
    time = np.arange(int(rng.uniform(*SECONDS) * RATE)) / RATE
    edge = np.minimum(time, time[::-1])
    wave = np.sin(2 * np.pi * (TONES[number] * time + rng.uniform()))
    return wave * np.minimum(edge / FADE, 1.0)


def understand(frames):
    """Decodes log-mel frames `(T, mels)` without a model: the text that explains them best.

    A Viterbi search over silence and the tones of all letters, at least two frames a tone. A frame
    fits a tone as well as its spectrum is similar to that of the pure tone.
    """
    names, starts, follows = _states()
    fits = _similarity(frames)[:, [number for _, number, _ in names]]
    best = np.where(starts, 0.0, -np.inf) + fits[0]
    back = []
    for fit in fits[1:]:
        found = best[:, None] + follows  # from each state to each state
        back.append(found.argmax(0))
        best = found.max(0) + fit
    ends = np.array([last for _, _, last in names])
    state = int(np.where(ends, best, -np.inf).argmax())
    path = [state]
    for choices in reversed(back):
        path.append(int(choices[path[-1]]))
    path.reverse()
    # A letter begins where a first state of a letter is entered.
    first = {n for n, start in enumerate(starts) if start and names[n][0]}
    entered = [n for m, n in itertools.pairwise([-1, *path]) if n in first and m != n]
    return "".join(names[n][0] for n in entered)


def _states():
    """Names `(letter, tone, whether a text may end here)`, first states, and transitions.

    Every tone has two states, so that it takes two frames. The second one may last.
    """
    names, starts, last = [("", len(TONES), True)], [True], [0]
    follows = [(0, 0)]
    for letter, pattern in PATTERNS.items():
        for place, number in enumerate(pattern):
            n = len(names)
            end = place == len(pattern) - 1
            names += [(letter, number, False), (letter, number, end)]
            starts += [place == 0, False]
            follows += [(n, n + 1), (n + 1, n + 1), *([] if place == 0 else [(n - 1, n)])]
            last += [n + 1] * end
    begin = [n for n, start in enumerate(starts) if start]
    follows += [(m, n) for m in last for n in begin]
    allowed = np.full((len(names), len(names)), -np.inf)
    allowed[tuple(np.transpose(follows))] = 0.0
    return names, np.array(starts), allowed


def _similarity(frames):
    """The logarithm of how well each frame fits each tone and silence, `(T, tones + 1)`."""
    time = np.arange(40 * HOP) / RATE
    pure = [log_mel(0.4 * np.sin(2 * np.pi * f * time).astype("float32"))[20] for f in TONES]
    spectra, frames = (np.exp(SCALE * np.asarray(x, "float64")) for x in (pure, frames))
    spectra, frames = spectra - 1.0, np.maximum(frames - 1.0, 0.0)  # silence is zero
    size = np.linalg.norm(frames, axis=1, keepdims=True)
    cosine = frames @ spectra.T / (np.maximum(size, 1e-9) * np.linalg.norm(spectra, axis=1))
    loud = np.linalg.norm(spectra, axis=1).mean()
    quiet = np.exp(-size / (0.04 * loud))
    fits = np.concatenate([cosine * (1 - quiet), quiet], axis=1)
    return 8.0 * np.log(np.maximum(fits, 1e-3))


def main():
    rng, language = np.random.default_rng(1), Tones()
    text = language.make_text(rng, 12)
    samples = language.say(text, rng)
    path = make_folder(pathlib.Path("output")) / "tones.wav"
    write_wav(path, samples)
    print(f"{path}: {text}; understood: {understand(log_mel(samples))}")


if __name__ == "__main__":
    main()
