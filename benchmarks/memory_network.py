"""Measures a training step of the memory network before and after compilation.

    python benchmarks/memory_network.py [--json FILE]

The benchmark trains the model of `python -m examples.stories`, with its optimizer, on random
stories. It first checks that all modes arrive at the same weights. Then it measures a whole step
(`train_on_batch`), and the first call, which traces and compiles:

    eager     operation by operation
    graph     a TensorFlow graph
    XLA       compiled, as in `fit` of the task
    XLA, 28   28 steps per execution, as in `fit` of the task

One size is a task of bAbI: 50 sentences of 6 words, 40 different words, 20 units. The other is all
tasks together: sentences of 11 words, 180 different words, 50 units. Both have 3 hops and batches
of 32 questions. The command takes about a minute on two cores.
"""

import argparse
import os
import sys
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
sys.path.append(str(Path(__file__).resolve().parents[1]))

import keras
import numpy as np
import tensorflow as tf
from measure import interleaved_times, print_table, write_json

from examples.stories.model import build_model

SIZES = {
    "one task": {"words": 40, "sentences": 50, "length": 6, "units": 20},
    "joint": {"words": 180, "sentences": 50, "length": 11, "units": 50},
}
MODES = {
    "eager": {"run_eagerly": True},
    "graph": {"jit_compile": False},
    "XLA": {"jit_compile": True},
    "XLA, 28": {"jit_compile": True, "steps_per_execution": 28},
}
BATCH = 32


def make_model(mode, words, sentences, length, units):
    """Returns a compiled model, always with the same weights, and a batch."""
    keras.utils.set_random_seed(11)
    model, _ = build_model((words, length, sentences), hops=3, units=units)
    optimizer = keras.optimizers.SGD(0.01, global_clipnorm=40.0)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="sum")
    model.compile(optimizer, loss, **MODES[mode])
    rng = np.random.default_rng(11)
    story = rng.integers(1, words, (BATCH, sentences, length), "int32")
    # Stories are of all lengths.
    story *= np.arange(sentences)[:, None] >= rng.integers(0, sentences, (BATCH, 1, 1))
    question = rng.integers(1, words, (BATCH, 5), "int32")
    return model, (story, question), rng.integers(1, words, BATCH, "int32")


def make_steps(mode, size):
    """Returns a function that trains, and the number of steps of each call."""
    model, inputs, answers = make_model(mode, **size)
    count = MODES[mode].get("steps_per_execution", 1)
    if count == 1:
        return lambda: model.train_on_batch(inputs, answers), 1
    # Made once, because `fit` inspects its data slowly.
    batches = tf.data.Dataset.from_tensors((inputs, answers)).repeat()
    epochs = 10
    return (
        lambda: model.fit(batches, epochs=epochs, steps_per_epoch=count, verbose=0, shuffle=False),
        count * epochs,
    )


def assert_agree(size, steps=28):
    """Checks that all modes have the same weights after `steps` steps, within rounding."""
    found = {}
    for mode, options in MODES.items():
        model, inputs, answers = make_model(mode, **size)
        if "steps_per_execution" in options:
            batches = tf.data.Dataset.from_tensors((inputs, answers)).repeat()
            model.fit(batches, steps_per_epoch=steps, verbose=0, shuffle=False)
        else:
            for _ in range(steps):
                model.train_on_batch(inputs, answers)
        found[mode] = model.get_weights()
    for mode, weights in found.items():
        for x, y in zip(weights, found["eager"], strict=True):
            np.testing.assert_allclose(x, y, rtol=0, atol=1e-4, err_msg=mode)


def measure(size):
    """Returns the milliseconds of a step and the seconds of the first call, for each mode."""
    first, functions, counts = {}, {}, {}
    for mode in MODES:
        functions[mode], counts[mode] = make_steps(mode, size)
        start = time.perf_counter()
        functions[mode]()
        first[mode] = time.perf_counter() - start
    times = interleaved_times(functions)
    return {
        mode: {"step_ms": 1e3 * times[mode] / counts[mode], "first_seconds": first[mode]}
        for mode in MODES
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", metavar="FILE", help="also write the numbers there")
    options = parser.parse_args()
    rows, found = [], {}
    for name, size in SIZES.items():
        assert_agree(size)
        found[name] = measure(size)
        eager = found[name]["eager"]["step_ms"]
        for mode, x in found[name].items():
            rows.append((name, mode, x["step_ms"], x["step_ms"] / eager, x["first_seconds"]))
    print_table(("size", "mode", "step ms", "of eager", "first call s"), rows)
    if options.json:
        write_json(options.json, {"sizes": SIZES, "batch": BATCH, "found": found})


if __name__ == "__main__":
    main()
