"""Writes the `.keras` file, the SavedModel, the page and the picture, and checks each of them."""

import keras
import numpy as np
import tensorflow as tf

from examples.common.files import save_figure, write_text
from examples.common.saving import ask_saved_model, write_model, write_saved_model
from examples.common.sentences import split_sentences
from keras_attention.plotting import Document, document_page, plot_document


def save(reader, vocabulary, task, data, shown, note, output):
    """Writes and checks all files of a trained model.

    The documents `shown` and the text `note` are on the page.
    """
    # Without MULTIPLE, so that the ids are as wide as in the SavedModel.
    ids = data.padded(shown)
    write_model(reader, output / "model.keras", ids)
    if keras.backend.backend() != "tensorflow":
        print(
            "The SavedModel is written with the TensorFlow backend: run the same command with it, "
            "and with another --output."
        )
        return
    serve = make_serve(reader, vocabulary, task.classes, task.longest)
    path = output / "saved_model"
    write_saved_model(path, serve, ["texts"], [reader, vocabulary])
    print(f"{path}: takes texts, returns classes and the weights of words and sentences")
    reply = ask_saved_model(path, {"texts": [task.texts[n].text for n in shown]})
    found = reader.predict_on_batch(ids)
    gap = max(np.abs(np.array(reply[name]) - found[name]).max() for name in found)
    if not gap <= 1e-5:
        raise SystemExit(f"the SavedModel differs in a new process by {gap:.2g}")
    print(
        f"The reloaded SavedModel agrees: probabilities and weights of {len(shown)} documents "
        f"within {gap:.1g}; the process had no {' and no '.join(reply['absent'])}."
    )
    readings = [reading(task.texts[n], reply, row) for row, n in enumerate(shown)]
    title = f"Which words and sentences were read: {len(readings)} of the test documents"
    write_text(output / "documents.html", document_page(readings, title, note))
    save_figure(output / "document.png", plot_document(readings[0]))
    print(f"{output / 'documents.html'}: documents with words and sentences coloured by weight")


def make_serve(reader, vocabulary, classes, longest):
    """Makes the function of the SavedModel, from raw text to classes, probabilities and weights."""

    def serve(texts):
        size = tf.shape(texts)[0]
        # The model needs at least one word: an empty batch or text gets one of padding.
        words, begins, ends = (x.to_tensor() for x in split_sentences(texts, longest))
        more = tf.maximum(1 - tf.shape(words), 0)
        words, begins, ends = (
            tf.pad(x, [[0, more[0]], [0, more[1]], [0, more[2]]]) for x in (words, begins, ends)
        )
        found = reader(vocabulary(words), training=False)
        result = {
            "label": tf.gather(tf.constant(classes), tf.argmax(found["probabilities"], axis=1)),
            "words": words,
            "start_byte": begins,
            "end_byte": ends,
            **found,
        }
        # Repeated for every text, because servers split an answer into rows.
        names = tf.tile(tf.constant(classes)[None], [size, 1])
        return {"classes": names, **{name: value[:size] for name, value in result.items()}}

    return serve


def choose(right, outside, labels, count=4):
    """Chooses tested documents: some of each class that are right, and some that are wrong."""
    groups = [outside[right & (labels[outside] == label)] for label in np.unique(labels)]
    return np.concatenate([group[:count] for group in (*groups, outside[~right])])


def reading(document, reply, row):
    """One document of a reply of the SavedModel, with the text between its words."""
    text, last = document.text.encode(), 0
    words, gaps, weights, shares = [], [], [], []
    names = ("words", "start_byte", "end_byte", "word_weights", "sentence_weights")
    for *sentence, share in zip(*(reply[name][row] for name in names), strict=True):
        found = [one for one in zip(*sentence, strict=True) if one[0]]
        if not found:
            continue
        shares.append(share)
        words.append([word for word, *_ in found])
        weights.append([weight for *_, weight in found])
        gaps.append([])
        for _, begin, end, _ in found:
            gaps[-1].append(text[last:begin].decode())
            last = end
    return Document(
        words,
        weights,
        shares,
        gaps=gaps,
        name=document.name,
        predicted=reply["label"][row],
        probability=max(reply["probabilities"][row]),
        expected=document.label,
    )
