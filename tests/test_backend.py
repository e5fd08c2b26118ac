"""Without a backend, the import says what to install."""

import os
import subprocess
import sys

import pytest

from tests import ROOT

# Packages that Python does not find.
IMPORT = """
import sys
from importlib.machinery import PathFinder

missing, find = sys.argv[1].split(","), PathFinder.find_spec
PathFinder.find_spec = lambda name, *rest: None if name in missing else find(name, *rest)
import keras_attention
"""


def error_of(backend, *missing):
    done = subprocess.run(
        [sys.executable, "-c", IMPORT, ",".join(missing)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "KERAS_BACKEND": backend},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    return done.stderr.splitlines()[-1]


def test_no_backend():
    message = error_of("tensorflow", "tensorflow", "jax", "torch")
    assert message.startswith("ModuleNotFoundError: Keras is set to run on tensorflow, which is")
    assert "Install it: pip install tensorflow. Or install another of" in message


def test_another_backend():
    pytest.importorskip("jax", reason="JAX is not installed")
    message = error_of("tensorflow", "tensorflow", "torch")
    assert message.endswith("Set the environment variable KERAS_BACKEND=jax.")


def test_a_package_that_keras_needs_is_missing():
    """Other import errors are raised unchanged."""
    assert error_of("tensorflow", "ml_dtypes").endswith("No module named 'ml_dtypes'")
