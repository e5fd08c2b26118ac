"""Writes the `.keras` file, the SavedModel and the pictures, and checks each of them."""

from unicodedata import category, name

import numpy as np
import tensorflow as tf
from keras import ops

from examples.common.files import save_figure
from examples.common.saving import can_export, check_saved_model, write_model
from examples.common.text import make_table
from examples.common.training import pad
from examples.pronunciation.data import (
    END,
    PAD,
    START,
    UNKNOWN,
    decompose,
    encode_phones,
    encode_words,
)
from keras_attention.plotting import plot_attention

PICTURES = 4


def save(pronouncer, words, output):
    """Writes and checks all files of a trained pronouncer; the words are for the checks."""
    # Long words show an alignment best.
    words = sorted(words, key=lambda word: len(decompose(word)))[-PICTURES:]
    phones = pronouncer(words)
    source = pad(encode_words(pronouncer.letters, words))
    target = pad(encode_phones(pronouncer.phones, phones))
    write_model(pronouncer.model, output / "model.keras", (source, target))
    if can_export():
        path = output / "saved_model"
        export(pronouncer, path)
        print(f"{path}: takes words, returns phones and scores")
        texts = [" ".join(row) for row in phones]
        expected = {"texts": texts, "scores": pronouncer.search(words).scores}
        check_saved_model(path, {"source": words}, expected, tolerance=1e-4)
    weights, boxed = read_places(pronouncer.models[0], source, target), set()
    for n, word in enumerate(words):
        boxed |= draw_alignment(word, phones[n], weights[n], output / f"alignment-{n + 1}.png")
    print(f"{output / 'alignment-1.png'} and others: the letters that each phone was read from")
    if boxed:
        print(missing_font(boxed))


def export(pronouncer, path):
    """Writes a SavedModel from words to phones with spaces between them.

    A process that loads it needs the operations of tensorflow-text.
    """
    import tensorflow_text

    table = make_table(pronouncer.letters.names[END + 1 :], default=UNKNOWN - END)

    def tokenize(words):
        # Python's `decompose` does not run inside a SavedModel.
        words = tensorflow_text.normalize_utf8(words, "NFD")
        ids = tf.cast(table.lookup(tf.strings.unicode_split(words, "UTF-8")), "int32") + END
        ends = tf.ones((tf.shape(words)[0], 1), "int32")
        return tf.concat([START * ends, ids, END * ends], axis=1).to_tensor(PAD)

    def detokenize(tokens, lengths):
        spoken = tf.RaggedTensor.from_tensor(tokens, lengths=lengths)
        spoken = tf.ragged.boolean_mask(spoken, spoken > END)
        phones = tf.gather(tf.constant(pronouncer.phones.names), spoken)
        return tf.strings.reduce_join(phones, 1, separator=" ")

    parts = {"tokenize": tokenize, "detokenize": detokenize, "tracked": (table,)}
    pronouncer.model.export_generate(path, **pronouncer.options, **parts)


def read_places(model, source, target):
    """The probability of each letter to be read for each phone, `(B, T, S)`.

    The attention before a monotonic head also weighs letters that were passed. Only the state of
    the head knows where the reader can be: its first tensor is the logarithm of the probabilities.
    """
    state, memory = model.start(source)
    places = []
    for token in np.insert(target[:, :-1], 0, START, axis=1).T:
        _, state, weights = model.step(token, state, memory)
        places.append(weights if state[1] is None else ops.exp(state[1][0]))
    return np.stack([ops.convert_to_numpy(x) for x in places], axis=1)


def draw_alignment(word, phones, weights, path):
    """Draws the letters that each phone of a word was read from, `(T, S)` padded, as a PNG.

    Returns:
        The signs that no font has, which the picture shows as boxes.
    """
    # A mark on its own is drawn on a circle.
    letters = [f"◌{x}" if category(x).startswith("M") else x for x in decompose(word)]
    source, target = ["⊢", *letters, "⊣"], [*phones, "⏎"][: len(weights)]
    weights = weights[: len(target), : len(source)]
    figure = plot_attention(weights, source, target, title=f"{word}  →  {' '.join(phones)}")
    save_figure(path, figure)
    axes = figure.axes[0]
    labels = [x.get_text() for x in (*axes.get_xticklabels(), *axes.get_yticklabels())]
    return {x[-1] for x, label in zip(source + target, labels, strict=True) if "□" in label}


def missing_font(signs):
    """One sentence that says which font to install."""
    import matplotlib

    names = [name(sign, "unknown").removeprefix("COMBINING ") for sign in signs]
    scripts = sorted({x.split()[0].lower() for x in names})
    asian = {"hiragana", "katakana", "katakana-hiragana", "hangul", "cjk"}.intersection(scripts)
    return (
        f"The pictures have boxes, because matplotlib finds no font with {' '.join(sorted(signs))} "
        f"({', '.join(scripts)}): install one, for example Noto Sans (Debian: apt-get install "
        f"fonts-noto-{'cjk' if asian else 'core'}), delete {matplotlib.get_cachedir()}, and run "
        "the same command again."
    )
