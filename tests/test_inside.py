"""What a reader of the package has to follow does not grow back: counts, with a tenth to spare."""

import importlib
import sys

import pytest

from tests import ROOT
from tests.backends import on_tensorflow

sys.path.append(str(ROOT / "benchmarks"))
inside = importlib.import_module("inside")

# Functions of ours, their calls and files; `python benchmarks/inside.py` prints them.
PROGRAMS = {
    "eager layer": (36, 63, 10),
    "eager step": (45, 64, 14),
    "traced training step": (215, 1005, 21),
}
SOURCE = {
    "lines of code": 9100,
    "share of checks, %": 10.0,
    "modules of which more than 60% is checks": 2,
    "context variables": 1,
    "imports of private modules of another folder": 0,
    "names exported at the top": 30,
    "classes from keras.Layer to LocationSensitiveAttention": 4,
}
SPARE = 1.1


@on_tensorflow
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_passes_few_functions(name):
    found = inside.functions_in(inside.PROGRAMS[name]())
    counts = len(found), found.total(), len({file for file, *_ in found})
    assert all(0 < n <= SPARE * most for n, most in zip(counts, PROGRAMS[name], strict=True))


def test_the_source_stays_small():
    found = inside.of_the_source()
    assert found.keys() == SOURCE.keys()
    assert {name: n for name, n in found.items() if n > SPARE * SOURCE[name]} == {}
