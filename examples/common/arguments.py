"""Parts of the command lines: checks of numbers, defaults, and the command itself.

Options are named after their attributes. None means that an option was not given; every check
accepts it.
"""

import argparse
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


def check_at_least_one(parser, arguments, names):
    for name in names:
        value = getattr(arguments, name)
        if value is not None and value < 1:
            parser.error(f"{_flag(name)} must be at least 1; received {value}")


def check_ranges(parser, arguments, ranges):
    """Checks 0 <= value < high for every `name: high` in `ranges`."""
    for name, high in ranges.items():
        value = getattr(arguments, name)
        # "not in the range" rather than "outside of it", so that NaN is refused too.
        if value is not None and not 0 <= value < high:
            parser.error(f"{_flag(name)} must be in [0, {high}); received {value}")


def check_seed(parser, arguments):
    """Checks that `keras.utils.set_random_seed` accepts the seed."""
    if not 0 <= arguments.seed < 2**32:
        parser.error(f"--seed must be in [0, 2**32); received {arguments.seed}")


def add_directions(parser):
    """Adds the options that say how many models there are, and in which direction they write."""
    parser.add_argument("--ensemble", type=int, default=1, metavar="N", help="number of models")
    text = "how many of them write from right to left"
    parser.add_argument("--backward", type=int, default=0, metavar="N", help=text)


def check_directions(parser, arguments):
    """Checks that at least one model writes from left to right."""
    if not 0 <= arguments.backward < arguments.ensemble:
        parser.error(
            f"--backward must be 0 or more and less than --ensemble, which is "
            f"{arguments.ensemble}; received {arguments.backward}"
        )


def fill(arguments, defaults):
    """Sets options that were not given.

    argparse cannot do it where a default depends on other options.
    """
    for name, value in defaults.items():
        if getattr(arguments, name) is None:
            setattr(arguments, name, value)
    return arguments


def _flag(name):
    return f"--{name.replace('_', '-')}"
