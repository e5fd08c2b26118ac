"""Writes the `.keras` file, the SavedModel and the pictures, and checks each of them."""

import numpy as np
import tensorflow as tf

from examples.common.files import save_figure
from examples.common.saving import ask_saved_model, write_model, write_saved_model
from examples.common.tokens import make_table
from examples.pronunciation.data import END, PAD, START, UNKNOWN
from keras_attention.plotting import plot_attention

PICTURES = 4


def save(pronouncer, words, output):
    """Writes and checks all files of a trained pronouncer; the words are for the checks."""
    words = sorted(words, key=len)[-PICTURES:]  # long words show an alignment best
    write_model(pronouncer.model, output / "model.keras", pronouncer.sample(words))
    serve = export(pronouncer, output / "saved_model")
    print(f"{output / 'saved_model'}: takes words, returns phones and alignments")
    answer = check_saved_model(output / "saved_model", serve, words)
    for n, word in enumerate(words):
        draw_alignment(word, {name: answer[name][n] for name in answer if name != "absent"}, output / f"alignment-{n + 1}.png")
    print(f"{output / 'alignment-1.png'} and others: the letters that each phone was read from")


def export(pronouncer, path):
    """Writes a SavedModel from words to phones, scores and alignments."""
    letters, phones = pronouncer.letters, pronouncer.phones
    table = make_table(letters.names[END + 1 :], default=UNKNOWN - END)
    names = tf.Module()  # so that the SavedModel finds the constant
    names.phones = tf.constant(phones.names)

    def serve(words):
        ids = tf.cast(table.lookup(tf.strings.unicode_split(words, "UTF-8")), "int32") + END
        ends = tf.ones_like(ids[:, :0].to_tensor(shape=(None, 1)))
        source = tf.concat([ends * START, ids, ends * END], axis=1).to_tensor(PAD)
        found = pronouncer.generate(source)
        tokens, scores = found.tokens[:, 0], found.scores[:, 0]
        lengths = found.lengths[:, 0]
        spoken = tf.RaggedTensor.from_tensor(tokens, lengths=lengths)
        spoken = tf.ragged.boolean_mask(spoken, spoken > END)
        result = {
            "phones": tf.strings.reduce_join(tf.gather(names.phones, spoken), 1, separator=" "),
            "score": scores,
            "length": lengths,
        }
        if found.weights is not None:
            result["alignments"] = found.weights[:, 0]
        return result

    write_saved_model(path, serve, ["words"], [*pronouncer.models, table, names])
    return serve


def check_saved_model(path, serve, words):
    """Compares `serve` with the SavedModel in a process without keras. Returns its answer."""
    answer = ask_saved_model(path, {"words": words})
    expected = serve(tf.constant(words))
    same = [phones.decode() for phones in expected["phones"].numpy()] == answer["phones"]
    gaps = [
        np.abs(np.array(answer[name]) - expected[name].numpy()).max()
        for name in ("score", "alignments")
        if name in expected
    ]
    if not same or not max(gaps) <= 1e-4:
        raise SystemExit(
            f"the SavedModel differs in a new process: phones equal: {same}, scores and "
            f"alignments by {max(gaps):.2g}"
        )
    print(
        f"The reloaded SavedModel agrees: phones of {len(words)} words equal, scores and "
        f"alignments within {max(gaps):.1g}; the process had no {' and no '.join(answer['absent'])}."
    )
    return answer


def draw_alignment(word, answer, path):
    """Draws the letters that each phone of a word was read from as a PNG."""
    source = ["⊢", *word, "⊣"]
    target = [*answer["phones"].split(), "⏎"][: answer["length"]]
    weights = np.array(answer["alignments"])[: len(target), : len(source)]
    title = f"{word}  →  {answer['phones']}"
    save_figure(path, plot_attention(weights, source, target, title=title))
