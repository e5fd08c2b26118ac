"""How many words are pronounced wrongly, a report of it, and the files of a pronouncer."""

import unicodedata

import matplotlib
import numpy as np
from keras import ops

from examples.common.files import save_figure, write_text
from examples.common.text import edit_distances
from examples.common.training import write_model
from keras_attention.plotting import plot_attention


def score(found, references):
    """Both error rates of phones, in percent, as in SIGMORPHON 2021, task 1."""
    pairs = list(zip(map(list, found), map(list, references), strict=True))
    edits = int(edit_distances(found, references).sum())
    return {
        "words": len(pairs),
        "word_error_rate": 100 * sum(a != b for a, b in pairs) / len(pairs),
        "phone_error_rate": 100 * edits / sum(map(len, references)),
    }


def judge(pronouncer, words):
    """The phones that are found for the test words, and the error rates of dev and test."""
    found = {split: pronouncer([word for word, _ in words[split]]) for split in ("dev", "test")}
    scores = {split: score(x, [phones for _, phones in words[split]]) for split, x in found.items()}
    return found["test"], scores


def report(summary, pairs, found, path):
    """Writes what was found for the test words; prints some wrong ones, times and error rates."""
    words = [word for word, _ in pairs]
    lines = [f"{word}\t{' '.join(phones)}\n" for word, phones in zip(words, found, strict=True)]
    write_text(path, "".join(lines))
    wrong = [(word, a, b) for (word, b), a in zip(pairs, found, strict=True) if a != b]
    print(f"\nThe first of {len(wrong)} wrong words of the test set:")
    for word, phones, right in wrong[:6]:
        print(f"  {word}  {' '.join(phones)}  (reference: {' '.join(right)})")
    print(f"\n{summary['attention']}, {summary['parameters']:,} parameters")
    for model in summary["models"]:
        print(f"  seed {model['seed']}, {model['direction']}: {_rates(model)}")
    if len(summary["models"]) > 1:
        print(f"  all {len(summary['models'])} together: {_rates(summary)}")
    print(f"exactly right: {100 - summary['test']['word_error_rate']:.1f}% of the test words")


def _rates(scores):
    return ", ".join(
        f"{split} words wrong {scores[split]['word_error_rate']:.2f}%, phones "
        f"{scores[split]['phone_error_rate']:.2f}%"
        for split in ("dev", "test")
    )


def save(pronouncer, words, output):
    """Writes and checks the file of a trained pronouncer, and draws the longest of some words."""
    letters = pronouncer.model.source_text.pieces
    words = sorted(words, key=lambda word: len(letters(word)))[-4:]
    phones = pronouncer(words)
    source, target = pronouncer.model.tokenize(words, [*map(" ".join, phones)])
    write_model(pronouncer.model, output / "model.keras", (source, target))
    weights, boxed = read_places(pronouncer.models[0], source, target), set()
    for n, word in enumerate(words):
        path = output / f"alignment-{n + 1}.png"
        boxed |= draw_alignment(letters(word), phones[n], weights[n], path)
    print(f"{output / 'alignment-1.png'} and others: the letters that each phone was read from")
    if boxed:
        print(missing_font(boxed))


def read_places(model, source, target):
    """The probability of each letter to be read for each phone, `(B, T, S)`.

    Before a monotonic head, it is the exponential of the first tensor of its state.
    """
    state, memory = model.start(source)
    places = []
    for token in np.insert(target[:, :-1], 0, model.start_token, axis=1).T:
        _, state, weights = model.step(token, state, memory)
        places.append(weights if state[1] is None else ops.exp(state[1][0]))
    return np.stack([ops.convert_to_numpy(x) for x in places], axis=1)


def draw_alignment(letters, phones, weights, path):
    """Draws which of the letters of a word each phone was read from, `(T, S)` padded, as a PNG.

    Returns the signs that no font has, which the picture shows as boxes.
    """
    # A mark on its own is drawn on a circle.
    marks = [unicodedata.category(x).startswith("M") for x in letters]
    signs = ["◌" * mark + x for x, mark in zip(letters, marks, strict=True)]
    source, target = ["⊢", *signs, "⊣"], [*phones, "⏎"][: len(weights)]
    weights = weights[: len(target), : len(source)]
    title = f"{unicodedata.normalize('NFC', ''.join(letters))}  →  {' '.join(phones)}"
    figure = plot_attention(weights, source, target, title=title)
    save_figure(path, figure)
    axes = figure.axes[0]
    labels = [x.get_text() for x in (*axes.get_xticklabels(), *axes.get_yticklabels())]
    return {x[-1] for x, label in zip(source + target, labels, strict=True) if "□" in label}


def missing_font(signs):
    """One sentence that says which font to install."""
    cause = f"The pictures have boxes, because no font has {' '.join(sorted(signs))}"
    cure = f"install one, such as Noto Sans, delete {matplotlib.get_cachedir()}"
    return f"{cause}: {cure}, and run the same command again."
