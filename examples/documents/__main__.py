"""Document classification that shows its reasons (HAN; Yang, Yang, Dyer, He, Smola and Hovy, 2016).

    python -m examples.documents

learns from generated letters to a shop what their writers want, in two minutes on two cores. At
least 98% of unseen letters are classified rightly. One sentence of each decides it, and has the
largest weight in at least 95%. Beside attention stands the average. The command writes a page and a
picture that show what was read, a `.keras` file, and a SavedModel from raw text to classes.

    python -m examples.documents --data PATH --pooling attention average

does the same on your documents by cross-validation, beside linear models of the same words. PATH is
a folder with a sub-folder for each class and a file for each document, or a file: a .csv with the
columns text and label, or lines like {"text": "...", "label": "..."}. The attention reads words and
word pairs and learns in seconds; with `--encoder gru` it is the paper's hierarchy. The same command
resumes a run that was stopped or killed. The files come from the first fold. If the words with the
largest weights matter no more than random words, there is no picture, and the command says so.
"""

import itertools
import json
import pathlib
import shutil
import sys

import keras

from examples.common import arguments as types
from examples.common.files import Results, fingerprint, own_folder
from examples.common.records import add_record, write_record
from examples.common.training import Resume, seed_model, warmup_cosine
from examples.documents import evaluation, letters, model, ngrams
from examples.documents.data import Folds, check_classes, read

# Defaults. In letters, an encoder of sentences would blur which sentence decides.
LETTERS = {"folds": 5, "runs": 1, "encoder": "words", "pooling": ["attention", "average"]}
YOURS = {"folds": 10, "encoder": "ngrams", "pooling": ["attention"]}
# How to train. `word_dropout` drops words, `dropout` features of all words and of the document.
RECIPES = {
    "ngrams": {"epochs": 20, "learning_rate": 0.3, "min_count": 1},
    "your documents": {
        **{"epochs": 6, "learning_rate": 0.003, "min_count": 5, "embedding": 64, "units": 32},
        **{"dropout": 0.5, "word_dropout": 0.1},
    },
    "letters": {
        **{"epochs": 5, "learning_rate": 0.005, "min_count": 1, "embedding": 32, "units": 24},
        **{"dropout": 0.5, "word_dropout": 0.0},
    },
}


def parse(argv):
    parser = types.make_parser("documents", __doc__)
    add = parser.add_argument
    add("--data", metavar="PATH", help="your documents (default: letters)")
    add("--documents", type=types.count, help="number of letters (default: 5000)")
    add("--pooling", nargs="+", choices=model.POOLINGS, help="one or both")
    add("--encoder", choices=model.ENCODERS, help="default: ngrams; letters: words")
    add("--form", choices=("auto", *ngrams.FORMS[:2]), default="auto", help="of ngrams")
    add("--folds", type=types.between(int, 2), help="default: 10; letters: 5")
    add("--runs", type=types.count, help="folds that are run at most (default: all; letters: 1)")
    add("--seed", type=types.seed, default=1, help="of all random numbers")
    add("--output", default="output/classify", help="folder for the results")
    add("--epochs", type=types.count, help="default: ngrams 20, other encoders 6, letters 5")
    add_record(parser)
    options = parser.parse_args(argv)
    if options.data == "" or (options.data and options.documents):
        parser.error("--data needs a path, and no --documents, which is the number of letters")
    types.fill(options, YOURS if options.data else LETTERS)
    if options.form != "auto" and options.encoder != "ngrams":
        parser.error(f"--form goes with --encoder ngrams; this one is {options.encoder}")
    kind = "your documents" if options.data else "letters"
    recipe = RECIPES["ngrams" if options.encoder == "ngrams" else kind]
    # `longest`: the words of a sentence; more begin the next one.
    types.fill(options, {"longest": 25, **recipe, "runs": options.folds, "documents": 5000})
    options.runs = min(options.runs, options.folds)
    return options


def train(fold, options, settings, folder, trainings):
    """Builds, compiles and fits the model of a fold. Returns it and its reader."""
    seed_model((options.seed + settings["fold"] - 1) % 2**32)
    batches, rate = fold.batches(options.seed), options.learning_rate
    steps = options.epochs * batches.steps
    if options.encoder == "ngrams":
        form = "average" if settings["pooling"] == "average" else options.form
        classifier, reader = ngrams.build_model(fold, form, options.seed)
        # Keras averages the loss over the classes; the rate is for their sum. Adam's equal steps
        # would teach rare n-grams as much as frequent ones.
        schedule, loss = warmup_cosine(rate * fold.classes, steps, last=0.0), "squared_hinge"
        optimizer = keras.optimizers.SGD(schedule, momentum=0.9)
    else:
        sizes = options.embedding, options.units, options.dropout, options.word_dropout
        classifier, reader = model.build_model(
            fold.vocabulary.size, fold.classes, settings["pooling"], options.encoder, *sizes
        )
        loss = keras.losses.CategoricalCrossentropy(from_logits=True)
        optimizer = keras.optimizers.Adam(warmup_cosine(rate, steps, 0.05), global_clipnorm=1.0)
    classifier.compile(optimizer, loss, metrics=["accuracy"])
    resume = Resume(folder, settings, batches)
    classifier.fit(
        batches.dataset(),
        epochs=options.epochs,
        initial_epoch=resume.restore(classifier),
        callbacks=resume.callbacks(trainings=trainings),
        shuffle=False,  # `batches` shuffle
        verbose=int(sys.stdout.isatty()),
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
    free = "documents", "pooling", "runs", "output", "record"
    settings = {name: value for name, value in vars(options).items() if name not in free}
    data = fingerprint(json.dumps(documents).encode())
    settings |= {"data": data, "backend": keras.backend.backend()}
    output = own_folder(pathlib.Path(options.output))
    results = Results(output / "results.json", settings)
    task = Folds(documents, options.folds, options.longest, options.min_count)
    # All poolings of a fold come before the next fold, so that a part of them can be compared.
    todo = itertools.product(range(1, options.runs + 1), dict.fromkeys(options.pooling))
    todo = [(number, x) for number, x in todo if not results.find(pooling=x, fold=number)]
    if not todo:
        print(f"{output} holds all results already: delete it to train again")
    try:
        for n, (number, pooling) in enumerate(todo):
            print(f"\n{pooling}, fold {number} of {options.folds}", flush=True)
            evaluation.add_baselines(results, task, number, options.seed)
            fold, folder = task.split(number), output / pooling / f"fold-{number}"
            names = {"pooling": pooling, "fold": number}
            trained = train(fold, options, {**settings, **names}, folder, len(todo) - n)
            entry, shown = evaluation.evaluate(*trained, fold, deciding)
            if number == 1:
                reasons = evaluation.measure_reasons(*trained, fold, options.seed)
                evaluation.save(trained[1], fold, task, shown, reasons, output / pooling)
                entry["reasons"] = reasons
            results.add({**names, **entry})
            shutil.rmtree(folder)
    finally:  # after Ctrl-C too
        figures = evaluation.report(results, options, documents)
    write_record(options.record, figures, seeds=[options.seed])


if __name__ == "__main__":
    types.run(main)
