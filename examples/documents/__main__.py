"""Document classification that shows its reasons (HAN; Yang, Yang, Dyer, He, Smola and Hovy, 2016).

    python -m examples.documents

learns from generated letters to a shop what their writers want, in two minutes on two cores. At
least 98% of unseen letters are classified rightly. One sentence of each decides it, and has the
largest weight in at least 95%. Beside attention stands the average. The command writes a page and a
picture that show what was read, and a `.keras` file.

    python -m examples.documents --data PATH --pooling attention average

does the same on your documents by cross-validation, beside linear models of the same words. PATH is
a folder with a sub-folder for each class and a file for each document, or a .csv with the columns
text and label. The attention reads words and word pairs and learns in seconds; with `--encoder gru`
it is the paper's hierarchy. The same command resumes a run that was stopped or killed. The files
come from the first fold.
"""

import itertools
import pathlib
import shutil

import keras

from examples.common import arguments as types
from examples.common.files import Results, check_classes, fingerprint, own_folder
from examples.common.records import add_record, write_record
from examples.common.training import Resume, seed_model, warmup_cosine
from examples.documents import evaluation, letters, model, ngrams
from examples.documents.data import Folds, read

LETTERS = 5000
# Defaults. In letters, an encoder of sentences would blur which sentence decides.
DEFAULTS = {
    "letters": {"folds": 5, "runs": 1, "encoder": "words", "pooling": [*model.POOLINGS]},
    "your documents": {"folds": 10, "encoder": "ngrams", "pooling": ["attention"]},
}
# How to train. `word_dropout` drops words, `dropout` features of all words and of the document.
RECIPES = {
    "ngrams": {"epochs": 20, "learning_rate": 0.3, "min_count": 1},
    "your documents": {"epochs": 6, "learning_rate": 0.003, "min_count": 5, "embedding": 64}
    | {"units": 32, "dropout": 0.5, "word_dropout": 0.1},
    "letters": {"epochs": 5, "learning_rate": 0.005, "min_count": 1, "embedding": 32}
    | {"units": 24, "dropout": 0.5, "word_dropout": 0.0},
}
FREE = "pooling", "runs", "output", "record"  # options that change no model


def parse(argv):
    parser = types.make_parser("documents", __doc__)
    add = parser.add_argument
    add("--data", metavar="PATH", help="your documents (default: letters)")
    add("--pooling", nargs="+", choices=model.POOLINGS, help="one or both")
    add("--encoder", choices=model.ENCODERS, help="default: ngrams; letters: words")
    add("--folds", type=types.between(int, 2), help="default: 10; letters: 5")
    add("--runs", type=types.count, help="folds that are run at most (default: all; letters: 1)")
    add("--epochs", type=types.count, help="default: ngrams 20, other encoders 6, letters 5")
    add("--seed", type=types.seed, default=1, help="of all random numbers")
    add("--output", default="output/classify", help="folder for the results")
    add_record(parser)
    options = parser.parse_args(argv)
    if options.data == "":
        parser.error("--data needs a path")
    kind = "your documents" if options.data else "letters"
    types.fill(options, DEFAULTS[kind])
    recipe = RECIPES["ngrams" if options.encoder == "ngrams" else kind]
    # `longest`: the words of a sentence; more begin the next one.
    return types.fill(options, {"longest": 25, **recipe, "runs": options.folds})


def train(fold, options, settings, folder):
    """Builds, compiles and fits the model of a fold. Returns it and its reader."""
    seed_model(options.seed + settings["fold"] - 1)
    batches, rate = fold.batches(options.seed), options.learning_rate
    steps, pooling = options.epochs * batches.steps, settings["pooling"]
    if options.encoder == "ngrams":
        classifier, reader = ngrams.build_model(fold, pooling)
        # Keras averages the loss over the classes; the rate is for their sum. Adam's equal steps
        # would teach rare n-grams as much as frequent ones.
        schedule, loss = warmup_cosine(rate * fold.classes, steps, last=0.0), "squared_hinge"
        optimizer = keras.optimizers.SGD(schedule, momentum=0.9)
    else:
        sizes = options.embedding, options.units, options.dropout, options.word_dropout
        classifier, reader = model.build_model(
            fold.vocabulary.size, fold.classes, pooling, options.encoder, *sizes
        )
        loss = keras.losses.CategoricalCrossentropy(from_logits=True)
        optimizer = keras.optimizers.Adam(warmup_cosine(rate, steps, 0.05), global_clipnorm=1.0)
    classifier.compile(optimizer, loss, metrics=["accuracy"])
    Resume(folder, settings, batches).fit(classifier, options.epochs)
    return classifier, reader


def main(argv=None):
    options = parse(argv)
    types.check_extras("regex", "matplotlib", "sklearn")
    if options.data:
        documents, deciding = read(options.data), None
    else:
        documents, deciding = letters.make(LETTERS, options.seed)
    labels = [document.label for document in documents]
    check_classes(options.data or "letters", labels, options.folds, "documents")
    settings = {name: value for name, value in vars(options).items() if name not in FREE}
    settings |= {"documents": fingerprint(documents), "backend": keras.backend.backend()}
    output = own_folder(pathlib.Path(options.output))
    results = Results(output / "results.json", settings)
    task = Folds(documents, options.folds, options.longest, options.min_count)
    # All poolings of a fold come before the next fold, so that a part of them can be compared.
    folds = range(1, min(options.runs, options.folds) + 1)
    try:
        for number, pooling in itertools.product(folds, dict.fromkeys(options.pooling)):
            names = {"pooling": pooling, "fold": number}
            if results.find(**names):
                continue
            print(f"\n{pooling}, fold {number} of {options.folds}", flush=True)
            evaluation.add_baselines(results, task, number, options.seed)
            fold, folder = task.split(number), output / pooling / f"fold-{number}"
            trained = train(fold, options, {**settings, **names}, folder)
            entry, shown = evaluation.evaluate(*trained, fold, deciding)
            if number == 1:
                evaluation.save(trained[1], fold, task, shown, output / pooling)
            results.add({**names, **entry})
            shutil.rmtree(folder)
    finally:  # after Ctrl-C too
        figures = evaluation.report(results, options, documents)
    write_record(options.record, figures, seeds=[options.seed])


if __name__ == "__main__":
    types.run(main)
