"""What the import brings with it, what it says beside another package, and `python -m`."""

import importlib.metadata
import os
import shutil
import subprocess
import sys

import keras
import pytest

import keras_attention
from keras_attention import __main__
from tests import ROOT, fast

OPTIONAL = "matplotlib", "keras_tuner", "tensorboard", "tensorflow_text", "sklearn"
# Keras itself loads some of them, but never TensorFlow beside another backend.
LOADED = """
import sys, keras
before = set(sys.modules) - {"tensorflow"}
import keras_attention
print(sorted({*sys.modules} & {*sys.argv[1:]} - before))
"""
# What the distribution `keras-attention` installs, as far as the import gets.
OTHER = "from keras_attention import settings\nfrom keras_attention.self_attention import X\n"


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


@pytest.mark.parametrize("last", ["the other", "ours"])
def test_another_distribution_has_the_same_folder(last, tmp_path):
    """Whose `__init__.py` stays depends on which was installed last."""
    folder = tmp_path / "keras_attention"
    shutil.copytree(ROOT / "keras_attention" / "settings", folder / "settings")
    (folder / "settings.py").write_text("", "utf-8")
    (folder / "self_attention.py").write_text("X = 1\n", "utf-8")
    ours = '__version__ = "1"\n'
    (folder / "__init__.py").write_text(OTHER if last == "the other" else ours + OTHER, "utf-8")
    found = run(tmp_path, "import keras_attention")
    if last == "ours":
        assert (found.returncode, found.stderr) == (0, "")
    else:
        (message,) = [x for x in found.stderr.splitlines() if x.startswith("ImportError: ")]
        assert "pip uninstall -y keras-attention && pip install --force-reinstall" in message


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
