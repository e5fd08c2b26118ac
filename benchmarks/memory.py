"""Prints the memory of one run of a case beside what a user would pick instead, in MiB.

    python benchmarks/memory.py [--only NAME ...] [--columns NAME ...] [--record FILE]

The cases are `MEMORY` in `cases.py`: the gradients of a decoder, of large bags, of windows, of the
additive score and of attention flow. `harness.py` says how it measures. Each figure has a process
of its own.
"""

from cases import MEMORY
from harness import make_parser, run_all

if __name__ == "__main__":
    run_all(make_parser(__doc__).parse_args(), MEMORY, "memory", "MiB", 1.0)
