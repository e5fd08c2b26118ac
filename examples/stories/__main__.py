"""Questions about stories, answered in hops (Sukhbaatar, Szlam, Weston and Fergus, 2015).

    python -m examples.stories

learns three kinds of questions from generated stories: one, two or three sentences decide them. For
each kind it trains a model with three hops, and one with a single hop for comparison. This takes
less than four minutes on two cores. It also writes a picture of the sentences that every hop read,
a `.keras` file, and a SavedModel that takes a story and a question as strings, which it then runs
in a process without keras.

    python -m examples.stories --data DIR --task all --repeats 10

does it for the 20 tasks of bAbI. DIR holds the official text files; `--data download` downloads
them. Of several repeats the one with the lowest training error counts, as in the paper. The same
command resumes an interrupted run: finished models are kept. docs/results/stories.md lists our
errors beside those from the paper.
"""

import argparse
import itertools
import pathlib

import keras
import numpy as np

from examples.common import arguments as options
from examples.common.files import Results, make_folder, own_folder
from examples.common.records import add_record, write_record
from examples.stories.data import FEWEST, Task, load_data
from examples.stories.evaluation import report, save
from examples.stories.model import ENCODINGS, JOBS, build_model, model_options, train_all
from examples.stories.reading import FOLDERS

# What the models depend on.
SETTINGS = ("encoding", "null_memories", "noise", "memory", "units", "epochs", "linear_epochs")
SETTINGS += ("learning_rate", "batch_size", "seed")


def parse(argv):
    parser = options.make_parser("stories", __doc__)
    add, count = parser.add_argument, options.count
    add("--data", metavar="DIR", help="folder of bAbI's files, or download")
    add("--task", nargs="+", default=["all"], metavar="N", help="numbers, all, or joint: one model")
    add("--size", choices=FOLDERS, help="training questions (default: 1k)")
    text = "for each generated task (default: 1000)"
    add("--questions", type=options.between(int, FEWEST), help=text)
    text = "one or more (default: 3; generated stories: 3 1)"
    add("--hops", type=count, nargs="+", help=text)
    text = "place of a word: in the longest sentence, in its own sentence, or none"
    add("--encoding", choices=ENCODINGS, default="position", help=text)
    text = "also read empty places of the memory, as zeros"
    add("--null-memories", action=argparse.BooleanOptionalAction, default=True, help=text)
    text = "empty sentences among the others, as a fraction"
    add("--noise", type=options.share, default=0.1, help=text)
    add("--repeats", type=count, default=1, help="models; the best one counts")
    add("--units", type=count, help="width of a memory (default: 20; joint: 50)")
    text = "after at most 20 without the softmax (default: 100; joint: 60, after 30)"
    add("--epochs", type=count, help=text)
    add("--learning-rate", type=options.number, default=0.01, help="halved three times")
    add("--batch-size", type=count, default=32, help="number of questions")
    add("--seed", type=options.seed, default=1, help="of all random numbers")
    add("--jobs", type=count, default=JOBS, help="processes that train (default: %(default)s)")
    add("--output", default="output/babi", help="folder for the results")
    add_record(parser)
    arguments = parser.parse_args(argv)
    if arguments.data == "":
        parser.error("--data is empty: give a folder or download, or leave it out to generate some")
    if arguments.data and arguments.questions:
        parser.error("--questions are for the generated stories: leave out --data")
    if arguments.size and not arguments.data:
        parser.error("--size is for the files of --data; for generated stories give --questions")
    named = arguments.task in (["all"], ["joint"])
    if not named and not all(n.isascii() and n.isdigit() for n in arguments.task):
        parser.error(f"--task takes numbers, or all, or joint; received {' '.join(arguments.task)}")
    joint = arguments.task == ["joint"]
    defaults = {"units": (20, 50)[joint], "epochs": (100, 60)[joint], "size": "1k"}
    # The most epochs without the softmax, and the sentences that are remembered.
    defaults |= {"linear_epochs": (20, 30)[joint], "memory": 50, "questions": 1000}
    defaults["hops"] = [3] if arguments.data else [3, 1]
    options.fill(arguments, defaults)
    arguments.hops = list(dict.fromkeys(arguments.hops))
    return arguments


def main(argv=None):
    arguments = parse(argv)
    options.check_extras("tensorflow_text", "matplotlib")
    found, joint = load_data(arguments), arguments.task == ["joint"]
    groups = {"joint": found} if joint else {str(n): {n: x} for n, x in found.items()}
    tasks = [Task(name, x, arguments.memory, arguments.noise) for name, x in groups.items()]
    settings = {name: getattr(arguments, name) for name in SETTINGS}
    settings["backend"] = keras.backend.backend()
    output = own_folder(pathlib.Path(arguments.output))
    weights = make_folder(output / "weights")
    results = Results(output / "results.json", settings)
    repeats = range(1, arguments.repeats + 1)
    models = {
        weights / f"{task.name}-hops-{hops}-{repeat}-{task.digest}.weights.h5": (task, hops, repeat)
        for task, hops, repeat in itertools.product(tasks, arguments.hops, repeats)
    }
    jobs = {
        path: (*key, settings, path)
        for path, key in models.items()
        if not results.find(model=path.name) or not path.exists()
    }
    print(f"models to train: {len(jobs)} of {len(models)}", flush=True)
    for path, result in train_all(jobs, arguments.jobs):
        results.add({"model": path.name, **result})
        task, hops, repeat = models[path]
        errors = result["train_error"], np.mean(list(result["test_errors"].values()))
        print(
            f"task {task.name}, {hops} hops, repeat {repeat}: training error {errors[0]:.1f}%, "
            f"test error {errors[1]:.1f}%, {result['seconds']:.0f} s",
            flush=True,
        )
    best = {}
    for hops in arguments.hops:
        entries = [
            [results.find(model=path.name) for path, key in models.items() if key[:2] == (x, hops)]
            for x in tasks
        ]
        best[hops] = report(tasks, entries, hops, arguments)
    figures = {}
    for hops, entries in best.items():
        errors = {n: x for entry in entries for n, x in entry["test_errors"].items()}
        figures[f"{hops} hops, errors in %"] = {"mean": np.mean([*errors.values()]), **errors}
    write_record(arguments.record, figures, seeds=[arguments.seed])
    for task, entry in zip(tasks, best[arguments.hops[0]], strict=True):
        model, reader = build_model(task.sizes, arguments.hops[0], **model_options(settings))
        model.load_weights(weights / entry["model"])
        save(task, reader, make_folder(output / (task.name if joint else f"task-{task.name}")))


if __name__ == "__main__":
    options.run(main)
