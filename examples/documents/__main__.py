"""Document classification that shows its reasons (HAN; Yang, Yang, Dyer, He, Smola and Hovy, 2016).

    python examples/classify.py

learns from generated letters to a shop what their writers want, which one sentence of each decides,
in about two minutes on two cores; at least 98% of unseen letters are classified rightly, and the
sentence with the largest weight is the deciding one in at least 95% of them. Beside it stands the
same model with the average in place of attention. It writes a page that
shows which words and sentences were read, a picture of it, a `.keras` file and a SavedModel from
raw text to classes and weights, which a process without keras then runs.

    python examples/classify.py --data DIR --pooling attention average max

does the same on your documents by cross-validation: DIR has one sub-folder a class and in it a file
a document, or it is a file with lines like {"text": "...", "label": "..."}. Attention is compared
with the average and the maximum on the same encoders. A run that was stopped, by Ctrl-C or a kill,
goes on when it is started again with the same arguments. What is written is of the first fold: its
model has not seen the documents that the page shows, some of each class and some that were wrong.
Measured figures are in docs/results.md.
"""

import argparse
import collections
import json
import os
import pathlib
import shutil
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import documents
import keras
import letters
import numpy as np
import tensorflow as tf
from arguments import check_at_least_one, check_ranges, check_seed, fill
from batching import budgeted
from checkpoint import (
    Checkpoint,
    Interrupt,
    Results,
    fingerprint,
    make_folder,
    reseed,
    save_figure,
    seed_model,
    write_text,
)
from extras import check_extras
from folds import Folds
from han import ENCODERS, POOLINGS, build_model
from schedules import warmup_cosine
from serving import ask_saved_model, write_model, write_saved_model

from keras_attention.plotting import Document, document_page, plot_document

if keras.backend.backend() != "tensorflow":
    # Only text is left to TensorFlow; it would take the memory of the GPU.
    tf.config.set_visible_devices([], "GPU")
# Sizes are padded to multiples of this. A program of XLA has fixed shapes: few of them there.
COMPILED = keras.backend.backend() != "tensorflow" or tf.config.list_physical_devices("GPU")
MULTIPLE = 16 if COMPILED else 1


# --- data ----------------------------------------------------------------------------------------


def load_data(arguments):
    """Documents, and for generated ones the number of the sentence that decides each."""
    source, counts = arguments.data, collections.Counter()
    if source:
        found, deciding = documents.read(source), None
    else:
        source = f"--documents {arguments.documents}"
        found, deciding = letters.make(arguments.documents, arguments.seed)
        counts.update(dict.fromkeys(letters.WISHES, 0))
    counts.update(document.label for document in found)
    listed = ", ".join(f"{count:,} {label}" for label, count in sorted(counts.items()))
    print(f"{source}: {len(found):,} documents ({listed})")
    small = min(counts, key=counts.get)
    fewest = counts[small]
    if fewest < arguments.folds:
        fewer = f"--folds {fewest}, or " if fewest > 1 else ""
        raise SystemExit(
            f"{source}: the class {small!r} has {fewest} documents, fewer than the "
            f"{arguments.folds} folds. Give {fewer}more documents. Nothing was written."
        )
    return found, deciding


# --- training ------------------------------------------------------------------------------------


def padded_sizes(data, chosen):
    return -(-data.sizes[chosen] // MULTIPLE) * MULTIPLE


def train(model, data, chosen, settings, checkpoint, interrupt):
    """Trains on the documents `chosen` to the end, or goes on with an earlier run."""
    sizes = padded_sizes(data, chosen)

    def batches(epoch):
        # An order of its own for every epoch, whether or not the run was interrupted.
        order = np.random.default_rng([settings["seed"], epoch])
        made = budgeted(sizes, settings["batch_size"], settings["cells"], order)
        return [chosen[batch] for batch in made]

    steps = settings["epochs"] * len(batches(0))
    model.compile(
        keras.optimizers.Adam(
            warmup_cosine(settings["learning_rate"], steps, last=0.05), global_clipnorm=1.0
        ),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    done = checkpoint.restore(model)
    for epoch in range(done, settings["epochs"]):
        reseed(model, settings["seed"], epoch)
        start, epoch_batches = time.perf_counter(), batches(epoch)
        losses, right = 0.0, 0.0
        for step, batch in enumerate(epoch_batches, 1):
            model.reset_metrics()
            logs = model.train_on_batch(
                data.padded(batch, MULTIPLE), data.labels[batch], return_dict=True
            )
            losses += float(logs["loss"]) * len(batch) / len(chosen)
            right += float(logs["accuracy"]) * len(batch) / len(chosen)
            if interrupt.asked and step < len(epoch_batches):
                raise SystemExit(
                    f"stopped; {epoch} of {settings['epochs']} epochs of this fold are saved, and "
                    "the same command goes on from there."
                )
            if sys.stdout.isatty():
                seconds = (time.perf_counter() - start) / step
                rest = (settings["epochs"] - epoch) * len(epoch_batches) - step
                print(
                    f"  epoch {epoch + 1}, step {step}/{len(epoch_batches)}, "
                    f"{rest * seconds / 60:.0f} min left",
                    end="          \r",
                    flush=True,
                )
        if not np.isfinite(losses):
            raise SystemExit(
                f"the training diverged: loss {losses} in epoch {epoch + 1}. Choose a lower "
                "--learning-rate and another --output."
            )
        entry = {"loss": losses, "accuracy": right, "seconds": time.perf_counter() - start}
        checkpoint.save(model, {"epoch": epoch + 1, **entry})
        left = (settings["epochs"] - epoch - 1) * entry["seconds"]
        print(
            f"  epoch {epoch + 1}/{settings['epochs']}: loss {entry['loss']:.4f}, "
            f"{100 * entry['accuracy']:.1f}% of the training documents right, "
            f"{entry['seconds']:.0f} s, {left / 60:.0f} min left",
            flush=True,
        )


def read(reader, data, chosen, settings):
    """What the reader finds in the documents `chosen`: a dictionary of lists, a document each."""
    sizes = padded_sizes(data, chosen)
    found = collections.defaultdict(lambda: [None] * len(chosen))
    for batch in budgeted(sizes, settings["batch_size"], settings["cells"]):
        outputs = reader.predict_on_batch(data.padded(chosen[batch], MULTIPLE))
        for name, values in outputs.items():
            for n, value in zip(batch, values, strict=True):
                found[name][n] = value
    return found


# --- cross-validation ----------------------------------------------------------------------------


def run_fold(task, deciding, settings, pooling, number, output, interrupt):
    """Trains on all folds but one and tests on that: an entry of the results."""
    settings = {**settings, "pooling": pooling, "fold": number + 1}
    data, vocabulary, inside, outside = task.split(number)
    seed_model((settings["seed"] + number) % 2**32)
    shape = {name: settings[name] for name in ("embedding", "units", "dropout", "word_dropout")}
    model, reader = build_model(
        vocabulary.size, len(task.classes), pooling, settings["encoder"], **shape
    )
    print(
        f"\n{pooling}, fold {number + 1} of {settings['folds']}: {model.count_params():,} "
        f"parameters, {vocabulary.size - 2:,} words, {len(inside):,} documents to train on, "
        f"{len(outside):,} to test on",
        flush=True,
    )
    checkpoint = Checkpoint(output / f"fold-{number + 1}", settings)
    train(model, data, inside, settings, checkpoint, interrupt)
    found = read(reader, data, outside, settings)
    guesses = np.argmax(found["probabilities"], axis=1)
    right = guesses == data.labels[outside]
    entry = {
        "pooling": pooling,
        "fold": number + 1,
        "accuracy": 100 * float(right.mean()),
        "documents": len(outside),
        "parameters": model.count_params(),
        "epoch_seconds": float(np.mean([e["seconds"] for e in checkpoint.state["history"]])),
    }
    if deciding is not None and pooling == "attention":
        largest = [weights.argmax() for weights in found["sentence_weights"]]
        entry["deciding"] = 100 * float(np.mean(largest == np.array(deciding)[outside]))
    print(f"  accuracy {entry['accuracy']:.2f}%", flush=True)
    if number == 0:
        save(reader, vocabulary, task, data, choose(right, outside, data.labels), output)
    return entry


# --- saving --------------------------------------------------------------------------------------


def make_serve(reader, vocabulary, classes, longest):
    """Raw text to classes, probabilities and both weight maps, for a SavedModel."""

    def serve(texts):
        size = tf.shape(texts)[0]
        # Of no text, or of texts without a word, too: there is one of padding.
        words, begins, ends = (x.to_tensor() for x in documents.split_sentences(texts, longest))
        more = tf.maximum(1 - tf.shape(words), 0)
        words, begins, ends = (
            tf.pad(x, [[0, more[0]], [0, more[1]], [0, more[2]]]) for x in (words, begins, ends)
        )
        found = reader(vocabulary(words), training=False)
        result = {
            "label": tf.gather(tf.constant(classes), tf.argmax(found["probabilities"], axis=1)),
            "words": words,
            "start_byte": begins,
            "end_byte": ends,
            **found,
        }
        # For every text again: servers hand out answers row by row.
        names = tf.tile(tf.constant(classes)[None], [size, 1])
        return {"classes": names, **{name: value[:size] for name, value in result.items()}}

    return serve


def save(reader, vocabulary, task, data, shown, output):
    """The `.keras` file, the SavedModel, the page and the picture of the documents `shown`."""
    # As wide as in the SavedModel, whatever MULTIPLE is.
    ids = data.padded(shown)
    write_model(reader, output / "model.keras", ids)
    if keras.backend.backend() != "tensorflow":
        print("The SavedModel is written with the TensorFlow backend: start the command with it.")
        return
    serve = make_serve(reader, vocabulary, task.classes, task.longest)
    path = output / "saved_model"
    write_saved_model(path, serve, ["texts"], [reader, vocabulary])
    print(f"{path}: takes texts, returns classes and the weights of words and sentences")
    reply = ask_saved_model(path, {"texts": [task.texts[n].text for n in shown]})
    found = reader.predict_on_batch(ids)
    gap = max(np.abs(np.array(reply[name]) - found[name]).max() for name in found)
    if not gap <= 1e-5:
        raise SystemExit(f"the SavedModel differs in a new process by {gap:.2g}")
    print(
        f"The reloaded SavedModel agrees: probabilities and weights of {len(shown)} documents "
        f"within {gap:.1g}; the process had no {' and no '.join(reply['absent'])}."
    )
    readings = [reading(task.texts[n], reply, row) for row, n in enumerate(shown)]
    title = f"Which words and sentences were read: {len(readings)} of the test documents"
    write_text(output / "documents.html", document_page(readings, title))
    save_figure(output / "document.png", plot_document(readings[0]))
    print(f"{output / 'documents.html'}: documents with words and sentences coloured by weight")


def choose(right, outside, labels, count=4):
    """Of the tested documents some of each class that were classified rightly, and some wrongly."""
    groups = [outside[right & (labels[outside] == label)] for label in np.unique(labels)]
    return np.concatenate([group[:count] for group in (*groups, outside[~right])])


def reading(document, reply, row):
    """One document of a reply of the SavedModel, with the text between its words."""
    text, last = document.text.encode(), 0
    words, gaps, weights, shares = [], [], [], []
    names = ("words", "start_byte", "end_byte", "word_weights", "sentence_weights")
    for *sentence, share in zip(*(reply[name][row] for name in names), strict=True):
        found = [one for one in zip(*sentence, strict=True) if one[0]]
        if not found:
            continue
        shares.append(share)
        words.append([word for word, *_ in found])
        weights.append([weight for *_, weight in found])
        gaps.append([])
        for _, begin, end, _ in found:
            gaps[-1].append(text[last:begin].decode())
            last = end
    return Document(
        words,
        weights,
        shares,
        gaps=gaps,
        name=document.name,
        predicted=reply["label"][row],
        probability=max(reply["probabilities"][row]),
        expected=document.label,
    )


# --- command line --------------------------------------------------------------------------------


# Of documents that are given, and of letters.
DEFAULTS = {
    "folds": (10, 5),
    # What a letter says before and after does not matter; an encoder would blur which one it is.
    "encoder": ("gru", "words"),
    "embedding": (64, 32),
    "units": (32, 24),
    "epochs": (6, 5),
    "min_count": (5, 1),
    "learning_rate": (0.003, 0.005),
    "dropout": (0.5, 0.5),
    "word_dropout": (0.1, 0.0),
    "pooling": (["attention"], ["attention", "average"]),
    "documents": (None, 5000),
    "runs": (None, 1),
}


def parse(argv):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )

    def add(name, kind, text):
        given, of_letters = DEFAULTS[name]
        flag, text = f"--{name.replace('_', '-')}", f"{text} (default: {given}; {of_letters})"
        parser.add_argument(flag, type=kind, help=text)

    parser.add_argument("--data", metavar="PATH", help="a folder of folders, or a JSON-lines file")
    parser.add_argument("--pooling", nargs="+", choices=POOLINGS, help="one or more")
    parser.add_argument(
        "--encoder", choices=ENCODERS, help="of words and sentences (default: gru; letters: words)"
    )
    add("folds", int, "where two defaults are given, the second is of letters")
    parser.add_argument("--runs", type=int, help="folds that are run (default: all; letters: 1)")
    add("embedding", int, "width of a word")
    add("units", int, "of a GRU in one direction")
    add("epochs", int, "over the training documents")
    parser.add_argument("--batch-size", type=int, default=32, help="documents, at most")
    parser.add_argument(
        "--cells", type=int, default=40_000, help="words of a padded batch, at most"
    )
    parser.add_argument("--longest", type=int, default=25, help="words of a sentence, at most")
    add("min_count", int, "how often a known word occurs")
    add("learning_rate", float, "at its highest")
    add("dropout", float, "of features of words and of the document")
    add("word_dropout", float, "words that are taken for unknown")
    parser.add_argument("--documents", type=int, help="number of letters (default: 5000)")
    parser.add_argument("--seed", type=int, default=1, help="of all that is drawn")
    parser.add_argument("--output", default="output/classify", help="where results are written")
    parser.add_argument("--smoke", action="store_true", help="few letters, within a minute")
    arguments = parser.parse_args(argv)
    if arguments.data == "":
        parser.error("--data is empty: give a folder or a file, or leave it out for letters")
    if arguments.data and (arguments.smoke or arguments.documents):
        parser.error("--smoke and --documents are for the generated letters, without --data")
    check_seed(parser, arguments)
    names = ["runs", "embedding", "units", "epochs", "batch_size", "cells", "longest", "min_count"]
    check_at_least_one(parser, arguments, [*names, "documents"])
    ranges = {"dropout": 1, "word_dropout": 1, "learning_rate": float("inf")}
    check_ranges(parser, arguments, ranges)
    if not arguments.data and arguments.longest < letters.LONGEST:
        parser.error(
            f"--longest must be at least {letters.LONGEST} for letters, or the deciding sentence "
            f"of some would be two; received {arguments.longest}"
        )
    if arguments.smoke:
        fill(arguments, {"documents": 2000, "epochs": 4, "pooling": ["attention"]})
    fill(arguments, {name: values[not arguments.data] for name, values in DEFAULTS.items()})
    fill(arguments, {"runs": arguments.folds})
    if arguments.folds < 2 or arguments.runs > arguments.folds:
        parser.error(
            f"--folds must be at least 2, and --runs no more; received {arguments.folds} and "
            f"{arguments.runs}"
        )
    return arguments


def main(argv=None):
    arguments = parse(argv)
    check_extras("tensorflow_text", "matplotlib")
    texts, deciding = load_data(arguments)
    settings = {
        name: value
        for name, value in vars(arguments).items()
        if name not in ("data", "pooling", "runs", "output", "smoke", "documents")
    }
    listed = json.dumps([document[1:] for document in texts], ensure_ascii=False)
    settings["training data"] = fingerprint(listed.encode())
    settings["backend"] = keras.backend.backend()
    output = make_folder(pathlib.Path(arguments.output))
    folders = {pooling: make_folder(output / pooling) for pooling in arguments.pooling}
    results = Results(output / "results.json", settings)
    task = Folds(texts, arguments.folds, arguments.longest, arguments.min_count)
    if task.empty:
        print(f"{task.empty:,} documents without a word; they are kept, as vectors of zeros")
    with Interrupt() as interrupt:
        # All poolings of a fold before the next fold, so that a part of the table can be compared.
        for number in range(arguments.runs):
            for pooling in arguments.pooling:
                folder = folders[pooling]
                if not results.find(pooling=pooling, fold=number + 1):
                    given = task, deciding, settings, pooling, number, folder, interrupt
                    results.add(run_fold(*given))
                shutil.rmtree(folder / f"fold-{number + 1}", ignore_errors=True)
                if interrupt.asked:
                    raise SystemExit("stopped after this fold; the same command goes on.")
    report(results, arguments, task)


def report(results, arguments, task):
    folds, found = range(1, arguments.runs + 1), {}
    print(
        f"\n{len(task.texts):,} documents, {len(folds)} of {arguments.folds} folds; mean and "
        "standard deviation over them"
    )
    for pooling in arguments.pooling:
        entries = [results.find(pooling=pooling, fold=fold) for fold in folds]
        found[pooling] = np.array([entry["accuracy"] for entry in entries])
        print(f"{pooling}: accuracy {spread(found[pooling])}%")
        if "deciding" in entries[0]:
            deciding = np.mean([entry["deciding"] for entry in entries])
            print(f"  the sentence with the largest weight decides in {deciding:.1f}%")
    for pooling in arguments.pooling:
        if "attention" in found and pooling != "attention":
            print(f"attention over {pooling}: {spread(found['attention'] - found[pooling])} points")
    if arguments.smoke and min(scores.mean() for scores in found.values()) < 90:
        raise SystemExit("smoke run: expected at least 90% right")


def spread(values):
    return f"{values.mean():.2f}" + (f" ± {values.std(ddof=1):.2f}" if len(values) > 1 else "")


if __name__ == "__main__":
    main()
