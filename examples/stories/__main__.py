"""Questions about stories, answered in hops (Sukhbaatar, Szlam, Weston and Fergus, 2015).

    python -m examples.stories

learns three kinds of questions from generated stories: one, two or three sentences decide them. It
trains a model for each kind with three hops, and one with one hop beside it, in a minute and a half
on two cores. It prints the errors. For each kind it writes a picture of the sentences that every
hop read, a `.keras` file, and a SavedModel that takes a story and a question as strings, which it
then runs in a process without keras.

    python -m examples.stories --data DIR --task all --repeats 10

does it for the 20 tasks of bAbI. DIR holds the official text files; `--data download` downloads
them. The table shows the errors of the paper beside ours. Of several repeats the one with the
lowest training error counts, as in the paper. A run that was interrupted or killed resumes when the
same command is run again: finished models are kept. Measured figures are in
docs/results/stories.md.

Words that were not seen in training share one vector. No story trained it, so it stays near zero,
its initial value. The command counts such words, and sentences that fall out of the memory.
"""

import argparse
import pathlib

import keras

from examples.common import workers
from examples.common.arguments import (
    check_at_least_one,
    check_ranges,
    check_seed,
    fill,
    make_parser,
)
from examples.common.extras import check_extras
from examples.common.files import make_folder
from examples.stories.data import FEWEST, Corpus, load_data
from examples.stories.evaluation import report
from examples.stories.export import save
from examples.stories.model import ENCODINGS
from examples.stories.reading import FOLDERS
from examples.stories.training import HAS_GPU, Models, train_all

# Defaults for a model of each task, and for one model of all tasks.
DEFAULTS = {"units": (20, 50), "epochs": (100, 60), "linear_epochs": (20, 30)}


def parse(argv):
    parser = make_parser("stories", __doc__)

    def add(name, text):
        flag, (each, joint) = f"--{name.replace('_', '-')}", DEFAULTS[name]
        parser.add_argument(flag, type=int, help=f"{text} (default: {each}; joint: {joint})")

    parser.add_argument("--data", metavar="DIR", help="folder of bAbI's files, or download")
    parser.add_argument(
        "--task", nargs="+", default=["all"], metavar="N", help="numbers, all, or joint: one model"
    )
    parser.add_argument("--size", choices=FOLDERS, help="training questions (default: 1k)")
    parser.add_argument("--questions", type=int, help="for each generated task (default: 1000)")
    parser.add_argument(
        "--hops", type=int, nargs="+", help="one or more (default: 3; generated stories: 3 1)"
    )
    parser.add_argument("--tying", choices=("adjacent", "layerwise"), default="adjacent")
    parser.add_argument(
        "--encoding",
        choices=ENCODINGS,
        default="position",
        help="place of a word: in the longest sentence, in its own sentence, or none",
    )
    parser.add_argument(
        "--null-memories",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="also read empty places of the memory, as zeros",
    )
    parser.add_argument("--linear-start", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument(
        "--noise",
        type=float,
        default=0.1,
        help="empty sentences among the others, as a fraction",
    )
    parser.add_argument("--memory", type=int, default=50, help="sentences that are remembered")
    parser.add_argument("--repeats", type=int, default=1, help="models; the best one counts")
    add("units", "width of a memory")
    add("epochs", "epochs after the linear ones")
    add("linear_epochs", "largest number of epochs without the softmax")
    parser.add_argument("--learning-rate", type=float, default=0.01, help="halved three times")
    parser.add_argument("--batch-size", type=int, default=32, help="number of questions")
    parser.add_argument("--seed", type=int, default=1, help="of all random numbers")
    # Only one process can use the GPU.
    alone = HAS_GPU or keras.backend.backend() != "tensorflow"
    jobs = 1 if alone else min(workers.cores(), 8)
    parser.add_argument(
        "--jobs",
        type=int,
        default=jobs,
        help="processes that train (default: %(default)s)",
    )
    parser.add_argument("--output", default="output/babi", help="folder for the results")
    parser.add_argument("--smoke", action="store_true", help="one generated task, within a minute")
    arguments = parser.parse_args(argv)
    if arguments.data == "":
        parser.error("--data is empty: give a folder or download, or leave it out to generate some")
    if arguments.data and (arguments.smoke or arguments.questions):
        parser.error("--smoke and --questions are for the generated stories: leave out --data")
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
    if arguments.questions is not None and arguments.questions < FEWEST:
        parser.error(f"--questions must be at least {FEWEST}; received {arguments.questions}")
    if min(arguments.hops) < 1:
        parser.error(f"--hops must be at least 1; received {min(arguments.hops)}")
    arguments.hops = list(dict.fromkeys(arguments.hops))
    check_ranges(parser, arguments, {"noise": 1, "learning_rate": float("inf")})
    return arguments


def main(argv=None):
    arguments = parse(argv)
    check_extras("tensorflow_text", "matplotlib")
    joint = arguments.task == ["joint"]
    found = load_data(arguments)
    names = (
        *("tying", "encoding", "null_memories", "linear_start", "noise", "memory", "units"),
        *("epochs", "linear_epochs", "learning_rate", "batch_size", "seed"),
    )
    settings = {name: getattr(arguments, name) for name in names}
    settings["backend"] = keras.backend.backend()
    corpus = Corpus(found, joint, arguments.memory, arguments.noise)
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
