"""Trains the translators, and translates the test set with them."""

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
from examples.common.directions import combine, direction
from examples.common.files import fingerprint
from examples.common.schedules import warmup_cosine
from examples.common.seeds import reseed, seed_model
from examples.translation.data import (
    END,
    PAD,
    START,
    as_dataset,
    encode,
    make_batches,
    make_tokenizers,
    reverse_batches,
)
from examples.translation.evaluation import accuracy, score
from examples.translation.model import build_model
from examples.translation.rounds import make_rounds
from examples.translation.search import compare_searches, translate
from keras_attention import Seq2Seq

# The options that change no weight.
FREE = (
    *("output", "train", "shards", "valid", "test", "ensemble", "backward", "compare_searches"),
    *("beam", "length_penalty", "coverage_penalty", "no_repeat_ngram_size"),
)


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


def run(texts, subwords, arguments):
    """Trains the models, and translates the test set.

    Returns:
        The model or the ensemble, the most tokens of a translation, the translations, and a summary
        of the run.
    """
    models, longest, summaries = zip(
        *(learn(*member, texts, subwords, arguments) for member in members(arguments)), strict=True
    )
    tokenizers, (sources, targets) = make_tokenizers(subwords), texts["test"]
    options = search_options(arguments)

    def measure(model, backward=False):
        return translate(model, tokenizers, sources, longest[0], backward, **options)

    ahead = len(models) - arguments.backward
    model = combine(models[:ahead], models[ahead:])
    start = time.perf_counter()
    translations = measure(model)
    summary = {
        "attention": arguments.attention
        + (" with input feeding" if arguments.input_feeding else ""),
        "command": command_line("translation"),
        "keras": keras.__version__,
        "tensorflow": tf.__version__,
        "parameters": sum(x.count_params() for x in models),
        **summaries[0],
        "search_seconds": time.perf_counter() - start,
        "exact": accuracy(translations, targets),
    }
    if len(models) > 1:
        pairs = zip(models, summaries, strict=True)
        scores = [score(measure(x, of["backward"]), targets, arguments) for x, of in pairs]
        pairs = zip(summaries, scores, strict=True)
        summary["ensemble"] = {
            "members": [{**of, "score": x} for of, x in pairs],
            "mean": float(np.mean(scores)),
            "score": score(translations, targets, arguments),
        }
    if arguments.compare_searches:
        summary["searches"] = compare_searches(
            model, tokenizers, texts["test"], longest[0], arguments
        )
    return model, longest[0], translations, summary


def learn(seed, backward, texts, subwords, arguments):
    """Trains one model, or resumes. Returns it, the longest target, and a summary."""
    seed_model(seed)
    tokenizers = make_tokenizers(subwords)
    settings = {**vars(arguments), "seed": seed}
    rounds = make_rounds(texts["train"], tokenizers, settings)
    valid = [encode(*side) for side in zip(tokenizers, texts["valid"], strict=True)]
    for kind, pairs in (("training", rounds.identity), ("validation", valid)):
        settings[f"{kind} pairs"] = fingerprint(json.dumps(pairs).encode())
    for free in FREE:
        settings.pop(free)
    if backward:
        settings["backward"] = True
    folder = checkpoint_folder(seed, backward, arguments)
    checkpoint = Checkpoint(folder, settings, rounds.unit)
    model = make_model(tokenizers, arguments)
    print(
        f"\nattention: {arguments.attention}, {direction(backward)}, seed {seed}, "
        f"{model.count_params():,} parameters",
        flush=True,
    )
    state = train(model, rounds, valid, settings, checkpoint)
    # The files of a model without an optimizer are a third as large.
    model = make_model(tokenizers, arguments)
    checkpoint.load_best(model)
    summary = {
        "seed": seed,
        "backward": backward,
        **rounds.speed(state["history"]),
        f"best_{rounds.unit}": state["best"],
        "validation_perplexity": float(np.exp(min(x["valid_loss"] for x in state["history"]))),
    }
    return model, rounds.longest, summary


def members(arguments):
    """The seed of each model, and whether it writes from right to left, as the last ones do."""
    ahead = arguments.ensemble - arguments.backward
    return [(arguments.seed + number, number >= ahead) for number in range(arguments.ensemble)]


def checkpoint_folder(seed, backward, arguments):
    """The folder for the checkpoints of one model."""
    name = f"checkpoint-{arguments.attention}{'-backward' * backward}"
    member = f"-seed-{seed}" if seed != arguments.seed else ""
    return pathlib.Path(arguments.output) / f"{name}{member}"


def search_options(arguments):
    """The options of `generate`. A search in both directions has no coverage penalty."""
    names = ["length_penalty", "no_repeat_ngram_size"]
    names += ["coverage_penalty"] if arguments.coverage_penalty else []
    return {"beam_width": arguments.beam, **{name: getattr(arguments, name) for name in names}}


def make_model(tokenizers, arguments):
    """Builds the model for the options of the command."""
    return build_model(
        arguments.attention,
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
    """Trains to the end, or resumes an earlier run. The checkpoint keeps the best weights.

    Args:
        model: what `build_model` returns.
        rounds: `Epochs` or `Stream`.
        valid: lists of ids of the sources and of the targets to validate on.
        arguments: a dictionary with the options of the training.
        checkpoint: a `Checkpoint` with the unit of `rounds`.
    """
    compile_model(model, rounds.steps, arguments)
    # A second model of the same parts measures the validation loss without smoothing. As a metric
    # of the training, it would take a tenth of the time.
    parts = model.encoder, model.decoder, model.target_embedding, model.head
    judge = Seq2Seq(*parts, START, END, PAD)
    metric = keras.metrics.SparseCategoricalCrossentropy(from_logits=True, name="nats")
    judge.compile(metrics=[metric])
    size = arguments["batch_size"]
    turn = reverse_batches if "backward" in arguments else iter
    checked = as_dataset(lambda: turn(make_batches(*valid, size)), -(-len(valid[0]) // size))

    done = checkpoint.restore(model)
    if done:
        rounds.restore(checkpoint.state["history"][-1])
    while done < rounds.total:
        reseed(model, arguments["seed"], done)
        done, steps, batches = rounds.next(done)
        start = time.perf_counter()
        verbose = 1 if sys.stdout.isatty() else 0
        data = as_dataset(lambda: turn(batches()), steps)  # noqa: B023
        history = model.fit(data, shuffle=False, verbose=verbose)
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
    return checkpoint.state
