"""Document classification that shows its reasons (HAN; Yang, Yang, Dyer, He, Smola and Hovy, 2016).

    python examples/classify.py

learns from generated letters to a shop what their writers want, which one sentence of each decides,
in about two minutes on two cores; at least 98% of unseen letters are classified rightly, and the
sentence with the largest weight is the deciding one in at least 95% of them. It writes a page that
shows which words and sentences were read, a picture of it, a `.keras` file and a SavedModel from
raw text to classes and weights, which a process without keras then runs.

    python examples/classify.py --data DIR --pooling attention average max

does the same on your documents by cross-validation: DIR has one sub-folder a class and in it a file
a document, or it is a file with lines like {"text": "...", "label": "..."}. Attention is compared
with the average and the maximum on the same encoders. A run that was stopped, by Ctrl-C or a kill,
goes on when it is started again with the same arguments. Measured figures are in docs/results.md.
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
from checkpoint import Checkpoint, Interrupt, Results, fingerprint, make_folder, reseed
from extras import check_extras
from han import ENCODERS, POOLINGS, build_model
from pages import Reading, Sentence, draw_document, write_page
from schedules import warmup_cosine
from serving import ask_saved_model, write_model, write_saved_model
from tokens import Words, count_tokens

if keras.backend.backend() != "tensorflow":
    # Only text is left to TensorFlow; it would take the memory of the GPU.
    tf.config.set_visible_devices([], "GPU")
# Sizes are padded to multiples of this. A program of XLA has fixed shapes: few of them there.
COMPILED = keras.backend.backend() != "tensorflow" or tf.config.list_physical_devices("GPU")
MULTIPLE = 16 if COMPILED else 1


# --- data ----------------------------------------------------------------------------------------


def load_data(arguments):
    """Documents, and for generated ones the number of the sentence that decides each."""
    if not arguments.data:
        return letters.make(arguments.documents, arguments.seed)
    found = documents.read(arguments.data)
    counts = collections.Counter(document.label for document in found)
    listed = ", ".join(f"{count:,} {label}" for label, count in sorted(counts.items()))
    print(f"{arguments.data}: {len(found):,} documents ({listed})")
    small = min(counts, key=counts.get)
    if counts[small] < arguments.folds:
        raise SystemExit(
            f"{arguments.data}: the class {small!r} has {counts[small]} documents, fewer than the "
            f"{arguments.folds} folds. Give --folds {max(counts[small], 2)}, or more documents. "
            "Nothing was written."
        )
    return found, None


def split_folds(labels, folds):
    """The fold of each document: consecutive blocks of each class in the given order.

    In the order of file names these are, for ten folds, those of the movie reviews' authors.
    """
    fold = np.zeros(len(labels), int)
    for label in np.unique(labels):
        where = np.flatnonzero(labels == label)
        fold[where] = np.arange(len(where)) * folds // len(where)
    return fold


# --- training ------------------------------------------------------------------------------------


def train(model, data, chosen, settings, checkpoint, interrupt):
    """Trains on the documents `chosen` to the end, or goes on with an earlier run."""
    sizes = data.sizes[chosen]

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
        weighted_metrics=["accuracy"],
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
            if interrupt.asked:
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
    sizes = data.sizes[chosen]
    found = collections.defaultdict(lambda: [None] * len(chosen))
    for batch in budgeted(sizes, settings["batch_size"], settings["cells"]):
        outputs = reader.predict_on_batch(data.padded(chosen[batch], MULTIPLE))
        for name, values in outputs.items():
            for n, value in zip(batch, values, strict=True):
                found[name][n] = value
    return found


# --- cross-validation ----------------------------------------------------------------------------


class Task:
    """Encoded documents in folds; every fold has a vocabulary of its own training documents."""

    def __init__(self, texts, deciding, settings):
        self.texts, self.settings = texts, settings
        self.deciding = None if deciding is None else np.array(deciding)
        lines = [document.text for document in texts]
        labels = np.array([document.label for document in texts])
        self.classes, numbers = np.unique(labels, return_inverse=True)
        self.folds = split_folds(numbers, settings["folds"])
        self.words = np.array([*count_tokens(lines)[0]])
        self.data = documents.encode(lines, numbers, Words(self.words), settings["longest"])
        self.empty = int((self.data.sizes[:, 0] == 0).sum())

    def fold(self, number):
        """Encoded documents, the `Words` of a fold, and the numbers of both kinds of documents."""
        train, test = np.flatnonzero(self.folds != number), np.flatnonzero(self.folds == number)
        words = self.data.words
        owner = np.repeat(self.folds, np.diff(self.data.sentences[self.data.documents]))
        counts = np.bincount(words[owner != number], minlength=len(self.words) + 2)
        counts[[0, -1]] = 0
        kept = np.argsort(-counts, kind="stable")[: (counts >= self.settings["min_count"]).sum()]
        ids = np.full(len(counts), len(kept) + 1, "int32")
        ids[kept] = np.arange(1, len(kept) + 1)
        vocabulary = Words(self.words[kept - 1])
        return self.data._replace(words=ids[words]), vocabulary, train, test


def run_fold(task, pooling, number, output, interrupt):
    """Trains on all folds but one and tests on that: an entry of the results."""
    settings = {**task.settings, "pooling": pooling, "fold": number + 1}
    data, vocabulary, inside, outside = task.fold(number)
    # Here, so that it does not matter what was trained before.
    keras.utils.set_random_seed(settings["seed"] + number)
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
    if task.deciding is not None:
        largest = [weights.argmax() for weights in found["sentence_weights"]]
        entry["deciding"] = 100 * float(np.mean(largest == task.deciding[outside]))
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
        return {
            "classes": tf.constant(classes),
            **{name: value[:size] for name, value in result.items()},
        }

    return serve


def save(reader, vocabulary, task, data, shown, output):
    """The `.keras` file, the SavedModel, the page and the picture of the documents `shown`."""
    ids = data.padded(shown, MULTIPLE)
    write_model(reader, output / "model.keras", ids)
    if keras.backend.backend() != "tensorflow":
        print("The SavedModel is written with the TensorFlow backend: start the command with it.")
        return
    serve = make_serve(reader, vocabulary, task.classes, task.settings["longest"])
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
    write_page(output / "documents.html", "Which words and sentences were read", readings)
    draw_document(output / "document.png", readings[0])
    print(f"{output / 'documents.html'}: documents with words and sentences coloured by weight")


def choose(right, outside, labels, count=4):
    """Of the tested documents some of each class that were classified rightly, and some wrongly."""
    groups = [outside[right & (labels[outside] == label)] for label in np.unique(labels)]
    return np.concatenate([group[:count] for group in (*groups, outside[~right])])


def reading(document, reply, row):
    """One document of a reply of the SavedModel, with the text between its words."""
    text, last, sentences = document.text.encode(), 0, []
    names = ("words", "start_byte", "end_byte", "word_weights", "sentence_weights")
    for *sentence, weight in zip(*(reply[name][row] for name in names), strict=True):
        words, gaps, weights = [], [], []
        for word, begin, end, value in zip(*sentence, strict=True):
            if word:
                words.append(word)
                gaps.append(text[last:begin].decode())
                weights.append(value)
                last = end
        if words:
            sentences.append(Sentence(weight, words, weights, gaps))
    probability = max(reply["probabilities"][row])
    return Reading(document.name, document.label, reply["label"][row], probability, sentences)


# --- command line --------------------------------------------------------------------------------


def parse(argv):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", metavar="PATH", help="a folder of folders, or a JSON-lines file")
    parser.add_argument(
        "--pooling", nargs="+", choices=POOLINGS, default=["attention"], help="one or more"
    )
    parser.add_argument("--encoder", choices=ENCODERS, default="gru", help="of words and sentences")
    parser.add_argument("--folds", type=int, help="default: 10; letters: 5")
    parser.add_argument("--runs", type=int, help="folds that are run (default: all; letters: 1)")
    parser.add_argument("--embedding", type=int, help="width of a word (default: 64; letters: 32)")
    parser.add_argument("--units", type=int, help="of a GRU (default: 32; letters: 24)")
    parser.add_argument("--epochs", type=int, help="default: 6; letters: 5")
    parser.add_argument("--batch-size", type=int, default=32, help="documents, at most")
    parser.add_argument(
        "--cells", type=int, default=40_000, help="words of a padded batch, at most"
    )
    parser.add_argument("--longest", type=int, default=25, help="words of a sentence, at most")
    parser.add_argument("--min-count", type=int, help="of a known word (default: 5; letters: 1)")
    parser.add_argument("--learning-rate", type=float, help="default: 0.003; letters: 0.005")
    parser.add_argument("--dropout", type=float, help="default: 0.5; letters: 0.1")
    parser.add_argument("--word-dropout", type=float, help="default: 0.1; letters: 0")
    parser.add_argument("--documents", type=int, default=5_000, help="number of letters")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", default="output/classify", help="where results are written")
    parser.add_argument("--smoke", action="store_true", help="letters, within a minute")
    arguments = parser.parse_args(argv)
    if arguments.data == "":
        parser.error("--data is empty: give a folder or a file, or leave it out for letters")
    if arguments.smoke and arguments.data:
        parser.error("--smoke runs on the generated letters, without --data")
    check_seed(parser, arguments)
    names = ["runs", "embedding", "units", "epochs", "batch_size", "cells", "longest", "min_count"]
    check_at_least_one(parser, arguments, names)
    ranges = {"dropout": 1, "word_dropout": 1, "learning_rate": float("inf")}
    check_ranges(parser, arguments, ranges)
    if arguments.data:
        defaults = {"folds": 10, "embedding": 64, "units": 32, "epochs": 6, "min_count": 5}
        defaults |= {"learning_rate": 0.003, "dropout": 0.5, "word_dropout": 0.1}
    else:
        defaults = {"folds": 5, "embedding": 32, "units": 24, "epochs": 5, "min_count": 1}
        defaults |= {"learning_rate": 0.005, "dropout": 0.1, "word_dropout": 0.0, "runs": 1}
    fill(arguments, defaults)
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
    settings["documents"] = fingerprint(listed.encode())
    output = make_folder(pathlib.Path(arguments.output))
    results = Results(output / "results.json", settings)
    task = Task(texts, deciding, settings)
    if task.empty:
        print(f"{task.empty:,} documents without a word; they are kept, as vectors of zeros")
    with Interrupt() as interrupt:
        # All poolings of a fold before the next fold, so that a part of the table can be compared.
        for number in range(arguments.runs):
            for pooling in arguments.pooling:
                if not results.find(pooling=pooling, fold=number + 1):
                    folder = make_folder(output / pooling)
                    results.add(run_fold(task, pooling, number, folder, interrupt))
                    shutil.rmtree(folder / f"fold-{number + 1}")
    report(results, arguments, task)


def report(results, arguments, task):
    folds, poolings = range(1, arguments.runs + 1), arguments.pooling
    found = {p: [results.find(pooling=p, fold=fold) for fold in folds] for p in poolings}
    print(f"\n{len(folds)} of {arguments.folds} folds, {len(task.texts):,} documents")
    for pooling, entries in found.items():
        scores = np.array([entry["accuracy"] for entry in entries])
        spread = f" +- {scores.std(ddof=1):.2f}" if len(scores) > 1 else ""
        print(f"{pooling}: accuracy {scores.mean():.2f}%{spread}")
        if "deciding" in entries[0]:
            print(
                f"  in {np.mean([e['deciding'] for e in entries]):.1f}% the sentence with the "
                "largest weight is the one that decides"
            )


if __name__ == "__main__":
    main()
