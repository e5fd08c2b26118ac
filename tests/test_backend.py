"""What the import brings with it, or asks for, and `python -m`."""

import importlib.metadata
import os
import subprocess
import sys

import keras
import pytest

import keras_attention
from keras_attention import __main__
from tests import ROOT, fast

OPTIONAL = "matplotlib", "keras_tuner", "tensorboard", "tensorflow_text", "sklearn"
OPTIONAL += "sentencepiece", "tokenizers"
# Keras itself loads some of them, but never TensorFlow beside another backend.
LOADED = """
import sys, keras
before = set(sys.modules) - {"tensorflow"}
import keras_attention
print(sorted({*sys.modules} & {*sys.argv[1:]} - before), keras.layers.Layer().name)
"""
# The arguments are packages that Python does not find.
MISSING = """
import sys
from importlib.machinery import PathFinder

find = PathFinder.find_spec
PathFinder.find_spec = lambda name, *rest: None if name in sys.argv[1:] else find(name, *rest)
import keras_attention
"""


def run(code, *arguments, backend="tensorflow"):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "KERAS_BACKEND": backend}
    options = {"env": environment, "capture_output": True, "text": True, "check": False}
    done = subprocess.run([sys.executable, "-c", code, *arguments], **options)
    return done.stdout if done.returncode == 0 else done.stderr.splitlines()[-1]


@pytest.mark.parametrize("backend", fast(["jax", "torch"], ["jax"]))
def test_the_import_loads_nothing_optional_no_other_backend_and_takes_no_name(backend):
    pytest.importorskip(backend, reason="the backend is not installed")
    others = {"tensorflow", "jax", "torch"} - {backend}
    assert run(LOADED, *OPTIONAL, *others, backend=backend) == "[] layer\n"


INSTALL = "Install it: pip install tensorflow. Or install another of"


@pytest.mark.parametrize(("missing", "words"), [
    (["tensorflow", "jax", "torch"], ["Keras is set to run on tensorflow, which is", INSTALL]),
    (["tensorflow", "torch"], ["Set the environment variable KERAS_BACKEND=jax."]),
    (["ml_dtypes"], ["No module named 'ml_dtypes'"]),  # as Python says it
])  # fmt: skip
def test_a_package_is_missing(missing, words):
    pytest.importorskip("jax", reason="JAX is not installed")
    message = run(MISSING, *missing)
    assert message.startswith("ModuleNotFoundError: ")
    assert all(x in message for x in words)


def test_the_versions_for_an_issue(capsys):
    __main__.main([])
    printed = capsys.readouterr().out
    assert f"keras_attention {keras_attention.__version__}, " in printed
    assert f"keras {keras.__version__}, backend {keras.backend.backend()}\n" in printed
    assert f"numpy {importlib.metadata.version('numpy')}\n" in printed
    assert f"\nPython {sys.version.split()[0]}, " in printed
