"""How long the first training step and the first `generate` of a translator take, and later ones.

    python benchmarks/first_step.py [--small]

The translator is that of `generate.py`, on 64 pairs of 20 tokens. The first call of each traces and
compiles. Prints CPU seconds, which other programs on the machine hardly change. Each row runs in a
process of its own.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time

ROWS = {
    "TensorFlow": ("tensorflow", False),
    "TensorFlow, jit_compile=True": ("tensorflow", True),
    "JAX": ("jax", True),
}


WIDTHS = 28, 11, 5, 15, 5


def print_row(*cells):
    row = "  ".join(cell.ljust(width) for cell, width in zip(cells, WIDTHS, strict=True))
    print(row.rstrip(), flush=True)


def seconds(call):
    start = time.process_time()
    call()
    return time.process_time() - start


def measure(row, small):
    import numpy as np
    from generate import make_translator

    model = make_translator(*((50, 16) if small else (8000, 512)))
    model.compile("adam", jit_compile=ROWS[row][1])
    ids = np.random.default_rng(1).integers(3, 50, (64, 20))
    ids[:, -1] = 2

    def train():
        float(model.train_on_batch(ids, ids))

    def generate():
        model.generate(ids, max_length=20)

    times = [[seconds(call) for _ in range(6)] for call in (train, generate)]
    print_row(row, *(f"{x:.2f}" for t in times for x in (t[0], statistics.median(t[1:]))))


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--small", action="store_true", help="tries the command in seconds")
    parser.add_argument("--row", choices=ROWS, help="measures this row, in this process")
    arguments = parser.parse_args()
    if arguments.row:
        return measure(arguments.row, arguments.small)
    print_row("CPU seconds", "step: first", "later", "generate: first", "later")
    for row, (backend, _) in ROWS.items():
        command = [sys.executable, __file__, *sys.argv[1:], "--row", row]
        subprocess.run(command, env={**os.environ, "KERAS_BACKEND": backend}, check=True)


if __name__ == "__main__":
    main()
