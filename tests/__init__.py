"""The folders mirror the package. `conformance` holds the one table of layers."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def fast(values, only):
    """The values as parameters; the default run has `only` these."""
    return [
        value if value in only else pytest.param(value, marks=pytest.mark.slow) for value in values
    ]
