"""Parts of the command lines: the parser, types of numbers, defaults, and what a command needs."""

import argparse
import contextlib
import importlib.util
import os
import sys


def make_parser(task, description):
    """A parser for `python -m examples.TASK` that keeps the line breaks of the description."""
    kind = argparse.RawDescriptionHelpFormatter
    options = {"prog": f"python -m examples.{task}", "description": description}
    return argparse.ArgumentParser(**options, formatter_class=kind)


def between(kind, low, high=float("inf")):
    """A type for argparse: numbers with low <= x < high."""

    def convert(text):
        value = kind(text)
        # "not in the range" rather than "outside of it", so that NaN is refused too.
        if not low <= value < high:
            limits = f"at least {low}" if high == float("inf") else f"in [{low}, {high})"
            raise argparse.ArgumentTypeError(f"must be {limits}; received {text}")
        return value

    convert.__name__ = kind.__name__  # argparse names the type where the text is not a number
    return convert


count, number, share = between(int, 1), between(float, 0), between(float, 0, 1)
seed = between(int, 0, 2**31)


def add_directions(parser):
    """Adds the options that say how many models there are, and in which direction they write."""
    parser.add_argument("--ensemble", type=count, default=1, metavar="N", help="number of models")
    text = "how many of them write from right to left"
    parser.add_argument("--backward", type=int, default=0, metavar="N", help=text)


def check_directions(parser, options):
    """Checks that at least one model writes from left to right."""
    if not 0 <= options.backward < options.ensemble:
        limits = f"0 or more and less than --ensemble, which is {options.ensemble}"
        parser.error(f"--backward must be {limits}; received {options.backward}")


def members(options):
    """The seed of each model, and whether it writes from right to left, as the last ones do."""
    ahead = options.ensemble - options.backward
    return [(options.seed + number, number >= ahead) for number in range(options.ensemble)]


def fill(options, defaults):
    """Sets options that were not given, and those that have no flag."""
    given = {name: x for name, x in vars(options).items() if x is not None}
    vars(options).update({**defaults, **given})
    return options


def check_extras(*packages, extra="examples"):
    """Ends the program with the command that installs the missing packages."""
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        install = f'python -m pip install "keras-attention-layers[{extra}]"'
        raise SystemExit(f"{', '.join(missing)}: not installed. Run {install}")


@contextlib.contextmanager
def silence():
    """Drops what C++ code writes to standard error."""
    errors = os.dup(2)  # that code does not write to sys.stderr
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(errors, 2)
        os.close(errors)


def run(main):
    """Runs a command that a user may stop with Ctrl-C and start again."""
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("\nstopped; run the same command again to resume.")
