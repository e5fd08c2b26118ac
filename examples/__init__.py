"""The tasks of the papers, each a folder with a command: see README.md."""

import importlib.machinery
import os
import sys

from examples.common.arguments import silently

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
            spec.loader.exec_module = lambda module: silently(run, module)
        return spec


sys.meta_path.insert(0, _Quiet())
