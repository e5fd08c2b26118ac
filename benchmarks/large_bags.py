"""Gated attention over large bags beside the same in plain Keras: time and memory of training.

    pip install torch
    python benchmarks/large_bags.py [--instances N ...] [--memory]

One bag of N instances of 512 features, 256 units, forward and backward, with gradients for all
weights and for the instances. "Plain Keras" is two Dense layers, their product, a third Dense
layer, `keras.ops.softmax` and a matrix product. Each backend runs in a process of its own, where
both take turns. `--memory` prints the rise of the peak of resident memory in place of times; see
`measure.py`.
"""

import argparse
import json
import os
import subprocess
import sys

MODES = {"TF graph": "tensorflow", "TF-XLA": "tensorflow", "JAX": "jax", "PyTorch": "torch"}
FEATURES, UNITS = 512, 256


def function_of(form, instances):
    """One form for a bag of so many instances, and its weights, in the order of the equation."""
    import keras
    from keras import layers, ops

    from keras_attention import AttentionPooling

    shape = (1, instances, FEATURES)
    if form == "ours":
        pooling = AttentionPooling(UNITS, gated=True)
        pooling.build(shape)
        return pooling, pooling.trainable_weights
    bag = keras.Input(shape[1:], batch_size=1)
    hidden = layers.Dense(UNITS, "tanh")(bag) * layers.Dense(UNITS, "sigmoid")(bag)
    weights = ops.softmax(layers.Dense(1, use_bias=False)(hidden)[:, :, 0], axis=-1)
    model = keras.Model(bag, ops.matmul(weights[:, None], bag)[:, 0])
    return model, model.trainable_weights


def make(form, column, instances):
    """A function that runs one training step of one form."""
    import forms
    import keras

    inputs = forms.normal(1.0, (1, instances, FEATURES))
    mode = {"TF graph": "graph", "TF-XLA": "XLA"}.get(column)
    function, weights = function_of(form, instances)
    return forms.STEPS[keras.backend.backend()](function, inputs, weights, mode, True)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    sizes = [1_000, 50_000, 200_000]
    parser.add_argument("--instances", type=int, nargs="+", default=sizes, metavar="N")
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    import measure

    measure.add_record(parser)
    arguments = parser.parse_args()
    if arguments.child:
        column, instances = arguments.child
        both = {form: make(form, column, int(instances)) for form in ("ours", "plain")}
        repeats = 9 if int(instances) > 10_000 else 25
        print(json.dumps(measure.interleaved_times(both, repeats)))
        return
    rows = []
    for instances in arguments.instances:
        for column, backend in MODES.items():
            if arguments.memory:
                options = {"backend": backend, "column": column, "instances": instances}
                ours, plain = (
                    measure.peak_memory("large_bags:make", form=form, **options)
                    for form in ("ours", "plain")
                )
            else:
                environment = {**os.environ, "KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3"}
                command = [sys.executable, __file__, "--child", column, str(instances)]
                done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
                found = json.loads(done.stdout.splitlines()[-1])
                ours, plain = 1e3 * found["ours"], 1e3 * found["plain"]
            rows.append([f"{instances:,}", column, ours, plain, ours / plain])
            print(*rows[-1], file=sys.stderr)
    unit = "MiB" if arguments.memory else "ms"
    header = ["instances", "", f"ours, {unit}", f"plain Keras, {unit}", "ratio"]
    measure.write_record(arguments.record, tables={"times": measure.print_table(header, rows)})


if __name__ == "__main__":
    main()
