"""Document classification that shows its reasons (HAN; Yang, Yang, Dyer, He, Smola and Hovy, 2016).

    python -m examples.documents

learns from generated letters to a shop what their writers want. One sentence of each letter decides
it. Beside it, the same model learns with the average in place of attention. This takes about two
minutes on two cores. At least 98% of unseen letters are classified rightly, and in at least 95% of
them the sentence with the largest weight is the deciding one. The command writes a page that shows
which words and sentences were read, a picture of it, a `.keras` file, and a SavedModel from raw
text to classes and weights, which it then runs in a process without keras.

    python -m examples.documents --data DIR --pooling attention average

does the same on your documents by cross-validation. DIR is a folder with one sub-folder for each
class and one file for each document, or a file with lines like {"text": "...", "label": "..."}. It
compares attention with the average on the same words, and with a linear SVM and logistic regression
on their TF-IDF. The attention reads single words and word pairs, and is trained in seconds. With
`--encoder gru` it is the paper's hierarchy, which also takes `--pooling max`. A run that was
interrupted or killed resumes when the same command is run again. The files come from the first
fold. Its model has not seen the documents on the page: some of each class, and some that it
classified wrongly. Measured figures are in docs/results/documents.md.
"""

import json
import pathlib
import shutil

import keras

from examples.common.arguments import (
    check_at_least_one,
    check_ranges,
    check_seed,
    fill,
    make_parser,
)
from examples.common.extras import check_extras
from examples.common.files import fingerprint, make_folder
from examples.common.interrupt import Interrupt
from examples.common.results import Results
from examples.common.vectors import read_vectors
from examples.documents import letters
from examples.documents.baselines import BASELINES, run_baselines
from examples.documents.data import load_data
from examples.documents.evaluation import report
from examples.documents.folds import Folds
from examples.documents.model import ENCODERS, POOLINGS
from examples.documents.prior import CHOICES
from examples.documents.training import run_fold

# Defaults for your documents, and for letters.
DEFAULTS = {
    "folds": (10, 5),
    # An encoder of sentences would blur which sentence of a letter decides.
    "encoder": ("ngrams", "words"),
    "pooling": (["attention"], ["attention", "average"]),
    "documents": (None, 5000),
    "runs": (None, 1),
}
# Defaults for `ngrams`, and for the other encoders on your documents and on letters.
TRAINING = {
    "embedding": (None, 64, 32),
    "units": (None, 32, 24),
    "epochs": (20, 6, 5),
    "min_count": (1, 5, 1),
    "learning_rate": (0.3, 0.003, 0.005),
    "dropout": (None, 0.5, 0.5),
    "word_dropout": (None, 0.1, 0.0),
    "form": ("auto", None, None),
}


def parse(argv):
    parser = make_parser("documents", __doc__)

    def add(name, kind, text):
        listed = "; ".join(str(x) for x in TRAINING[name] if x is not None)
        flag, text = f"--{name.replace('_', '-')}", f"{text} (default: {listed})"
        parser.add_argument(flag, type=kind, help=text)

    parser.add_argument("--data", metavar="PATH", help="a folder of folders, or a JSON-lines file")
    parser.add_argument("--pooling", nargs="+", choices=POOLINGS, help="one or more")
    parser.add_argument(
        "--encoder",
        choices=ENCODERS,
        help="of words and sentences, or `ngrams`, attention over words and word pairs (default: "
        "ngrams; letters: words)",
    )
    parser.add_argument("--folds", type=int, help="number of folds (default: 10; letters: 5)")
    parser.add_argument("--runs", type=int, help="folds that are run (default: all; letters: 1)")
    parser.add_argument(
        "--without",
        type=int,
        metavar="FOLD",
        help="leave the documents of this fold out and split the others, to choose settings",
    )
    parser.add_argument("--form", choices=CHOICES, help="of the weights of ngrams (default: auto)")
    add(
        "epochs",
        int,
        "passes over the training documents; of three defaults, the first is for "
        "ngrams, the last for letters",
    )
    add("embedding", int, "width of a word; of two defaults, the second is for letters")
    parser.add_argument(
        "--vectors", metavar="FILE", help="fixed word vectors, a text file of GloVe or fastText"
    )
    add("units", int, "width of a GRU in one direction")
    parser.add_argument(
        "--batch-size", type=int, default=32, help="largest number of documents in a batch"
    )
    parser.add_argument(
        "--cells", type=int, default=40_000, help="largest number of words in a padded batch"
    )
    parser.add_argument(
        "--longest", type=int, default=25, help="largest number of words in a sentence"
    )
    add("min_count", int, "how often a known word occurs")
    add("learning_rate", float, "the highest learning rate")
    add("dropout", float, "of the features of words and of the document")
    add("word_dropout", float, "share of words that are replaced by the unknown one")
    parser.add_argument("--documents", type=int, help="number of letters (default: 5000)")
    parser.add_argument(
        "--agreement",
        action="store_true",
        help="train the first fold again with the next seed, and compare the attention weights",
    )
    parser.add_argument("--seed", type=int, default=1, help="of all random numbers")
    parser.add_argument("--output", default="output/classify", help="folder for the results")
    parser.add_argument("--smoke", action="store_true", help="few letters, within a minute")
    arguments = parser.parse_args(argv)
    if arguments.data == "":
        parser.error("--data is empty: give a folder or a file, or leave it out for letters")
    if arguments.data and (arguments.smoke or arguments.documents):
        parser.error("--smoke and --documents are for the generated letters: leave out --data")
    check_seed(parser, arguments)
    names = ["runs", "embedding", "units", "epochs", "batch_size", "cells", "longest", "min_count"]
    check_at_least_one(parser, arguments, [*names, "documents"])
    ranges = {"dropout": 1, "word_dropout": 1, "learning_rate": float("inf")}
    check_ranges(parser, arguments, ranges)
    if not arguments.data and arguments.longest < letters.LONGEST:
        parser.error(
            f"--longest must be at least {letters.LONGEST} for letters, because the deciding "
            f"sentence must not be cut in two; received {arguments.longest}"
        )
    if arguments.smoke:
        fill(arguments, {"documents": 2000, "epochs": 4, "pooling": ["attention"]})
    fill(arguments, {name: values[not arguments.data] for name, values in DEFAULTS.items()})
    ngrams = arguments.encoder == "ngrams"
    column = 0 if ngrams else 1 if arguments.data else 2
    if arguments.vectors and arguments.embedding:
        parser.error("--embedding is the width of --vectors: leave it out")
    for name, values in TRAINING.items():
        if getattr(arguments, name) is not None and values[column] is None:
            flag = f"--{name.replace('_', '-')}"
            parser.error(f"{flag} has no effect with --encoder {arguments.encoder}; leave it out")
    fill(arguments, {name: values[column] for name, values in TRAINING.items()})
    if ngrams and arguments.vectors:
        parser.error("--vectors needs an encoder of words, such as --encoder gru")
    if ngrams and "max" in arguments.pooling:
        parser.error("--pooling max needs an encoder of words, such as --encoder gru")
    fill(arguments, {"runs": arguments.folds})
    if arguments.folds < 2 or arguments.runs > arguments.folds:
        parser.error(
            f"--folds must be at least 2, and --runs no more; received {arguments.folds} and "
            f"{arguments.runs}"
        )
    if arguments.without is not None and not 1 <= arguments.without <= arguments.folds:
        parser.error(
            f"--without must be a fold from 1 to {arguments.folds}; received {arguments.without}"
        )
    return arguments


def main(argv=None):
    arguments = parse(argv)
    check_extras("tensorflow_text", "matplotlib", "sklearn")
    texts, deciding = load_data(arguments)
    settings = {
        name: value
        for name, value in vars(arguments).items()
        if name not in ("data", "pooling", "runs", "output", "smoke", "documents")
    }
    listed = json.dumps([document[1:] for document in texts], ensure_ascii=False)
    settings["training data"] = fingerprint(listed.encode())
    settings["backend"] = keras.backend.backend()
    task = Folds(texts, arguments.folds, arguments.longest, arguments.min_count)
    if arguments.vectors:
        task.vectors = read_vectors(arguments.vectors, {*task.words})
        settings["vectors"] = fingerprint(*task.vectors.values())
        print(f"{arguments.vectors}: vectors of {len(task.vectors):,} words, fixed")
    output = make_folder(pathlib.Path(arguments.output))
    folders = {pooling: make_folder(output / pooling) for pooling in arguments.pooling}
    results = Results(output / "results.json", settings)
    if task.empty:
        print(f"{task.empty:,} documents without a word; they are kept, as vectors of zeros")
    with Interrupt() as interrupt:
        # All poolings of a fold come before the next fold, so that a part of them can be compared.
        for number in range(arguments.runs):
            for pooling in arguments.pooling:
                folder = folders[pooling]
                if not results.find(pooling=pooling, fold=number + 1):
                    given = task, deciding, settings, pooling, number, folder, interrupt
                    results.add(run_fold(*given))
                shutil.rmtree(folder / f"fold-{number + 1}", ignore_errors=True)
                if interrupt.asked:
                    raise SystemExit("stopped after this fold; run the same command to resume.")
            if not results.find(pooling=BASELINES[0], fold=number + 1):
                for entry in run_baselines(task, number, arguments.seed):
                    results.add(entry)
    report(results, arguments, task)


if __name__ == "__main__":
    main()
