"""Writes the `.keras` file and the pictures of a pronouncer."""

import unicodedata

import numpy as np
from keras import ops

from examples.common.files import save_figure
from examples.common.saving import write_model
from examples.common.training import pad
from examples.pronunciation.data import START, decompose, encode_phones, encode_words
from keras_attention.plotting import plot_attention

PICTURES = 4


def save(pronouncer, words, output):
    """Writes and checks the file of a trained pronouncer, and draws the longest of some words."""
    words = sorted(words, key=lambda word: len(decompose(word)))[-PICTURES:]
    phones = pronouncer(words)
    source = pad(encode_words(pronouncer.letters, words))
    target = pad(encode_phones(pronouncer.phones, phones))
    write_model(pronouncer.model, output / "model.keras", (source, target))
    weights = read_places(pronouncer.models[0], source, target)
    for n, word in enumerate(words):
        draw_alignment(word, phones[n], weights[n], output / f"alignment-{n + 1}.png")
    print(f"{output / 'alignment-1.png'} and others: the letters that each phone was read from")


def read_places(model, source, target):
    """The probability of each letter to be read for each phone, `(B, T, S)`.

    Before a monotonic head, it is the exponential of the first tensor of its state.
    """
    state, memory = model.start(source)
    places = []
    for token in np.insert(target[:, :-1], 0, START, axis=1).T:
        _, state, weights = model.step(token, state, memory)
        places.append(weights if state[1] is None else ops.exp(state[1][0]))
    return np.stack([ops.convert_to_numpy(x) for x in places], axis=1)


def draw_alignment(word, phones, weights, path):
    """Draws the letters that each phone of a word was read from, `(T, S)` padded, as a PNG."""
    # A mark on its own is drawn on a circle.
    marks = [unicodedata.category(x).startswith("M") for x in decompose(word)]
    letters = ["◌" * mark + x for x, mark in zip(decompose(word), marks, strict=True)]
    source, target = ["⊢", *letters, "⊣"], [*phones, "⏎"][: len(weights)]
    weights = weights[: len(target), : len(source)]
    title = f"{word}  →  {' '.join(phones)}"
    save_figure(path, plot_attention(weights, source, target, title=title))
