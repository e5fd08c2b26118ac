"""What the import brings with it, or asks for, and `python -m`."""

import importlib.metadata
import sys

import keras
import pytest

import keras_attention
from keras_attention import __main__
from tests import fast, python

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


@pytest.mark.parametrize("backend", fast(["jax", "torch"], ["jax"]))
def test_the_import_loads_nothing_optional_no_other_backend_and_takes_no_name(backend):
    pytest.importorskip(backend, reason="the backend is not installed")
    others = {"tensorflow", "jax", "torch"} - {backend}
    assert python("-c", LOADED, *OPTIONAL, *others, KERAS_BACKEND=backend) == "[] layer\n"


INSTALL = "Install it: pip install tensorflow. Or install another of"


@pytest.mark.parametrize(("missing", "words"), [
    (["tensorflow", "jax", "torch"], ["Keras is set to run on tensorflow, which is", INSTALL]),
    (["tensorflow", "torch"], ["Set the environment variable KERAS_BACKEND=jax."]),
    (["ml_dtypes"], ["No module named 'ml_dtypes'"]),  # as Python says it
])  # fmt: skip
def test_a_package_is_missing(missing, words):
    pytest.importorskip("jax", reason="JAX is not installed")
    with pytest.raises(AssertionError) as error:
        python("-c", MISSING, *missing, KERAS_BACKEND="tensorflow")
    assert all(x in str(error.value) for x in ("\nModuleNotFoundError: ", *words))


def test_the_versions_for_an_issue(capsys):
    __main__.main([])
    printed = capsys.readouterr().out
    assert f"keras_attention {keras_attention.__version__}, " in printed
    assert f"keras {keras.__version__}, backend {keras.backend.backend()}\n" in printed
    assert f"numpy {importlib.metadata.version('numpy')}\n" in printed
    assert f"\nPython {sys.version.split()[0]}, " in printed
