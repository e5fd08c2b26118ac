"""Types of numbers on the command lines of all tasks."""

import argparse

import pytest

from examples.common import arguments


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        (arguments.count, "0", "at least 1"),
        (arguments.number, "-0.1", "at least 0"),
        (arguments.number, "nan", "at least 0"),
        (arguments.share, "1", "in [0, 1)"),
        (arguments.seed, str(2**32), "in [0, 4294967296)"),
    ],
)
def test_numbers_out_of_range_are_refused(kind, text, expected):
    with pytest.raises(argparse.ArgumentTypeError) as error:
        kind(text)
    assert str(error.value) == f"must be {expected}; received {text}"


def test_numbers_within_the_range_are_taken():
    assert [arguments.count("1"), arguments.number("0"), arguments.share("0")] == [1, 0, 0]
    assert arguments.seed("0") == 0
    assert arguments.count.__name__ == "int"  # argparse says "invalid int value"
