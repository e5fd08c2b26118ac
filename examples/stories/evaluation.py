"""Compares test errors with the paper in tables; writes and checks all files of a model."""

import keras
import numpy as np
import tensorflow as tf

from examples.common.files import save_figure
from examples.common.saving import check_saved_model, write_model, write_saved_model
from examples.stories.data import answer_key, split
from keras_attention.plotting import Hops, plot_hops

# Names of the tasks 1 to 20.
NAMES = """
    single supporting fact, two supporting facts, three supporting facts, two arg relations,
    three arg relations, yes no questions, counting, lists sets, simple negation, indefinite
    knowledge, basic coreference, conjunction, compound coreference, time reasoning, basic
    deduction, basic induction, positional reasoning, size reasoning, path finding, agents
    motivations
"""
NAMES = " ".join(NAMES.split()).split(", ")
# Errors in percent on tasks 1 to 20, from tables 1 and 2 of the paper: position encoding, linear
# start, 1,000 questions for each task. Keys: hops, one model for all tasks, random noise.
PUBLISHED = {
    (3, False, True): """0 8.3 40.3 2.8 13.1 7.6 17.3 10 13.2 15.1
        .9 .2 .4 1.7 0 1.3 51 11.1 82.8 0""",
    (3, False, False): """.1 12.8 58.8 11.6 15.7 8.7 20.3 12.7 17 18.6
        0 .1 .3 2 0 1.6 49 10.1 85.6 0""",
    (1, True, False): """.8 62 76.9 22.8 11 7.2 15.9 13.2 5.1 10.6
        8.4 .4 6.3 36.9 46.4 47.4 44.4 9.6 90.7 0""",
    (2, True, False): """0 15.6 31.6 2.2 13.4 2.3 25.4 11.7 2 5
        1.2 0 .2 8.1 .5 51.3 41.2 10.3 89.9 .1""",
    (3, True, True): """0 11.4 21.9 13.4 14.4 2.8 18.3 9.3 1.9 6.5
        .3 .1 .2 6.9 0 2.7 40.4 9.4 88 0""",
}


def best_of(entries):
    """The model with the lowest training error, as in the paper, or None if all diverged.

    Equal ones are compared by their loss.
    """
    finite = [entry for entry in entries if entry["train_loss"] is not None]
    return min(finite, key=lambda e: (e["train_error"], e["train_loss"]), default=None)


def published(names, hops, arguments):
    """The errors of the paper by task. Empty if the paper has no such model or tasks."""
    key = hops, arguments.task == ["joint"], arguments.noise > 0
    same = arguments.linear_epochs > 0 and arguments.encoding != "bag" and arguments.size == "1k"
    if not arguments.data or not same or key not in PUBLISHED:
        return {}
    errors = zip(NAMES, map(float, PUBLISHED[key].split()), strict=True)
    paper = {
        str(n): error for n, (name, error) in enumerate(errors, 1) if names.get(str(n)) == name
    }
    return paper if set(names) <= set(paper) else {}


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
    paper, repeats = published(names, hops, arguments), arguments.repeats
    kind = "one model for all tasks" if arguments.task == ["joint"] else "a model for each task"
    best = f", best of {repeats} by training error" if repeats > 1 else ""
    print(f"\ntest errors in %, {kind}, {hops} hops{best}")
    width = max(map(len, [*names.values(), "failed, over 5%"]))
    spread = "   all repeats" if repeats > 1 else ""
    print(f"{'':{width + 4}}   ours" + ("  paper" if paper else "") + spread)
    for n, (error, errors) in rows.items():
        line = f"{n:>3} {names[n]:{width}} {error:6.1f}" + (f" {paper[n]:6.1f}" if paper else "")
        print(
            line + (f"   {np.mean(errors):5.1f} ± {np.std(errors, ddof=1):.1f}" if spread else "")
        )
    both = [np.array([error for error, _ in rows.values()])]
    both += [np.array([paper[n] for n in rows])] if paper else []
    print(f"    {'mean':{width}}" + "".join(f" {x.mean():6.1f}" for x in both))
    print(f"    {'failed, over 5%':{width}}" + "".join(f" {(x > 5).sum():6d}" for x in both))
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
        print("The SavedModel needs the TensorFlow backend: run the same command with it.")
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
        words, begins, ends = (x.to_tensor() for x in split(story))
        asked = split(question)[0].merge_dims(1, 2).to_tensor()
        # The model needs at least one word: an empty story or question gets one of padding.
        more = tf.maximum(1 - tf.shape(words)[1:], 0)
        words = tf.pad(words, [[0, 0], [0, more[0]], [0, more[1]]])
        begins, ends = (tf.pad(x, [[0, 0], [0, more[0]]]) for x in (begins, ends))
        asked = tf.pad(asked, [[0, 0], [0, tf.maximum(1 - tf.shape(asked)[1], 0)]])
        ids = encoder.words(words), encoder.words(asked)
        found = reader(ids, training=False)
        unknown = [tf.cast(x == encoder.words.size - 1, "int32") for x in ids]
        sentences = tf.reduce_sum(tf.cast(ends > begins, "int32"), axis=1)
        # As in `answers`.
        known = found["probabilities"][:, 1:-1]
        return {
            "answer": tf.gather(tf.constant(encoder.listed), tf.argmax(known, axis=1)),
            "probability": tf.reduce_max(known, axis=1),
            "hop_weights": found["hop_weights"],
            "start_byte": begins,
            "end_byte": ends,
            "unknown_words": tf.reduce_sum(unknown[0], [1, 2]) + tf.reduce_sum(unknown[1], 1),
            "forgotten_sentences": tf.maximum(sentences - memory, 0),
        }

    return serve
