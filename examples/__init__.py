"""The tasks of the papers, each a folder with a command: see README.md."""

import importlib.machinery
import os
import sys

# TensorFlow reads this when it is imported, so no module of a task imports it earlier.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


class _Quiet:
    """Imports TensorFlow without what it says about CUDA and oneDNN before it reads the level."""

    def find_spec(self, name, path=None, target=None):
        if name != "tensorflow":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name)
        if spec:
            run = spec.loader.exec_module
            spec.loader.exec_module = lambda module: _silently(run, module)
        return spec


def _silently(function, *arguments):
    errors = os.dup(2)  # the C++ code writes there, not to sys.stderr
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        function(*arguments)
    finally:
        os.dup2(errors, 2)
        os.close(errors)


sys.meta_path.insert(0, _Quiet())
