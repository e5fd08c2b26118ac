"""Prints the time of the searches beside a plain loop in PyTorch and the samplers of keras-hub.

    pip install torch keras-hub
    python benchmarks/search.py [--only NAME ...] [--peers keras-hub] [--output FILE]

The samplers drive the same step as our searches. `generate` of a translator, and that of two which
read in both directions, stand beside a bare search of batches that were made in advance. The table
is that of `speed.py`.
"""

from harness import make_parser, run_all

if __name__ == "__main__":
    run_all(make_parser(__doc__).parse_args(), ["search"])
