"""A training step of a decoder with each attention that has a state, beside additive attention.

    python benchmarks/states.py [--stack] [--repeats N]

Prints the median time of additive attention, and the ratios of the others to it: in a TensorFlow
graph, on TensorFlow with XLA, and on JAX, forward and backward. The decoders take turns in one
process for each column. The sizes are about those of Tacotron 2: `SIZES`. `--stack` compares
decoders of two GRUs instead: attention in the recurrence, and a `DecoderStack`.
"""

import argparse
import json
import os
import subprocess
import sys

SIZES = {"batch": 32, "steps": 50, "length": 100, "units": 512, "attention_units": 128}
NAMES = (
    *("additive", "location-sensitive", "coverage", "monotonic", "monotonic, chunks of 4"),
    *("stepwise", "forward", "forward, agent", "GMM V2b", "dynamic convolution"),
    *("4 heads", "4 heads of all units", "4 location-sensitive heads"),
)
STACK = {"batch": 32, "steps": 50, "length": 50, "units": 256, "layers": 2}
STACKED = "in the recurrence", "input feeding", "DecoderStack"
COLUMNS = {
    "TF graph": ("tensorflow", "graph"),
    "TF-XLA": ("tensorflow", "XLA"),
    "JAX": ("jax", "XLA"),
}


def column(mode, stack, repeats):
    from forms import make_step
    from measure import interleaved_times

    case, names, sizes = ("layered", STACKED, STACK) if stack else ("remembering", NAMES, SIZES)
    steps = {name: make_step(case, name, mode, True, **sizes) for name in names}
    return interleaved_times(steps, repeats)


def main():
    from measure import add_record, print_table, write_record

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--stack", action="store_true", help="decoders of two layers")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--column", choices=COLUMNS, help=argparse.SUPPRESS)
    add_record(parser)
    arguments = parser.parse_args()
    if arguments.column:
        mode = COLUMNS[arguments.column][1]
        print(json.dumps(column(mode, arguments.stack, arguments.repeats)))
        return
    found = {}
    for name, (backend, _) in COLUMNS.items():
        run = subprocess.run(
            [sys.executable, __file__, *sys.argv[1:], "--column", name],
            env={**os.environ, "KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3"},
            stdout=subprocess.PIPE,
            check=True,
        )
        found[name] = json.loads(run.stdout.splitlines()[-1])
    first, *others = STACKED if arguments.stack else NAMES
    rows = [[f"{first}, ms", *(1000 * times[first] for times in found.values())]]
    for name in others:
        rows.append([name, *(times[name] / times[first] for times in found.values())])
    write_record(arguments.record, tables={"table": print_table(["attention", *COLUMNS], rows)})


if __name__ == "__main__":
    main()
