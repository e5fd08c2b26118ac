"""Utterances, and the batches that the speaker and the listener learn from."""

import math
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from examples.common.batching import bucketed
from examples.speech.model import END, PAD, SHARED, START
from examples.speech.sound import MELS, log_mel

FIRST = 3  # the id of the first letter, after PAD, START and END
SHAPES = 16  # groups of frames: lengths are multiples, so that XLA compiles few programs


class Corpus(NamedTuple):
    """Utterances.

    Attributes:
        texts: strings.
        frames: log-mel frames of each, `(T, MELS)`.
    """

    texts: list
    frames: list


def make_corpus(language, part, count, lengths, seed):
    """Generates utterances whose numbers of letters are drawn from `lengths`, lowest and highest.

    Args:
        language: a `Tones` or a `Digits`.
        part: "train" or "test".
    """
    rng = np.random.default_rng(seed)
    spoken = tf.function(log_mel, input_signature=[tf.TensorSpec((None,))], autograph=False)
    texts, frames = [], []
    for _ in range(count):
        text = language.make_text(rng, int(rng.integers(lengths[0], lengths[1] + 1)))
        texts.append(text)
        frames.append(spoken(language.say(text, rng, part)).numpy())
    return Corpus(texts, frames)


def shortest(corpus, share):
    """The shortest utterances, repeated to the size of the corpus.

    Args:
        share: how much of the corpus to take, in (0, 1].
    """
    size = len(corpus.texts)
    count = math.ceil(share * size)
    by_length = sorted(range(size), key=lambda n: len(corpus.texts[n]))
    chosen = [by_length[n % count] for n in range(size)]
    return Corpus(*([column[n] for n in chosen] for column in corpus))


def steps_of_a_letter(corpus):
    """How many groups of frames a letter has on average."""
    return int(_groups(corpus.frames).sum()) / sum(map(len, corpus.texts))


def encode(text, letters):
    return [FIRST + letters.index(letter) for letter in text]


def decode(ids, letters):
    """The text up to the end."""
    ids = list(ids)
    ids = ids[: ids.index(END)] if END in ids else ids
    return "".join(letters[n - FIRST] for n in ids if n >= FIRST)


def speaker_batch(texts, frames, letters):
    """Inputs, targets and weights of a batch. A step makes `SHARED` frames."""
    source = pad([encode(text, letters) for text in texts])
    steps = _groups(frames)
    made = stack_frames(frames, steps.max()).reshape(len(frames), -1, SHARED * MELS)
    last = np.pad(made[:, :-1, -MELS:], [(0, 0), (1, 0), (0, 0)])
    place = np.arange(made.shape[1])
    inside = (place < steps[:, None]).astype("float32")
    stop = (place == steps[:, None] - 1).astype("float32")[..., None]
    targets, weights = {"frames": made, "stop": stop}, {"frames": inside, "stop": inside}
    return (source, last), targets, weights


def listener_batch(texts, frames, letters):
    """Inputs, targets and weights of a batch. The listener writes END after the last letter."""
    ids = [encode(text, letters) for text in texts]
    shifted, target = pad([[START, *x] for x in ids]), pad([[*x, END] for x in ids])
    return (*listened(frames), shifted), target, (target != PAD).astype("float32")


def listened(frames):
    """The inputs of the listener: padded frames, and which groups of them are valid."""
    steps = _groups(frames)
    padded = stack_frames(frames, steps.max())
    return padded, np.arange(padded.shape[1] // SHARED) < steps[:, None]


def batches(corpus, make_batch, letters, size, order=None):
    """Batches of utterances of similar length."""
    lengths = [len(x) for x in corpus.frames]
    for part in bucketed(lengths, size, order):
        yield make_batch([corpus.texts[n] for n in part], [corpus.frames[n] for n in part], letters)


def _groups(frames):
    return np.array([-(-len(x) // SHARED) for x in frames])


def stack_frames(frames, groups):
    """Pads frames with silence to a multiple of so many groups of `SHARED`."""
    length = -(-groups // SHAPES) * SHAPES * SHARED
    stacked = np.zeros((len(frames), length, MELS), "float32")
    for row, x in zip(stacked, frames, strict=True):
        row[: len(x)] = x
    return stacked


def pad(rows):
    """Pads ids to a common length, a multiple of four."""
    length = -(-max(map(len, rows)) // 4) * 4
    return np.array([[*row, *[PAD] * (length - len(row))] for row in rows], "int32")
