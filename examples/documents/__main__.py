"""Document classification that shows its reasons (HAN; Yang, Yang, Dyer, He, Smola and Hovy, 2016).

    python -m examples.documents

learns from generated letters to a shop what their writers want. One sentence of each letter decides
it. Beside it, the same model learns with the average in place of attention. This takes about two
minutes on two cores. At least 98% of unseen letters are classified rightly, and in at least 95% of
them the sentence with the largest weight is the deciding one. The command writes a page and a
picture that show what was read, a `.keras` file, and a SavedModel from raw text to classes and
weights, which it then runs in a process without keras.

    python -m examples.documents --data PATH --pooling attention average

does the same on your documents by cross-validation. PATH is a folder with one sub-folder for each
class and one file for each document, or a file: a .csv with the columns text and label, or lines
like {"text": "...", "label": "..."}. The attention reads words and word pairs and learns in
seconds; with `--encoder gru` it is the paper's hierarchy. Linear models of the same words stand
beside it. The same command resumes a run that was stopped or killed. The files come from the first
fold, with documents that its model has not seen. If the words with the largest weights matter no
more than random words, the command says so and draws no picture. Measured figures are in
docs/results/documents.md.
"""

import json
import pathlib
import shutil
import sys

import keras
import numpy as np
import tensorflow as tf

from examples.common import arguments as types
from examples.common.files import Results, fingerprint, make_folder
from examples.common.training import Batches, Resume, seed_model, warmup_cosine
from examples.documents import evaluation, letters, model, ngrams
from examples.documents.data import Folds, check_classes, read

# Defaults for letters and for your documents. An encoder of sentences would blur which sentence of
# a letter decides.
LETTERS = {"folds": 5, "runs": 1, "encoder": "words", "pooling": ["attention", "average"]}
YOURS = {"folds": 10, "encoder": "ngrams", "pooling": ["attention"]}
# Defaults for ngrams, and for other encoders on your documents and on letters.
TRAINING = {
    "epochs": (20, 6, 5),
    "learning_rate": (0.3, 0.003, 0.005),
    "min_count": (1, 5, 1),
    "form": ("auto", None, None),
    "embedding": (None, 64, 32),
    "units": (None, 32, 24),
    "dropout": (None, 0.5, 0.5),
    "word_dropout": (None, 0.1, 0.0),
}


def parse(argv):
    parser = types.make_parser("documents", __doc__)

    def add(flag, kind=None, text=None, **more):
        column = TRAINING.get(flag[2:].replace("-", "_"), ())
        listed = ", ".join(str(x) for x in column if x is not None)
        text = f"{text}; default: {listed}" if listed else text
        parser.add_argument(flag, type=kind, help=text, **more)

    add("--data", None, "your documents (default: letters)", metavar="PATH")
    add("--documents", types.count, "number of letters (default: 5000)")
    add("--pooling", None, "one or both", nargs="+", choices=model.POOLINGS)
    add("--encoder", None, "default: ngrams; letters: words", choices=model.ENCODERS)
    add("--form", None, "of the weights of ngrams", choices=("auto", *ngrams.FORMS[:2]))
    add("--folds", types.between(int, 2), "default: 10; letters: 5")
    add("--runs", types.count, "folds that are run (default: all; letters: 1)")
    add("--epochs", types.count, "for ngrams, other encoders, letters")
    add("--learning-rate", types.number, "the highest")
    add("--min-count", types.count, "of a known word")
    add("--embedding", types.count, "width of a word")
    add("--units", types.count, "width of a GRU in one direction")
    add("--dropout", types.share, "share of features of words and documents")
    add("--word-dropout", types.share, "share of words")
    add("--longest", types.count, "words of a sentence; the rest is the next", default=25)
    add("--seed", types.seed, "of all random numbers", default=1)
    add("--output", None, "folder for the results", default="output/classify")
    options = parser.parse_args(argv)
    if options.data == "" or (options.data and options.documents):
        parser.error("--data needs a path, and no --documents, which is the number of letters")
    if not options.data and options.longest < letters.LONGEST:
        parser.error(f"--longest must be at least {letters.LONGEST}, the words of a sentence")
    types.fill(options, YOURS if options.data else LETTERS)
    column = 0 if options.encoder == "ngrams" else 1 if options.data else 2
    for name, values in TRAINING.items():
        if getattr(options, name) is not None and values[column] is None:
            parser.error(f"--{name.replace('_', '-')} is not for --encoder {options.encoder}")
    types.fill(options, {name: values[column] for name, values in TRAINING.items()})
    types.fill(options, {"runs": options.folds, "documents": 5000})
    if options.runs > options.folds:
        parser.error(f"--runs must be at most --folds; received {options.runs}")
    return options


class MinutesLeft(keras.callbacks.Callback):
    """Adds to the line of an epoch how long the rest of the run takes."""

    def __init__(self, trainings):
        super().__init__()
        self.trainings = trainings  # this one and those after it

    def on_epoch_end(self, epoch, logs=None):
        left = self.trainings * self.params["epochs"] - epoch - 1
        logs["minutes_left"] = left * logs["seconds"] / 60


def train(fold, classes, options, settings, folder, trainings):
    """Builds, compiles and fits the model of a fold. Returns it and its reader."""
    data, words = fold.data, fold.vocabulary.size
    seed_model((options.seed + settings["fold"] - 1) % 2**32)
    targets = np.eye(classes, dtype="float32")[data.labels]
    batches = Batches(
        lambda order: data.batches(fold.train, order),
        lambda rows: (data.padded(rows), targets[rows]),
        options.seed,
    )
    steps, rate = options.epochs * batches.steps, options.learning_rate
    if options.encoder == "ngrams":
        form = "average" if settings["pooling"] == "average" else options.form
        classifier, reader = ngrams.build_model(
            data, fold.train, words, classes, form, options.seed
        )
        # Keras averages the loss over the classes; the rate is for their sum.
        schedule, loss = warmup_cosine(rate * classes, steps, last=0.0), "squared_hinge"
        # Adam's equal steps would teach rare n-grams as much as frequent ones.
        optimizer = keras.optimizers.SGD(schedule, momentum=0.9)
    else:
        sizes = options.embedding, options.units, options.dropout, options.word_dropout
        classifier, reader = model.build_model(
            words, classes, settings["pooling"], options.encoder, *sizes
        )
        schedule = warmup_cosine(rate, steps, last=0.05)
        loss = keras.losses.CategoricalCrossentropy(from_logits=True)
        optimizer = keras.optimizers.Adam(schedule, global_clipnorm=1.0)
    classifier.compile(optimizer, loss, metrics=["accuracy"])
    resume = Resume(folder, settings, batches)
    signature = tf.TensorSpec((None, None, None), "int32"), tf.TensorSpec((None, None))
    classifier.fit(
        batches.dataset(signature),
        epochs=options.epochs,
        initial_epoch=resume.restore(classifier),
        callbacks=[*resume.callbacks(), MinutesLeft(trainings)],
        shuffle=False,  # `batches` shuffle
        verbose=1 if sys.stdout.isatty() else 2,
    )
    return classifier, reader


def main(argv=None):
    options = parse(argv)
    types.check_extras("tensorflow_text", "matplotlib", "sklearn")
    if options.data:
        documents, deciding = read(options.data), None
    else:
        documents, deciding = letters.make(options.documents, options.seed)
    check_classes(options.data or "letters", documents, options.folds)
    settings = {k: v for k, v in vars(options).items() if k not in ("pooling", "runs", "output")}
    settings["data"] = fingerprint(json.dumps(documents).encode())
    settings["backend"] = keras.backend.backend()
    output = make_folder(pathlib.Path(options.output))
    results = Results(output / "results.json", settings)
    task = Folds(documents, options.folds, options.longest, options.min_count)
    # All poolings of a fold come before the next fold, so that a part of them can be compared.
    todo = [(number, x) for number in range(1, options.runs + 1) for x in options.pooling]
    todo = [(number, x) for number, x in todo if not results.find(pooling=x, fold=number)]
    try:
        for n, (number, pooling) in enumerate(todo):
            print(f"\n{pooling}, fold {number} of {options.folds}", flush=True)
            evaluation.add_baselines(results, task, number, options.seed)
            fold, names = task.split(number), {"pooling": pooling, "fold": number}
            folder = output / pooling / f"fold-{number}"
            classifier, reader = train(
                fold, len(task.classes), options, {**settings, **names}, folder, len(todo) - n
            )
            truth = deciding if pooling == "attention" else None
            entry, shown = evaluation.evaluate(classifier, reader, fold, truth)
            if number == 1:
                reasons = evaluation.measure_reasons(classifier, reader, fold, options.seed)
                print(evaluation.describe(reasons), flush=True)
                evaluation.save(reader, fold, task, shown, reasons, output / pooling)
                entry["reasons"] = reasons
            results.add({**names, **entry})
            shutil.rmtree(folder)
    finally:  # after Ctrl-C too
        evaluation.report(results, options)


if __name__ == "__main__":
    types.run(main)
