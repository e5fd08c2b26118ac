"""Writes the `.keras` file, the SavedModel and the picture of a model, and checks each of them."""

import keras
import numpy as np
import tensorflow as tf

from examples.common.files import save_figure
from examples.common.saving import ask_saved_model, write_model, write_saved_model
from examples.stories import encoding
from examples.stories.model import answers, build_model, predict
from keras_attention.plotting import Hops, plot_hops


def make_serve(reader, encoder, memory):
    """Makes the function of the SavedModel, from strings to answers and the weights of all hops."""

    def serve(story, question):
        words, begins, ends = (x.to_tensor() for x in encoding.split(story))
        asked = encoding.split(question)[0].merge_dims(1, 2).to_tensor()
        # The model needs at least one word: an empty story or question gets one of padding.
        more = tf.maximum(1 - tf.shape(words)[1:], 0)
        words = tf.pad(words, [[0, 0], [0, more[0]], [0, more[1]]])
        begins, ends = (tf.pad(x, [[0, 0], [0, more[0]]]) for x in (begins, ends))
        asked = tf.pad(asked, [[0, 0], [0, tf.maximum(1 - tf.shape(asked)[1], 0)]])
        story_ids, question_ids = encoder.words(words), encoder.words(asked)
        found = reader([story_ids, question_ids], training=False)
        unknown = encoder.words.size - 1
        counts = [
            tf.reduce_sum(tf.cast(ids == unknown, "int32"), axis=axes)
            for ids, axes in ((story_ids, [1, 2]), (question_ids, [1]))
        ]
        sentences = tf.reduce_sum(tf.cast(ends > begins, "int32"), axis=1)
        # As in `model.answers`.
        known = found["probabilities"][:, 1:-1]
        return {
            "answer": tf.gather(tf.constant(encoder.listed), tf.argmax(known, axis=1)),
            "probability": tf.reduce_max(known, axis=1),
            "hop_weights": found["hop_weights"],
            "start_byte": begins,
            "end_byte": ends,
            "unknown_words": tf.add_n(counts),
            "forgotten_sentences": tf.maximum(sentences - memory, 0),
        }

    return serve


def choose(corpus, group, guesses, count):
    """Chooses test questions for the picture: pairs of a task and the number of a question.

    With one task, half of the questions are answered rightly, if there are enough. With several
    tasks, some tasks show one question each, answered rightly if there is one.
    """
    numbers = corpus.groups[group]
    if len(numbers) > 1:
        numbers = [numbers[n] for n in np.linspace(0, len(numbers) - 1, count).astype(int)]
    each, chosen = max(1, count // len(numbers)), []
    for number in dict.fromkeys(numbers):
        right = guesses[number] == corpus.tasks[group].test[number].answers
        rights, wrongs = (np.flatnonzero(x).tolist() for x in (right, ~right))
        few = [*rights[: max(each - each // 2, each - len(wrongs))], *wrongs][:each]
        chosen += [(number, n) for n in few]
    return chosen


def save(corpus, models, group, entry, settings, folder):
    """Writes and checks all files of one trained model."""
    task, encoder = corpus.tasks[group], corpus.encoders[group]
    model, reader = build_model(task, entry["hops"], settings)
    model.set_weights(models.weights(entry))
    memory = task.memory
    guesses = {}
    for number, data in task.test.items():
        guesses[number] = answers(predict(model, data, memory))
    picked = choose(corpus, group, guesses, 4)
    asked = [corpus.questions[number][n] for number, n in picked]
    inputs = [task.test[number].select([n]).inputs(memory) for number, n in picked]
    print()
    write_model(reader, folder / "model.keras", list(inputs[0]))
    if keras.backend.backend() != "tensorflow":
        print(
            "The SavedModel is written with the TensorFlow backend: run the same command with it."
        )
        return
    path = folder / "saved_model"
    serve = make_serve(reader, encoder, memory)
    write_saved_model(path, serve, ["story", "question"], [reader, encoder.words])
    strings = {"story": ["\n".join(q.story) for q in asked], "question": [q.text for q in asked]}
    reply = ask_saved_model(path, strings)
    samples, gaps = [], []
    for row, (question, given) in enumerate(zip(asked, inputs, strict=True)):
        found = reader.predict_on_batch(list(given))
        text = strings["story"][row].encode()
        spans = list(zip(reply["start_byte"][row], reply["end_byte"][row], strict=True))
        spans = [(begin, end) for begin, end in spans if end > begin]
        weights = np.array(reply["hop_weights"][row])[:, : len(spans)]
        shared = min(memory, len(spans))
        own = found["hop_weights"][0][:, ::-1][:, :shared]
        gaps.append(np.abs(weights[:, ::-1][:, :shared] - own).max(initial=0.0))
        gaps.append(abs(reply["probability"][row] - found["probabilities"][0, 1:-1].max()))
        lines = [text[begin:end].decode() for begin, end in spans]
        facts = question.facts if len(lines) == len(question.story) else ()
        answer = encoding.answer_key(question.answer)
        samples.append(Hops(lines, weights, question.text, reply["answer"][row], answer, facts))
    gap = np.max(gaps)  # unlike max(), it returns NaN if there is one
    if not gap <= 1e-5:
        raise SystemExit(f"the SavedModel differs in a new process by {gap:.2g}")
    print(
        f"{path}: takes story and question. Reloaded in a process without "
        f"{' and '.join(reply['absent'])} it agrees: probabilities and weights of "
        f"{len(samples)} questions within {gap:.1g}."
    )
    save_figure(folder / "hops.png", plot_hops(*samples))
    print(f"{folder / 'hops.png'}: which sentences each hop read for these questions")
