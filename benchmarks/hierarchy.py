"""Measures what one long document costs its batch, with and without bucketing.

    python benchmarks/hierarchy.py [--json FILE] [--check]

64 documents have 16 to 24 sentences of 10 to 20 words. An outlier has 120 sentences, one of them of
200 words: a tenth of all words. The benchmark runs them forward and backward through the
model of `python -m examples.documents`, in three ways:

    off        one batch, padded to 65 documents of 120 sentences of 200 words
    bucketing  batches of documents of similar size, with a limit on padded words (`bucketed`)
    wrapping   the same, after splitting sentences of more than 25 words, as the task does

The benchmark first checks that bucketing gives the gradients of one batch. The ratios divide memory
and time of all batches by those of the 64 documents alone. The first row shows the growth of the
real words. `measure.py` says how it measures. The command takes about two minutes on two cores.
"""

import argparse
import os
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
sys.path.append(str(Path(__file__).resolve().parents[1]))

import keras
import numpy as np
import tensorflow as tf
from measure import interleaved_times, peak_memory, print_table, write_json

from examples.common.training import bucketed
from examples.documents.data import Encoded
from examples.documents.model import build_model

WORDS, CELLS, LONGEST = 1000, 10_000, 25
VARIANTS = ("off", "bucketing", "wrapping")
# The largest allowed cost of the outlier, as a multiple of its share of the words.
TARGETS = {"memory": 1.5, "time": 1.5}


def make_documents(outlier, longest=None):
    """Random documents as `Encoded` ids, in which sentences have at most `longest` words."""
    rng = np.random.default_rng(11)
    lengths = [rng.integers(10, 21, rng.integers(16, 25)).tolist() for _ in range(64)]
    if outlier:
        lengths.append([*rng.integers(10, 21, 119).tolist(), 200])
    if longest:
        pieces = [
            [min(longest, n - i) for n in document for i in range(0, n, longest)]
            for document in lengths
        ]
        lengths = pieces
    sentences = [n for document in lengths for n in document]
    words = np.random.default_rng(12).integers(1, WORDS, sum(sentences), dtype="int32")
    words = iter(np.split(words, np.cumsum(sentences)[:-1]))
    ids = [[next(words) for _ in document] for document in lengths]
    return Encoded(ids, np.arange(len(lengths), dtype="int32") % 2)


def make_step(variant, outlier, units=24):
    """Returns a function that sums the gradients for all weights over the batches."""
    keras.utils.set_random_seed(11)
    data = make_documents(outlier, LONGEST if variant == "wrapping" else None)
    model, _ = build_model(WORDS, 2, "attention", "gru", 2 * units, units, 0.0, 0.0)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="sum")
    batches = [np.arange(len(data.labels))]
    if variant != "off":
        batches = bucketed(data.sizes, 32, cells=CELLS)
    batches = [(tf.constant(data.padded(b)), tf.constant(data.labels[b])) for b in batches]
    signature = [tf.TensorSpec((None,) * 3, "int32"), tf.TensorSpec((None,), "int32")]

    @tf.function(input_signature=signature)
    def gradients(ids, labels):
        with tf.GradientTape() as tape:
            value = loss(labels, model(ids, training=True))
        weights = [weight.value for weight in model.trainable_weights]
        return [tf.convert_to_tensor(x) for x in tape.gradient(value, weights)]

    def step():
        total = None
        for batch in batches:
            found = gradients(*batch)
            total = found if total is None else [x + y for x, y in zip(total, found, strict=True)]
        return total

    return step


def assert_agree():
    """Checks the summed gradients within 1e-5 of the largest number in each."""
    off, on = (make_step(variant, True)() for variant in ("off", "bucketing"))
    for x, y in zip(on, off, strict=True):
        scale = max(1.0, float(np.abs(y).max()))
        np.testing.assert_allclose(x, y, rtol=0, atol=1e-5 * scale)


def measure():
    """Returns the ratios of memory and time, with the outlier to without it, for each variant."""
    cases = {f"{v}, {o}": (v, o) for v in VARIANTS for o in (False, True)}
    times = interleaved_times({name: make_step(*case) for name, case in cases.items()}, 5)
    found = {}
    for name, (variant, outlier) in cases.items():
        memory = peak_memory("hierarchy:make_step", variant=variant, outlier=outlier)
        found[name] = {"memory": memory, "time": 1e3 * times[name]}
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", metavar="FILE", help="also write the numbers there")
    parser.add_argument("--check", action="store_true", help="fail where a target is missed")
    options = parser.parse_args()

    assert_agree()
    found = measure()
    counts = [sum(len(x) for y in make_documents(z).ids for x in y) for z in (False, True)]
    words = counts[1] / counts[0]
    print(f"words {counts[0]:,}; with the outlier {counts[1]:,}, {words:.2f} times as many")
    rows, grown = [], {}
    for variant in VARIANTS:
        alone, beside = (found[f"{variant}, {outlier}"] for outlier in (False, True))
        rows.append((variant, "64 documents", *alone.values()))
        rows.append((variant, "with the outlier", *beside.values()))
        grown[variant] = {what: beside[what] / alone[what] for what in TARGETS}
        rows.append((variant, "growth", *grown[variant].values()))
    rows.append(("target, at most", "", *(words * x for x in TARGETS.values())))
    print_table(("variant", "documents", "memory MiB", "time ms"), rows)
    if options.json:
        write_json(options.json, {"words": counts, "found": found, "growth": grown})
    missed = [
        f"{what} with {variant}: {grown[variant][what]:.3g}"
        for variant in VARIANTS[1:]
        for what in TARGETS
        if grown[variant][what] > words * TARGETS[what]
    ]
    if missed:
        print("Missed:", "; ".join(missed))
    return 1 if missed and options.check else 0


if __name__ == "__main__":
    sys.exit(main())
