"""Trains one translator, and translates the test set with it."""

import json
import pathlib
import sys
import time

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from examples.common.arguments import command_line
from examples.common.checkpoint import Checkpoint
from examples.common.files import fingerprint
from examples.common.schedules import warmup_cosine
from examples.common.seeds import reseed, seed_model
from examples.translation.data import as_dataset, encode, make_batches, make_tokenizers
from examples.translation.evaluation import accuracy
from examples.translation.model import build_model
from examples.translation.rounds import make_rounds
from examples.translation.search import Translator, translate


class SmoothedCrossEntropy(keras.losses.Loss):
    """Cross-entropy of every token against (1 - s) of the target id plus s spread over all ids."""

    def __init__(self, smoothing=0.1):
        super().__init__(reduction="mean_with_sample_weight")
        self.smoothing = smoothing

    def call(self, y_true, y_pred):
        y_true = ops.one_hot(ops.cast(y_true, "int32"), y_pred.shape[-1])
        return keras.losses.categorical_crossentropy(
            y_true, y_pred, from_logits=True, label_smoothing=self.smoothing
        )


def run(name, texts, subwords, arguments):
    """Trains one model and translates the test set.

    Returns:
        The translator, its translations, and a summary of the run.
    """
    output = pathlib.Path(arguments.output)
    seed_model(arguments.seed)
    tokenizers = make_tokenizers(subwords)
    rounds = make_rounds(texts["train"], tokenizers, vars(arguments))
    data = {
        part: [encode(*side) for side in zip(tokenizers, texts[part], strict=True)]
        for part in ("valid", "test")
    }
    settings = {
        **vars(arguments),
        "attention": name,
        "training pairs": fingerprint(json.dumps(rounds.identity).encode()),
        "validation pairs": fingerprint(json.dumps(data["valid"]).encode()),
    }
    for free in ("output", "beam", "train", "shards", "valid", "test"):
        settings.pop(free)
    checkpoint = Checkpoint(output / f"checkpoint-{name}", settings, rounds.unit)
    model = make_model(name, tokenizers, arguments)
    print(f"\nattention: {name}, {model.count_params():,} parameters", flush=True)
    state = train(model, rounds, data["valid"], settings, checkpoint)
    translator = Translator(model, arguments.beam, max_length=rounds.longest)
    start = time.perf_counter()
    translations = translate(translator, tokenizers, texts["test"][0])
    summary = {
        "attention": name + (" with input feeding" if arguments.input_feeding else ""),
        "command": command_line("translation"),
        "keras": keras.__version__,
        "tensorflow": tf.__version__,
        "parameters": model.count_params(),
        **rounds.speed(state["history"]),
        f"best_{rounds.unit}": state["best"],
        "validation_perplexity": float(np.exp(min(x["valid_loss"] for x in state["history"]))),
        "search_seconds": time.perf_counter() - start,
        "exact": accuracy(translations, texts["test"][1]),
    }
    return translator, translations, summary


def make_model(name, tokenizers, arguments):
    """Builds the model with this attention for the options of the command."""
    return build_model(
        name,
        *(int(tokenizer.vocab_size()) for tokenizer in tokenizers),
        arguments.units,
        arguments.embedding,
        arguments.dropout,
        arguments.window,
        arguments.input_feeding,
    )


def compile_model(model, steps, arguments):
    """Compiles the model for so many steps of training."""
    rate = warmup_cosine(arguments["learning_rate"], steps, last=0.01)
    model.compile(
        keras.optimizers.Adam(rate, global_clipnorm=1.0),
        SmoothedCrossEntropy(arguments["smoothing"]),
    )


def train(model, rounds, valid, arguments, checkpoint):
    """Trains to the end, or resumes an earlier run. Leaves the best weights in the model.

    Args:
        model: what `build_model` returns.
        rounds: `Epochs` or `Stream`.
        valid: lists of ids of the sources and of the targets to validate on.
        arguments: a dictionary with the options of the training.
        checkpoint: a `Checkpoint` with the unit of `rounds`.
    """
    compile_model(model, rounds.steps, arguments)
    # A second model on the same layers measures the validation loss without smoothing.
    judge = keras.Model(model.inputs, model.outputs)
    metric = keras.metrics.SparseCategoricalCrossentropy(from_logits=True, name="nats")
    judge.compile(loss=SmoothedCrossEntropy(0.0), weighted_metrics=[metric])
    size = arguments["batch_size"]
    checked = as_dataset(lambda: make_batches(*valid, size), -(-len(valid[0]) // size))

    done = checkpoint.restore(model)
    if done:
        rounds.restore(checkpoint.state["history"][-1])
    while done < rounds.total:
        reseed(model, arguments["seed"], done)
        done, steps, batches = rounds.next(done)
        start = time.perf_counter()
        verbose = 1 if sys.stdout.isatty() else 0
        history = model.fit(as_dataset(batches, steps), shuffle=False, verbose=verbose)
        seconds = time.perf_counter() - start
        loss = judge.evaluate(checked, verbose=0, return_dict=True)["nats"]
        entry = {
            rounds.unit: done,
            "train_loss": history.history["loss"][0],
            "valid_loss": loss,
            "seconds": seconds,
            **rounds.state,
        }
        checkpoint.save(model, entry)
        print(
            f"{rounds.unit} {done:,}/{rounds.total:,}: training loss {entry['train_loss']:.4f}, "
            f"validation perplexity {np.exp(loss):.3f}, {seconds:.0f} s",
            flush=True,
        )
    checkpoint.load_best(model)
    return checkpoint.state
