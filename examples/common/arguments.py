"""Parts of the command lines: the parser, types of numbers, defaults, and what a command needs."""

import argparse
import importlib.util
import os
import shlex
import sys


def make_parser(task, description):
    """A parser for `python -m examples.TASK` that keeps the line breaks of the description."""
    return argparse.ArgumentParser(
        prog=f"python -m examples.{task}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def command_line(task):
    """The command that started this process, to write into the results."""
    return shlex.join(["python", "-m", f"examples.{task}", *sys.argv[1:]])


def between(kind, low, high=float("inf")):
    """A type for argparse: numbers with low <= x < high."""

    def convert(text):
        value = kind(text)
        # "not in the range" rather than "outside of it", so that NaN is refused too.
        if not low <= value < high:
            limits = f"at least {low}" if high == float("inf") else f"in [{low}, {high})"
            raise argparse.ArgumentTypeError(f"must be {limits}; received {text}")
        return value

    # argparse names the type where the text is not a number.
    convert.__name__ = kind.__name__
    return convert


count = between(int, 1)
share = between(float, 0, 1)
number = between(float, 0)
# What `keras.utils.set_random_seed` accepts.
seed = between(int, 0, 2**32)


def add_directions(parser):
    """Adds the options that say how many models there are, and in which direction they write."""
    parser.add_argument("--ensemble", type=count, default=1, metavar="N", help="number of models")
    text = "how many of them write from right to left"
    parser.add_argument("--backward", type=int, default=0, metavar="N", help=text)


def check_directions(parser, arguments):
    """Checks that at least one model writes from left to right, and that every seed is one."""
    if not 0 <= arguments.backward < arguments.ensemble:
        parser.error(
            f"--backward must be 0 or more and less than --ensemble, which is "
            f"{arguments.ensemble}; received {arguments.backward}"
        )
    if arguments.seed + arguments.ensemble > 2**32:
        parser.error(f"--seed must be at most {2**32 - arguments.ensemble} for this --ensemble")


def members(arguments):
    """The seed of each model, and whether it writes from right to left, as the last ones do."""
    ahead = arguments.ensemble - arguments.backward
    return [(arguments.seed + number, number >= ahead) for number in range(arguments.ensemble)]


def fill(arguments, defaults):
    """Sets options that were not given, and those that have no flag."""
    for name, value in defaults.items():
        if getattr(arguments, name, None) is None:
            setattr(arguments, name, value)
    return arguments


def check_extras(*packages, extra="examples"):
    """Ends the program with the command that installs the missing packages."""
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        raise SystemExit(
            f"{', '.join(missing)}: not installed. Run "
            f'python -m pip install "keras-attention-layers[{extra}]"'
        )


def silently(function, *arguments, **options):
    """Calls a function without what its C++ code writes to standard error."""
    errors = os.dup(2)  # that code does not write to sys.stderr
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        return function(*arguments, **options)
    finally:
        os.dup2(errors, 2)
        os.close(errors)


def run(main):
    """Runs a command that a user may stop with Ctrl-C and start again."""
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("\nstopped; run the same command again to resume.")
