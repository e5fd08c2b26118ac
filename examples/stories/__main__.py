"""Questions about stories, answered in hops (Sukhbaatar, Szlam, Weston and Fergus, 2015).

    python examples/babi.py

learns three kinds of questions from generated stories, which one, two or three sentences decide, a
model each, with three hops and beside it with one, in a minute and a half on two cores. It prints
the errors, and writes for each kind a picture of which sentences every hop read, a `.keras` file
and a SavedModel that takes a story and a question as strings, which a process without keras then
runs.

    python examples/babi.py --data DIR --task all --repeats 10

does it for the 20 tasks of bAbI: DIR has the official text files, or --data download fetches them.
The table has the errors of the paper beside ours. Of several repeats the one with the lowest
training error counts, as in the paper. A run that was stopped, by Ctrl-C or a kill, goes on when it
is started again: finished models are kept. Measured figures are in docs/results.md.

Words that were not seen in training share one vector, of which no story taught anything: it is near
zero, as it began. Such words are counted, and so are sentences that fall out of the memory.
"""

import argparse
import io
import multiprocessing
import os
import pathlib
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import memn2n
import memories
import numpy as np
import stories
import tasks
import tensorflow as tf
import workers
from arguments import check_at_least_one, check_ranges, check_seed, fill
from checkpoint import (
    Interrupt,
    Results,
    fingerprint,
    make_folder,
    read_unchanged,
    save_figure,
    write_bytes,
)
from extras import check_extras
from serving import ask_saved_model, write_model, write_saved_model

from keras_attention.plotting import Hops, plot_hops

HAS_GPU = bool(tf.config.list_physical_devices("GPU"))
if multiprocessing.parent_process() is None or keras.backend.backend() != "tensorflow":
    # Its memory is for the processes that train, and for JAX.
    tf.config.set_visible_devices([], "GPU")

# Error in percent on tasks 1 to 20, by hops, whether of one model for all, and with random noise;
# position encoding, linear start, 1,000 questions a task: tables 1 and 2 of the paper.
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
# A task is failed above this error.
FAILED = 5.0


# --- training ------------------------------------------------------------------------------------


# In a process that trains: the last trainer, whose compiled program may do again.
_kept = {}


def train(job):
    """One model, in a process of its own: what is known of it, and its weights."""
    task, hop_count, repeat, settings, data = job
    key = hop_count, data
    if key not in _kept:
        _kept.clear()
        keras.backend.clear_session()
        _kept[key] = memn2n.Trainer(task, hop_count, settings)
    entry, weights = _kept[key].run(repeat)
    return {**entry, "data": data}, weights


class Models:
    """The finished models of a folder: what is known of each, and its weights."""

    def __init__(self, folder, settings):
        self.folder = make_folder(folder / "weights")
        self.results = Results(folder / "results.json", settings)
        for entry in self.results.state["results"]:
            self.weights(entry)  # refused now rather than after all work

    def entries(self, task, hop_count, data, repeats):
        names = {"task": task, "hops": hop_count, "data": data}
        found = (self.results.find(**names, repeat=repeat) for repeat in repeats)
        return [entry for entry in found if entry]

    def add(self, entry, weights):
        # First the weights, then that there are some.
        file = io.BytesIO()
        np.savez(file, *weights)
        write_bytes(self.path(entry), file.getvalue())
        self.results.add({**entry, "digest": fingerprint(file.getvalue())})

    def weights(self, entry):
        data = read_unchanged(self.path(entry), entry["digest"], self.folder.parent)
        with np.load(io.BytesIO(data)) as arrays:
            return [arrays[name] for name in arrays.files]

    def path(self, entry):
        return self.folder / "{task}-hops-{hops}-{repeat}-{data:.8}.npz".format(**entry)


def best_of(entries):
    """The one with the lowest training error, of equal ones that with the lowest loss."""
    return min(entries, key=lambda e: (e["diverged"], e["train_error"], e["train_loss"] or 0.0))


def train_all(corpus, models, settings, arguments):
    repeats = range(1, arguments.repeats + 1)
    jobs = [
        (task, hop_count, repeat, settings, corpus.fingerprints[name])
        for hop_count in arguments.hops
        for name, task in corpus.tasks.items()
        for repeat in repeats
        if not models.entries(name, hop_count, corpus.fingerprints[name], [repeat])
    ]
    total = len(corpus.tasks) * len(arguments.hops) * arguments.repeats
    if len(jobs) < total:
        print(f"{total - len(jobs)} of {total} models are finished already")
    if not jobs:
        return
    processes = min(arguments.jobs, len(jobs))
    start = time.perf_counter()
    with Interrupt() as interrupt:
        print(f"models to train: {len(jobs)}; processes: {processes}", flush=True)
        for done, (entry, weights) in enumerate(workers.run(train, jobs, processes, interrupt), 1):
            models.add(entry, weights)
            left = (time.perf_counter() - start) / done * (len(jobs) - done)
            print(
                f"[{total - len(jobs) + done}/{total}] task {entry['task']}, "
                f"{entry['hops']} hops, repeat {entry['repeat']}: training error "
                f"{entry['train_error']:.1f}%, test error "
                f"{np.mean(list(entry['test_errors'].values())):.1f}%, "
                f"{entry['seconds']:.0f} s; {left / 60:.0f} min left",
                flush=True,
            )
        if interrupt.asked:
            raise SystemExit("stopped; finished models are kept, and the same command goes on.")
    print(f"trained in {(time.perf_counter() - start) / 60:.1f} minutes")


# --- results -------------------------------------------------------------------------------------


def report(corpus, models, arguments, settings):
    """Prints a table for each number of hops; returns the best entries, by task and hops."""
    chosen = {}
    for hop_count in arguments.hops:
        rows, entries = {}, []
        for group, numbers in corpus.groups.items():
            repeats = range(1, arguments.repeats + 1)
            found = models.entries(group, hop_count, corpus.fingerprints[group], repeats)
            if all(entry["diverged"] for entry in found):
                raise SystemExit(
                    f"task {group}: all {len(found)} models diverged. Choose a lower "
                    "--learning-rate and another --output."
                )
            best = chosen[group, hop_count] = best_of(found)
            entries += found
            for number in numbers:
                errors = [entry["test_errors"][number] for entry in found]
                rows[number] = best["test_errors"][number], errors
        paper = published(hop_count, corpus, settings, arguments)
        print_table(corpus, hop_count, rows, paper, arguments)
        steps, compiles = ([e[name] for e in entries] for name in ("step_ms", "compile_seconds"))
        print(
            f"a step takes {np.min(steps):.2f} to {np.max(steps):.2f} ms when compiled; compiling "
            f"takes {np.max(compiles):.1f} s at most"
        )
    return chosen


def published(hop_count, corpus, settings, arguments):
    """The paper's errors by task, of the official ones and where it has such a model."""
    same = settings["linear_start"] and settings["encoding"] != "bag"
    same = same and settings["tying"] == "adjacent" and arguments.size == "1k" and arguments.data
    key = hop_count, "joint" in corpus.groups, settings["noise"] > 0
    if not same or key not in PUBLISHED:
        return {}
    names = [name.replace("-", " ") for name in stories.NAMES]
    errors = zip(names, PUBLISHED[key].split(), strict=True)
    found = {str(n): (name, float(error)) for n, (name, error) in enumerate(errors, 1)}
    official = {n: error for n, (name, error) in found.items() if corpus.names.get(n) == name}
    return official if set(corpus.names) <= set(official) else {}


def print_table(corpus, hop_count, rows, paper, arguments):
    kind = "one model for all tasks" if "joint" in corpus.groups else "a model for each task"
    best = f", best of {arguments.repeats} by training error" if arguments.repeats > 1 else ""
    print(f"\ntest errors in %, {kind}, {hop_count} hops{best}")
    spread = "   all repeats" if arguments.repeats > 1 else ""
    width = max(map(len, [*corpus.names.values(), "failed, over 5%"]))
    print(f"{'':{width + 4}}   ours" + ("  paper" if paper else "") + spread)
    for number, (error, errors) in rows.items():
        line = f"{number:>3} {corpus.names[number]:{width}} {error:6.1f}"
        line += f" {paper[number]:6.1f}" if paper else ""
        if spread:
            line += f"   {np.mean(errors):5.1f} ± {np.std(errors, ddof=1):.1f}"
        print(line)
    ours = [error for error, _ in rows.values()]
    theirs = [paper[number] for number in rows] if paper else []
    for name, measure, form in (("mean", np.mean, "6.1f"), ("failed, over 5%", _failed, "6d")):
        line = f"{'':3} {name:{width}} {measure(ours):{form}}"
        print(line + (f" {measure(theirs):{form}}" if theirs else ""))


def _failed(errors):
    return int(np.sum(np.array(errors) > FAILED))


# --- saving --------------------------------------------------------------------------------------


def make_serve(reader, encoder, memory):
    """Strings to answers and the weights of all hops, for a SavedModel."""

    def serve(story, question):
        words, begins, ends = (x.to_tensor() for x in memories.split(story))
        asked = memories.split(question)[0].merge_dims(1, 2).to_tensor()
        # Of an empty story or question too: there is one word of padding.
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
        # As in `memn2n.answers`.
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
    """Test questions to be drawn, (number of the task, number of the question).

    Of one task half of them answered rightly, if there are so many; of several tasks some, each
    with one question, answered rightly if there is one.
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
    """The picture, the `.keras` file and the SavedModel of one trained model."""
    task, encoder = corpus.tasks[group], corpus.encoders[group]
    model, reader = memn2n.build_model(task, entry["hops"], settings)
    model.set_weights(models.weights(entry))
    memory = task.memory
    guesses = {}
    for number, data in task.test.items():
        guesses[number] = memn2n.answers(memn2n.predict(model, data, memory))
    picked = choose(corpus, group, guesses, 4)
    asked = [corpus.questions[number][n] for number, n in picked]
    inputs = [task.test[number].select([n]).inputs(memory) for number, n in picked]
    print()
    write_model(reader, folder / "model.keras", list(inputs[0]))
    if keras.backend.backend() != "tensorflow":
        print("The SavedModel is written with the TensorFlow backend: start the command with it.")
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
        answer = memories.answer_key(question.answer)
        samples.append(Hops(lines, weights, question.text, reply["answer"][row], answer, facts))
    gap = np.max(gaps)  # NaN, unlike by max, where one of them is
    if not gap <= 1e-5:
        raise SystemExit(f"the SavedModel differs in a new process by {gap:.2g}")
    print(
        f"{path}: takes story and question. Reloaded in a process without "
        f"{' and '.join(reply['absent'])} it agrees: probabilities and weights of "
        f"{len(samples)} questions within {gap:.1g}."
    )
    save_figure(folder / "hops.png", plot_hops(*samples))
    print(f"{folder / 'hops.png'}: which sentences each hop read for these questions")


# --- command line --------------------------------------------------------------------------------

# For a model of each task, and for one of all.
DEFAULTS = {"units": (20, 50), "epochs": (100, 60), "linear_epochs": (20, 30)}


def parse(argv):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )

    def add(name, text):
        flag, (each, joint) = f"--{name.replace('_', '-')}", DEFAULTS[name]
        parser.add_argument(flag, type=int, help=f"{text} (default: {each}; joint: {joint})")

    parser.add_argument("--data", metavar="DIR", help="the text files of bAbI, or download")
    parser.add_argument(
        "--task", nargs="+", default=["all"], metavar="N", help="numbers, all, or joint: one model"
    )
    parser.add_argument("--size", choices=stories.FOLDERS, help="training questions (default: 1k)")
    parser.add_argument("--questions", type=int, help="of each generated task (default: 1000)")
    parser.add_argument(
        "--hops", type=int, nargs="+", help="one or more (default: 3; generated stories: 3 1)"
    )
    parser.add_argument("--tying", choices=("adjacent", "layerwise"), default="adjacent")
    parser.add_argument(
        "--encoding",
        choices=memn2n.ENCODINGS,
        default="position",
        help="of the words of a sentence: by their place in the longest one, in their own, or none",
    )
    parser.add_argument(
        "--null-memories",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="read places of the memory that are empty, too, as zeros",
    )
    parser.add_argument("--linear-start", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument(
        "--noise", type=float, default=0.1, help="empty sentences among the others, a fraction"
    )
    parser.add_argument("--memory", type=int, default=50, help="sentences that are remembered")
    parser.add_argument("--repeats", type=int, default=1, help="models, of which the best counts")
    add("units", "width of a memory")
    add("epochs", "after the linear ones")
    add("linear_epochs", "without the softmax, at most")
    parser.add_argument("--learning-rate", type=float, default=0.01, help="halved three times")
    parser.add_argument("--batch-size", type=int, default=32, help="questions")
    parser.add_argument("--seed", type=int, default=1, help="of all that is drawn")
    # A GPU is for one process.
    alone = HAS_GPU or keras.backend.backend() != "tensorflow"
    jobs = 1 if alone else min(workers.cores(), 8)
    parser.add_argument(
        "--jobs", type=int, default=jobs, help="processes that train (default: %(default)s)"
    )
    parser.add_argument("--output", default="output/babi", help="where results are written")
    parser.add_argument("--smoke", action="store_true", help="one generated task, within a minute")
    arguments = parser.parse_args(argv)
    if arguments.data == "":
        parser.error("--data is empty: give a folder or download, or leave it out to generate some")
    if arguments.data and (arguments.smoke or arguments.questions):
        parser.error("--smoke and --questions are for the generated stories, without --data")
    if arguments.size and not arguments.data:
        parser.error("--size is for the files of --data; for generated stories give --questions")
    fill(arguments, {"size": "1k"})
    named = arguments.task in (["all"], ["joint"])
    if not named and not all(n.isascii() and n.isdigit() for n in arguments.task):
        parser.error(f"--task takes numbers, or all, or joint; received {' '.join(arguments.task)}")
    check_seed(parser, arguments)
    joint = arguments.task == ["joint"]
    fill(arguments, {name: values[joint] for name, values in DEFAULTS.items()})
    if arguments.smoke:
        fill(arguments, {"hops": [2], "questions": 400})
        arguments.task = ["1"] if arguments.task == ["all"] else arguments.task
    if not arguments.data:
        fill(arguments, {"hops": [3, 1], "questions": 1000})
    fill(arguments, {"hops": [3]})
    names = ["memory", "repeats", "units", "epochs", "linear_epochs", "batch_size", "jobs"]
    check_at_least_one(parser, arguments, names)
    if arguments.questions is not None and arguments.questions < tasks.FEWEST:
        parser.error(f"--questions must be at least {tasks.FEWEST}; received {arguments.questions}")
    if min(arguments.hops) < 1:
        parser.error(f"--hops must be at least 1; received {min(arguments.hops)}")
    arguments.hops = list(dict.fromkeys(arguments.hops))
    check_ranges(parser, arguments, {"noise": 1, "learning_rate": float("inf")})
    return arguments


def main(argv=None):
    arguments = parse(argv)
    check_extras("tensorflow_text", "matplotlib")
    joint = arguments.task == ["joint"]
    found = tasks.load_data(arguments)
    names = (
        *("tying", "encoding", "null_memories", "linear_start", "noise", "memory", "units"),
        *("epochs", "linear_epochs", "learning_rate", "batch_size", "seed"),
    )
    settings = {name: getattr(arguments, name) for name in names}
    settings["backend"] = keras.backend.backend()
    corpus = tasks.Corpus(found, joint, arguments.memory, arguments.noise)
    output = make_folder(pathlib.Path(arguments.output))
    models = Models(output, settings)
    folders = {
        group: make_folder(output / (group if joint else f"task-{group}"))
        for group in corpus.groups
    }
    train_all(corpus, models, settings, arguments)
    chosen = report(corpus, models, arguments, settings)
    for group in corpus.groups:
        entry = chosen[group, arguments.hops[0]]
        save(corpus, models, group, entry, settings, folders[group])
    if arguments.smoke:
        error = chosen[next(iter(corpus.groups)), arguments.hops[0]]["train_error"]
        if not error < 10:
            raise SystemExit(f"smoke run: expected a training error below 10%, found {error:.1f}%")


if __name__ == "__main__":
    main()
