"""What the command lines of the examples share: checks of numbers, defaults.

Names are those of the attributes; None is what was not given, and always allowed.
"""


def check_at_least_one(parser, arguments, names):
    for name in names:
        value = getattr(arguments, name)
        if value is not None and value < 1:
            parser.error(f"{_flag(name)} must be at least 1; received {value}")


def check_ranges(parser, arguments, ranges):
    """Each name in `ranges` is 0 or more and below the number that belongs to it."""
    for name, high in ranges.items():
        value = getattr(arguments, name)
        # Not "or value >= high": NaN is refused too.
        if value is not None and not 0 <= value < high:
            parser.error(f"{_flag(name)} must be in [0, {high}); received {value}")


def check_seed(parser, arguments):
    """What NumPy, and so keras.utils.set_random_seed, takes."""
    if not 0 <= arguments.seed < 2**32:
        parser.error(f"--seed must be in [0, 2**32); received {arguments.seed}")


def fill(arguments, defaults):
    """Sets what was not given. Here, not in argparse: a default may depend on what was given."""
    for name, value in defaults.items():
        if getattr(arguments, name) is None:
            setattr(arguments, name, value)
    return arguments


def _flag(name):
    return f"--{name.replace('_', '-')}"
