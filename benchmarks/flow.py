"""Measures memory and time of attention flow beside its textbook form, forward and backward.

    python benchmarks/flow.py [--json FILE] [--check]

The two forms differ in the similarity alone. Ours is `trilinear_score`. The textbook form tiles
context and query to (B, T, J, D), concatenates [h; u; h * u] to (B, T, J, 3D) and multiplies by w.
The benchmark first checks that G and all gradients agree. `measure.py` says how it measures.

The sizes are those of the paper on SQuAD: texts of 400 words, questions of 30, d = 100. The command
takes about a minute on two cores.
"""

import argparse
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
from keras import ops
from measure import interleaved_times, peak_memory, print_table, write_json

from keras_attention import BiDAFAttentionFlow

MODES = {"graph": False, "jit": True}
TARGETS = {"memory": 0.1, "time": 0.5}


class ConcatenatingFlow(BiDAFAttentionFlow):
    """The similarity as the paper writes it: S[b,t,j] = w . [h[b,t]; u[b,j]; h[b,t] * u[b,j]]."""

    def score(self, query, key):
        steps, length = ops.shape(query)[1], ops.shape(key)[1]
        h = ops.tile(ops.expand_dims(query, 2), (1, 1, length, 1))
        u = ops.tile(ops.expand_dims(key, 1), (1, steps, 1, 1))
        vectors = (self.context_vector, self.query_vector, self.product_vector)
        vector = ops.concatenate([ops.convert_to_tensor(x) for x in vectors])
        return ops.tensordot(ops.concatenate([h, u, h * u], axis=-1), vector, axes=1)


VARIANTS = {"ours": BiDAFAttentionFlow, "theirs": ConcatenatingFlow}


def make_step(variant, jit, batch, context, query, units):
    """Returns a function that computes G and its gradients for both inputs and the weights."""
    import tensorflow as tf  # here, because JAX uses the class above without TensorFlow

    keras.utils.set_random_seed(11)
    rng, width = np.random.default_rng(11), 2 * units
    layer = VARIANTS[variant]()
    layer.build((batch, context, width), (batch, query, width))
    # As large as the states of an LSTM. Larger inputs give scores that show rounding errors.
    inputs = [
        tf.constant(rng.normal(size=shape, scale=0.3), "float32")
        for shape in ((batch, context, width), (batch, query, width), (batch, context, 4 * width))
    ]
    masks = {
        f"{name}_mask": tf.constant(np.arange(n) < rng.integers(n // 2, n + 1, (batch, 1)))
        for name, n in (("context", context), ("query", query))
    }

    @tf.function(jit_compile=jit)
    def step(context, query, upstream):
        with tf.GradientTape() as tape:
            tape.watch((context, query))
            merged = layer(context, query, **masks)
        sources = [context, query, *(weight.value for weight in layer.trainable_weights)]
        return merged, tape.gradient(merged, sources, output_gradients=upstream)

    return lambda: step(*inputs)


def assert_agree(sizes):
    """Checks G within 1e-5, and gradients within 1e-5 of the largest number in each."""
    for mode, jit in MODES.items():
        (ours, found), (theirs, expected) = (
            make_step(variant, jit, **sizes)() for variant in VARIANTS
        )
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5, err_msg=mode)
        for x, y in zip(found, expected, strict=True):
            scale = max(1.0, float(np.abs(y).max()))
            np.testing.assert_allclose(x, y, rtol=0, atol=1e-5 * scale, err_msg=mode)


def measure(sizes):
    """Returns memory in MiB and time in ms for each mode and variant."""
    found = {}
    for mode, jit in MODES.items():
        times = interleaved_times({name: make_step(name, jit, **sizes) for name in VARIANTS})
        for name in VARIANTS:
            memory = peak_memory("flow:make_step", variant=name, jit=jit, **sizes)
            found.setdefault(mode, {})[name] = {"memory": memory, "time": 1e3 * times[name]}
    return found


def ratios(found):
    return {
        mode: {what: x["ours"][what] / x["theirs"][what] for what in TARGETS}
        for mode, x in found.items()
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=8, help="samples")
    parser.add_argument("--context", type=int, default=400, help="steps of the context")
    parser.add_argument("--query", type=int, default=30, help="steps of the query")
    parser.add_argument("--units", type=int, default=100, help="d; both are 2d wide")
    parser.add_argument("--json", metavar="FILE", help="also write the numbers there")
    parser.add_argument("--check", action="store_true", help="fail where a target is missed")
    options = parser.parse_args()
    sizes = {name: getattr(options, name) for name in ("batch", "context", "query", "units")}

    assert_agree(sizes)
    found = measure(sizes)
    shares = ratios(found)
    rows = []
    for mode, of_mode in found.items():
        rows += [(name, mode, x["memory"], x["time"]) for name, x in of_mode.items()]
        rows.append(("ours / theirs", mode, *shares[mode].values()))
    rows.append(("target, at most", "", *TARGETS.values()))
    print_table(("variant", "mode", "memory MiB", "time ms"), rows)
    if options.json:
        result = {"sizes": sizes, "found": found, "ratios": shares, "targets": TARGETS}
        write_json(options.json, result)
    missed = [
        f"{what} in mode {mode}: {share:.3g}"
        for mode, of_mode in shares.items()
        for what, share in of_mode.items()
        if share > TARGETS[what]
    ]
    if missed:
        print("Missed:", "; ".join(missed))
    return 1 if missed and options.check else 0


if __name__ == "__main__":
    sys.exit(main())
