"""Trains one fold of the cross-validation, and tests it."""

import sys
import time

import keras
import numpy as np

from examples.common.batching import budgeted
from examples.common.checkpoint import Checkpoint
from examples.common.schedules import warmup_cosine
from examples.common.seeds import reseed, seed_model
from examples.documents.export import choose, save
from examples.documents.model import build_model
from examples.documents.outputs import padded, padded_sizes, read
from examples.documents.prior import prepare
from examples.documents.reasons import describe, measure


def run_fold(task, deciding, settings, pooling, number, output, interrupt):
    """Trains on all folds but one and tests on that one: an entry of the results.

    Args:
        task: `Folds`.
        deciding: the number of the deciding sentence of each document, or None.
        settings: a dictionary with the options of the training.
        pooling: one of `model.POOLINGS`.
        number: the fold to test on, counted from 0.
        output: the folder for the results.
        interrupt: an `Interrupt`.
    """
    settings = {**settings, "pooling": pooling, "fold": number + 1}
    data, vocabulary, _, outside = task.split(number)
    folder = output / f"fold-{number + 1}"
    model, reader, history = trained(task, settings, folder, interrupt)
    found = read(reader, data, outside, settings)
    guesses = np.argmax(found["probabilities"], axis=1)
    right = guesses == data.labels[outside]
    entry = {
        "pooling": pooling,
        "fold": number + 1,
        "accuracy": 100 * float(right.mean()),
        "documents": len(outside),
        "parameters": model.count_params(),
        "epoch_seconds": float(np.mean([e["seconds"] for e in history])),
    }
    if deciding is not None and pooling == "attention":
        largest = [weights.argmax() for weights in found["sentence_weights"]]
        entry["deciding"] = 100 * float(np.mean(largest == np.array(deciding)[outside]))
    print(f"  accuracy {entry['accuracy']:.2f}%", flush=True)
    if number == 0:
        other = None
        if settings["agreement"]:
            again = {**settings, "seed": (settings["seed"] + 1) % 2**32}
            _, other, _ = trained(task, again, folder / "agreement", interrupt)
        note = ""
        if task.has_words(number):
            entry["reasons"] = measure(model, reader, other, task, number, outside, settings)
            note = describe(entry["reasons"], number, len(outside))
            print(note, flush=True)
        chosen = choose(right, outside, data.labels)
        save(reader, vocabulary, task, data, chosen, note, output)
    return entry


def trained(task, settings, folder, interrupt):
    """Builds and trains the models of a fold: the model, the reader, the history of the epochs."""
    data, vocabulary, inside, outside = task.split(settings["fold"] - 1)
    pooling, words, classes = settings["pooling"], vocabulary.size, len(task.classes)
    seed_model((settings["seed"] + settings["fold"] - 1) % 2**32)
    if settings["encoder"] == "ngrams":
        model, reader = prepare(words, classes, data, inside, pooling, settings)
    else:
        names = ("embedding", "units", "dropout", "word_dropout")
        shape = {name: settings[name] for name in names}
        vectors = task.word_vectors(settings["fold"] - 1, settings["seed"])
        if vectors is not None:
            shape.update(embedding=vectors.shape[1], vectors=vectors)
        model, reader = build_model(words, classes, pooling, settings["encoder"], **shape)
    print(
        f"\n{pooling}, fold {settings['fold']} of {settings['folds']}: {model.count_params():,} "
        f"parameters, {vocabulary.size - 2:,} words, {len(inside):,} documents to train on, "
        f"{len(outside):,} to test on",
        flush=True,
    )
    checkpoint = Checkpoint(folder, settings)
    train(model, data, inside, settings, checkpoint, interrupt)
    return model, reader, checkpoint.state["history"]


def train(model, data, chosen, settings, checkpoint, interrupt):
    """Trains on the documents `chosen` to the end, or resumes an earlier run."""
    sizes = padded_sizes(data, chosen)

    def batches(epoch):
        # The order depends on the epoch alone, so a resumed run has the same one.
        order = np.random.default_rng([settings["seed"], epoch])
        made = budgeted(sizes, settings["batch_size"], settings["cells"], order)
        return [chosen[batch] for batch in made]

    steps = settings["epochs"] * len(batches(0))
    labels = np.eye(model.output.shape[1], dtype="float32")[data.labels]
    compile_model(model, settings, steps)
    done = checkpoint.restore(model)
    for epoch in range(done, settings["epochs"]):
        reseed(model, settings["seed"], epoch)
        start, epoch_batches = time.perf_counter(), batches(epoch)
        losses, right = 0.0, 0.0
        for step, batch in enumerate(epoch_batches, 1):
            model.reset_metrics()
            logs = model.train_on_batch(padded(data, batch), labels[batch], return_dict=True)
            losses += float(logs["loss"]) * len(batch) / len(chosen)
            right += float(logs["accuracy"]) * len(batch) / len(chosen)
            if interrupt.asked and step < len(epoch_batches):
                raise SystemExit(
                    f"stopped; {epoch} of {settings['epochs']} epochs of this fold are saved. Run "
                    "the same command to resume."
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


def compile_model(model, settings, steps):
    """Gives the model the optimizer and the loss of its encoder."""
    rate = settings["learning_rate"]
    if settings["encoder"] == "ngrams":
        # Keras averages the loss over the classes; the rate is for their sum.
        rate = warmup_cosine(rate * model.output.shape[1], steps, last=0.0)
        # Adam's equal steps would teach rare n-grams as much as frequent ones.
        optimizer = keras.optimizers.SGD(rate, momentum=0.9)
        loss = keras.losses.SquaredHinge()
    else:
        rate = warmup_cosine(rate, steps, last=0.05)
        optimizer = keras.optimizers.Adam(rate, global_clipnorm=1.0)
        loss = keras.losses.CategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, metrics=["accuracy"])
