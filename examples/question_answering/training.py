"""Trains one model, and answers the test set with it."""

import contextlib
import pathlib
import sys
import time

import keras
import numpy as np
from keras import ops

from examples.common.arguments import command_line
from examples.common.checkpoint import Checkpoint
from examples.common.files import fingerprint
from examples.common.interrupt import Interrupt
from examples.common.schedules import warmup_cosine
from examples.common.seeds import reseed, seed_model
from examples.question_answering.evaluation import answer
from examples.question_answering.model import build_model
from examples.question_answering.scoring import evaluate


def run(flow, data, test, sizes, vectors, arguments):
    """Trains one model and answers the test set: the model, its answers, a summary.

    Args:
        flow: one of `model.FLOWS`.
        data, test: `Questions` to train on and to test on.
        sizes: the numbers of ids of words and of characters.
        vectors: word vectors that stay fixed, or None.
        arguments: the parsed command line.
    """
    steps = arguments.steps or 12 * -(-len(data.examples) // arguments.batch_size)
    settings = {**vars(arguments), "flow": flow, "steps": steps}
    for free in ("output", "save_every", "vectors", "smoke", "max_answer", "data"):
        settings.pop(free)
    arrays = [*data.passages, *data.questions, data.passage_of, data.spans]
    settings["training data"] = fingerprint(*arrays, *([] if vectors is None else [vectors]))
    checkpoint = Checkpoint(
        pathlib.Path(arguments.output) / flow / "checkpoint", settings, unit="step"
    )
    seed_model(arguments.seed)
    model, answerer = build_model(
        sizes, arguments.units, flow, arguments.dropout, arguments.max_answer, vectors
    )
    print(
        f"\nattention: {flow}, {model.count_params():,} parameters, {len(data.examples):,} "
        f"questions to train on, {len(test.examples):,} to test on",
        flush=True,
    )
    # These scores only show the progress; no choice depends on them.
    sample = np.random.default_rng(0).permutation(len(test.examples))[:1000]

    def watch(epoch):
        score = evaluate(answer(answerer, test, chosen=sample), [test.examples[n] for n in sample])
        print(
            f"epoch {epoch}: exact match {score['exact_match']:.1f}, F1 {score['f1']:.1f} "
            f"of {len(sample):,} test questions",
            flush=True,
        )

    every = arguments.save_every
    state = train(model, data, settings, checkpoint, every, watch if arguments.data else None)
    start = time.perf_counter()
    answers = answer(answerer, test)
    summary = {
        "attention": flow,
        "command": command_line("question_answering"),
        "keras": keras.__version__,
        "backend": keras.backend.backend(),
        "parameters": model.count_params(),
        "steps": steps,
        "epochs": steps * arguments.batch_size / len(data.examples),
        "seconds_a_step": float(np.median([e["seconds_a_step"] for e in state["history"]])),
        "answer_seconds": time.perf_counter() - start,
        **evaluate(answers, test.examples),
    }
    return answerer, answers, summary


def train(model, data, settings, checkpoint, every, watch=None):
    """Trains to the end, or resumes an earlier run. Leaves the averaged weights in the model.

    Args:
        model: what `build_model` returns first.
        data: the `Questions` to train on.
        settings: a dictionary with the options of the training.
        checkpoint: a `Checkpoint` that counts steps.
        every: the number of steps after which a checkpoint is written.
        watch: a function to call with the number of each epoch but the last, to show the progress.
    """
    cross_entropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(make_optimizer(settings), [cross_entropy, cross_entropy])
    done, steps = checkpoint.restore(model), settings["steps"]
    size, seed = settings["batch_size"], settings["seed"]
    epoch_steps = -(-len(data.examples) // size)
    losses, clock, before = [], time.perf_counter(), done
    epoch, batches = None, []
    with Interrupt() as interrupt:
        for step in range(done, steps):
            if step // epoch_steps != epoch:
                epoch = step // epoch_steps
                # The order depends on the epoch alone, so a resumed run has the same one.
                batches = data.batches(size, np.random.default_rng([seed, epoch]))
            batch = batches[step % epoch_steps]
            reseed(model, seed, step)
            model.reset_metrics()
            targets = [data.spans[batch, side] for side in (0, 1)]
            losses.append(float(model.train_on_batch(data.inputs(batch), targets)[0]))
            if not np.isfinite(losses[-1]):
                raise SystemExit(
                    f"the training diverged: loss {losses[-1]} in step {step + 1}. Choose a lower "
                    "--learning-rate and another --output."
                )
            done, stop = step + 1, interrupt.asked
            seconds = (time.perf_counter() - clock) / (done - before)
            place = f"step {done:,}/{steps:,}, epoch {done / epoch_steps:.2f}"
            rest = f"{seconds:.2f} s a step, {(steps - done) * seconds / 60:.0f} min left"
            save = done % every == 0 or done == steps or stop
            if save:
                entry = {"step": done, "loss": float(np.mean(losses)), "seconds_a_step": seconds}
                checkpoint.save(model, entry)
                print(f"{place}: loss {entry['loss']:.4f}, {rest}", flush=True)
            elif sys.stdout.isatty():
                print(f"{place}: {rest}", end="          \r", flush=True)
            if stop and done < steps:
                raise SystemExit(
                    f"stopped and saved after step {done:,} of {steps:,}; run the same command to "
                    "resume."
                )
            if watch and done % epoch_steps == 0 and done < steps:
                with averaged(model):
                    watch(done // epoch_steps)
            if save:
                losses, clock, before = [], time.perf_counter(), done
    take_averages(model)
    return checkpoint.state


def make_optimizer(settings):
    options = {"use_ema": True, "ema_momentum": settings["average"]}
    if settings["optimizer"] == "adadelta":
        return keras.optimizers.Adadelta(settings["learning_rate"], **options)
    rate = warmup_cosine(settings["learning_rate"], settings["steps"], last=0.05)
    return keras.optimizers.Adam(rate, global_clipnorm=5.0, **options)


def take_averages(model):
    """Replaces the weights by their moving averages."""
    model.optimizer.finalize_variable_values(model.trainable_variables)
    for variable in model.trainable_variables:
        # A copy: on JAX weight and average would share a buffer, which the next step deletes.
        variable.assign(np.array(ops.convert_to_numpy(variable)))


@contextlib.contextmanager
def averaged(model):
    """Replaces the weights by their moving averages inside a `with` block."""
    kept = [np.array(ops.convert_to_numpy(v)) for v in model.trainable_variables]
    take_averages(model)
    try:
        yield
    finally:
        for variable, value in zip(model.trainable_variables, kept, strict=True):
            variable.assign(value)
