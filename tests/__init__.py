"""The folders mirror the package. `conformance` holds the one table of layers."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def fast(values, only, slow=1):
    """The values as parameters; the default run has `only` these, the slow tests a few more."""
    rest = [x for x in values if x not in only]
    marks = [pytest.mark.slow if n < slow else pytest.mark.exhaustive for n in range(len(rest))]
    marked = iter(pytest.param(x, marks=mark) for x, mark in zip(rest, marks, strict=True))
    return [x if x in only else next(marked) for x in values]


def python(*arguments, folder=ROOT, **environment):
    """Run Python in another process, and return what it prints."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)} | environment
    options = {"env": environment, "cwd": folder, "capture_output": True, "text": True}
    done = subprocess.run([sys.executable, *map(str, arguments)], check=False, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout


def imports_of(path):
    """The modules that a file imports, in functions too, each with a name taken from it or None."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield from ((node.module, alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names)


class Killed(Exception):
    """Ends a run in the middle, as a kill would."""
