"""What the import brings with it, and `python -m`."""

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
print(sorted({*sys.modules} & {*sys.argv[1:]} - before))
"""


def run(folder, code, *arguments, **environment):
    """Runs code in a folder, whose packages it finds first."""
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("backend", fast(["jax", "torch"], ["jax"]))
def test_the_import_loads_nothing_optional_and_no_other_backend(backend):
    pytest.importorskip(backend, reason="the backend is not installed")
    others = {"tensorflow", "jax", "torch"} - {backend}
    found = run(ROOT, LOADED, *OPTIONAL, *others, KERAS_BACKEND=backend)
    assert found.stdout == "[]\n", found.stderr


def test_the_import_takes_no_name_of_a_layer():
    code = "import keras, keras_attention; print(keras.layers.Layer().name)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["layer"]


def test_the_versions_for_an_issue(capsys):
    __main__.main()
    printed = capsys.readouterr().out
    assert f"keras_attention {keras_attention.__version__}, " in printed
    assert f"keras {keras.__version__}, backend {keras.backend.backend()}\n" in printed
    assert f"numpy {importlib.metadata.version('numpy')}\n" in printed
    assert f"\nPython {sys.version.split()[0]}, " in printed
