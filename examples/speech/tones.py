"""A spoken language of tones, for training without data.

Each of twelve letters is one of three low tones, then one or two of six high ones. The length of
every tone and the loudness of every letter vary, and there is noise.
"""

import functools

import numpy as np

from examples.speech.sound import HOP, RATE, SCALE, log_mel

TONES = np.concatenate([320.0 * 2.0 ** (np.arange(3) / 3), 760.0 * 2.0 ** (np.arange(6) / 3)])  # Hz
# The tones of each letter, as positions in `TONES`.
PATTERNS = {
    **{"a": (0, 3), "b": (0, 5, 3), "c": (0, 7), "d": (0, 8, 5), "e": (1, 4), "f": (1, 6, 4)},
    **{"g": (1, 8), "h": (1, 3, 7), "i": (2, 5), "j": (2, 7, 4), "k": (2, 6), "l": (2, 4, 8)},
}
SECONDS = 0.03, 0.06  # of a tone
LOUDNESS = 0.2, 0.8
NOISE = 0.005
FADE = 0.004  # seconds
SILENCE = 0.05  # seconds, before and after


class Tones:
    """The language."""

    unit, letters, voices, digest = "letters", "".join(PATTERNS), (), None

    def make_text(self, rng, length):
        """A random word. A letter may follow itself."""
        return "".join(rng.choice([*PATTERNS], length))

    def say(self, text, rng, part=None):
        """Speaks a text: samples at `RATE`, in [-1, 1]."""
        silence = np.zeros(int(SILENCE * RATE))
        samples = np.concatenate([silence, *(_letter(x, rng) for x in text), silence])
        return (samples + rng.normal(scale=NOISE, size=len(samples))).astype("float32")

    def understand(self, frames):
        """Decodes log-mel frames `(T, MELS)` without a model: the text that explains them best.

        A Viterbi search over silence and the tones of all letters, at least two frames a tone. A
        frame fits a tone as well as its spectrum is similar to that of the pure tone.
        """
        letters, tones, starts, ends = (np.array(x) for x in zip(*_states(), strict=True))
        places = np.arange(len(tones))
        # A second state may last, is followed by the next tone, and at the end by any letter.
        follows = ends[:, None] & starts
        follows |= np.eye(len(tones), k=1, dtype=bool) & ~starts
        follows |= np.diag(places % 2 == 0)
        follows = np.where(follows, 0.0, -np.inf)
        fits = _similarity(frames)[:, tones]
        best, back = np.where(starts, fits[0], -np.inf), []
        for fit in fits[1:]:
            found = best[:, None] + follows  # from each state to each state
            back.append(found.argmax(0))
            best = found.max(0) + fit
        path = [int(np.where(ends, best, -np.inf).argmax())]
        for choices in reversed(back):
            path.append(int(choices[path[-1]]))
        return "".join(letters[path[::-1]])


def _letter(letter, rng):
    return rng.uniform(*LOUDNESS) * np.concatenate([_tone(n, rng) for n in PATTERNS[letter]])


def _tone(number, rng):
    time = np.arange(int(rng.uniform(*SECONDS) * RATE)) / RATE
    edge = np.minimum(time, time[::-1])
    wave = np.sin(2 * np.pi * (TONES[number] * time + rng.uniform()))
    return wave * np.minimum(edge / FADE, 1.0)


def _states():
    """One state of silence, and two of each tone, so that a tone takes two frames.

    Each is `(the letter that it begins, tone, whether a letter starts, whether it ends)`.
    """
    yield "", len(TONES), True, True
    for letter, pattern in PATTERNS.items():
        for tone in pattern:
            start = tone == pattern[0]
            yield letter * start, tone, start, False
            yield "", tone, False, tone == pattern[-1]


@functools.cache
def _spectra():
    """The magnitudes of the pure tones in mel bands; silence is zero."""
    time = np.arange(40 * HOP) / RATE
    pure = [log_mel(0.4 * np.sin(2 * np.pi * f * time).astype("float32"))[20] for f in TONES]
    return np.exp(SCALE * np.asarray(pure, "float64")) - 1.0


def _similarity(frames):
    """The logarithm of how well each frame fits each tone and silence, `(T, tones + 1)`."""
    spectra = _spectra()
    frames = np.maximum(np.exp(SCALE * np.asarray(frames, "float64")) - 1.0, 0.0)
    size = np.linalg.norm(frames, axis=1, keepdims=True)
    cosine = frames @ spectra.T / (np.maximum(size, 1e-9) * np.linalg.norm(spectra, axis=1))
    loud = np.linalg.norm(spectra, axis=1).mean()
    quiet = np.exp(-size / (0.04 * loud))
    fits = np.concatenate([cosine * (1 - quiet), quiet], axis=1)
    return 8.0 * np.log(np.maximum(fits, 1e-3))
