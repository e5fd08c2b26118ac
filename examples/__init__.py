"""The tasks of the papers, each a folder with a command: see README.md."""

import contextlib
import importlib.machinery
import os
import sys

# TensorFlow reads this when it is imported, so no module of a task imports it earlier.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


@contextlib.contextmanager
def silence():
    """Drops what C++ code writes to standard error."""
    errors = os.dup(2)  # that code does not write to sys.stderr
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(errors, 2)
        os.close(errors)


class SilentTensorFlow:
    """Imports TensorFlow without its remarks on CUDA and oneDNN, which no option silences."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name != "tensorflow":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name)
        if spec:
            spec.loader.exec_module = silence()(spec.loader.exec_module)
        return spec


sys.meta_path.insert(0, SilentTensorFlow)
