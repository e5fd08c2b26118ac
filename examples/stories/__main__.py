"""Questions about stories, answered in hops (Sukhbaatar, Szlam, Weston and Fergus, 2015).

    python -m examples.stories

learns three kinds of questions from generated stories: one, two or three sentences decide them. For
each kind it trains a model with three hops, and one with a single hop for comparison. This takes
less than four minutes on two cores. It also writes a picture of the sentences that every hop read,
and a `.keras` file.

    python -m examples.stories --data DIR --task all --repeats 10

does it for the 20 tasks of bAbI. DIR holds the official text files; `--data download` downloads
them. Of several repeats the one with the lowest training error counts, as in the paper. The same
command resumes an interrupted run: finished models are kept.
"""

import itertools
import pathlib

import keras
import numpy as np

from examples.common import arguments as types
from examples.common.files import Results, make_folder, own_folder
from examples.common.records import add_record, write_record
from examples.stories.data import Task, load_data
from examples.stories.evaluation import report, save
from examples.stories.model import JOBS, build_model, train_all
from examples.stories.reading import FOLDERS

# What the models depend on.
SETTINGS = ("noise", "memory", "units", "epochs", "linear_epochs")
SETTINGS += ("learning_rate", "batch_size", "seed")


def parse(argv):
    parser = types.make_parser("stories", __doc__)
    add, count = parser.add_argument, types.count
    add("--data", metavar="DIR", help="folder of bAbI's files, or download")
    add("--task", nargs="+", default=["all"], metavar="N", help="numbers, all, or joint: one model")
    add("--size", choices=FOLDERS, default="1k", help="training questions of bAbI (default: 1k)")
    add("--hops", type=count, nargs="+", help="default: 3; generated stories: 3 1")
    add("--noise", type=types.share, default=0.1, help="empty sentences among the others")
    add("--repeats", type=count, default=1, help="models; the best one counts")
    add("--units", type=count, help="width of a memory (default: 20; joint: 50)")
    text = "after at most 20 without the softmax (default: 100; joint: 60, after 30)"
    add("--epochs", type=count, help=text)
    add("--seed", type=types.seed, default=1, help="of all random numbers")
    add("--jobs", type=count, default=JOBS, help="processes that train (default: %(default)s)")
    add("--output", default="output/babi", help="folder for the results")
    add_record(parser)
    options = parser.parse_args(argv)
    if options.data == "":
        parser.error("--data is empty: give a folder or download, or leave it out to generate some")
    joint = options.task == ["joint"]
    if not (joint or options.task == ["all"] or all(n.isdecimal() for n in options.task)):
        parser.error(f"--task takes numbers, or all, or joint; received {' '.join(options.task)}")
    # The most epochs without the softmax, and the sentences that are remembered.
    defaults = {"units": 20, "epochs": 100, "linear_epochs": 20, "memory": 50}
    defaults |= {"learning_rate": 0.01, "batch_size": 32}
    defaults |= {"units": 50, "epochs": 60, "linear_epochs": 30} if joint else {}
    return types.fill(options, {**defaults, "hops": [3] if options.data else [3, 1]})


def main(argv=None):
    options = parse(argv)
    types.check_extras("matplotlib", "joblib")
    found, joint = load_data(options), options.task == ["joint"]
    groups = {"joint": found} if joint else {str(n): {n: x} for n, x in found.items()}
    tasks = [Task(name, x, options.memory, options.noise) for name, x in groups.items()]
    settings = {name: getattr(options, name) for name in SETTINGS}
    settings["backend"] = keras.backend.backend()
    output = own_folder(pathlib.Path(options.output))
    weights = make_folder(output / "weights")
    results = Results(output / "results.json", settings)
    hops, repeats = dict.fromkeys(options.hops), range(1, options.repeats + 1)
    models = {
        weights / f"{key[0].name}-hops-{key[1]}-{key[2]}-{key[0].digest}.weights.h5": key
        for key in itertools.product(tasks, hops, repeats)
    }
    jobs = [
        (*key, settings, path)
        for path, key in models.items()
        if not results.find(model=path.name) or not path.exists()
    ]
    print(f"models to train: {len(jobs)} of {len(models)}", flush=True)
    for path, result in train_all(jobs, options.jobs):
        results.add({"model": path.name, **result})
        test = np.mean(list(result["test_errors"].values()))
        print(f"{path.name}: training error {result['train_error']:.1f}%, test {test:.1f}%")
    best, figures = {}, {}
    for number in hops:
        entries = [
            [results.find(model=x.name) for x, key in models.items() if key[:2] == (task, number)]
            for task in tasks
        ]
        entries = best[number] = report(tasks, entries, number, options)
        errors = {n: x for entry in entries for n, x in entry["test_errors"].items()}
        figures[f"{number} hops, errors in %"] = {"mean": np.mean([*errors.values()]), **errors}
    write_record(options.record, figures, seeds=[options.seed])
    first = next(iter(hops))
    for task, entry in zip(tasks, best[first], strict=True):
        model, reader = build_model(task.sizes, first, options.units)
        model.load_weights(weights / entry["model"])
        save(task, reader, make_folder(output / (task.name if joint else f"task-{task.name}")))


if __name__ == "__main__":
    types.run(main)
