"""Prints test errors in tables; writes and checks all files of a model."""

import keras
import numpy as np
import tensorflow as tf

from examples.common.files import save_figure
from examples.common.saving import check_saved_model, write_model, write_saved_model
from examples.common.text import to_dense
from examples.stories.data import answer_key, split
from keras_attention.plotting import Hops, plot_hops


def best_of(entries):
    """The model with the lowest training error, as in the paper, or None if all diverged.

    Equal ones are compared by their loss.
    """
    finite = [entry for entry in entries if entry["train_loss"] is not None]
    return min(finite, key=lambda e: (e["train_error"], e["train_loss"]), default=None)


def report(tasks, entries, hops, arguments):
    """Prints a table of the test errors. Returns the best results of each `Task`.

    Args:
        tasks: a list of `Task`.
        entries: for each of them the results of its models.
        hops: their number of hops.
        arguments: the parsed command line.
    """
    names, rows, chosen = {}, {}, [best_of(found) for found in entries]
    for task, found, best in zip(tasks, entries, chosen, strict=True):
        if best is None:
            raise SystemExit(
                f"task {task.name}: all {len(found)} models diverged. Choose a lower "
                "--learning-rate and another --output."
            )
        names |= task.names
        for n in task.names:
            rows[n] = best["test_errors"][n], [entry["test_errors"][n] for entry in found]
    repeats = arguments.repeats
    kind = "one model for all tasks" if arguments.task == ["joint"] else "a model for each task"
    best = f", best of {repeats} by training error" if repeats > 1 else ""
    print(f"\ntest errors in %, {kind}, {hops} hops{best}")
    width = max(map(len, [*names.values(), "failed, over 5%"]))
    print(f"{'':{width + 4}}   ours" + "   all repeats" * (repeats > 1))
    for n, (error, errors) in rows.items():
        spread = f"   {np.mean(errors):5.1f} ± {np.std(errors, ddof=1):.1f}" if repeats > 1 else ""
        print(f"{n:>3} {names[n]:{width}} {error:6.1f}{spread}")
    errors = np.array([error for error, _ in rows.values()])
    print(f"    {'mean':{width}} {errors.mean():6.1f}")
    print(f"    {'failed, over 5%':{width}} {(errors > 5).sum():6d}")
    return chosen


def save(task, reader, folder):
    """Writes and checks all files of one trained model."""
    # Four test questions to show, of different tasks if there are several.
    numbers = list(task.test)
    picked = [(numbers[n * len(numbers) // 4], n) for n in range(4)]
    picked = [(number, n % len(task.asked[number])) for number, n in picked]
    asked = [task.asked[number][n] for number, n in picked]
    inputs = [task.test[number].select([n]).inputs(task.sizes[2]) for number, n in picked]
    print()
    write_model(reader, folder / "model.keras", list(inputs[0]))
    if keras.backend.backend() != "tensorflow":
        print("SavedModel and picture need the TensorFlow backend, and another --output.")
        return
    path, serve = folder / "saved_model", make_serve(reader, task.encoder, task.sizes[2])
    write_saved_model(path, serve, ["story", "question"], [reader, task.encoder.words])
    stories = ["\n".join(q.story) for q in asked]
    print(f"{path}: takes stories and questions, returns answers and weights")
    own = [reader.predict_on_batch(list(x))["probabilities"][0, 1:-1].max() for x in inputs]
    texts = {"story": stories, "question": [q.text for q in asked]}
    reply = check_saved_model(path, texts, {"probability": np.array(own)})
    samples = []
    for row, question in enumerate(asked):
        spans = zip(reply["start_byte"][row], reply["end_byte"][row], strict=True)
        lines = [stories[row].encode()[begin:end].decode() for begin, end in spans if end > begin]
        weights = np.array(reply["hop_weights"][row])[:, : len(lines)]
        facts = question.facts if len(lines) == len(question.story) else ()
        answers = reply["answer"][row], answer_key(question.answer)
        samples.append(Hops(lines, weights, question.text, *answers, facts))
    save_figure(folder / "hops.png", plot_hops(*samples))
    print(f"{folder / 'hops.png'}: which sentences each hop read for these questions")


def make_serve(reader, encoder, memory):
    """Makes the function of the SavedModel, from strings to answers and the weights of all hops."""

    def serve(story, question):
        words, begins, ends = map(to_dense, split(story))
        asked = to_dense(split(question)[0].merge_dims(1, 2))
        ids = encoder.words(words), encoder.words(asked)
        found = reader(ids, training=False)
        unknown = [tf.cast(x == encoder.words.size - 1, "int32") for x in ids]
        sentences = tf.reduce_sum(tf.cast(ends > begins, "int32"), axis=1)
        # As in `answers`.
        known = found["probabilities"][:, 1:-1]
        result = {
            "answer": tf.gather(tf.constant(encoder.listed), tf.argmax(known, axis=1)),
            "probability": tf.reduce_max(known, axis=1),
            "hop_weights": found["hop_weights"],
            "start_byte": begins,
            "end_byte": ends,
            "unknown_words": tf.reduce_sum(unknown[0], [1, 2]) + tf.reduce_sum(unknown[1], 1),
            "forgotten_sentences": tf.maximum(sentences - memory, 0),
        }
        size = tf.shape(story)[0]
        return {name: value[:size] for name, value in result.items()}

    return serve
