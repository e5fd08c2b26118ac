"""The tasks of the papers, each a folder with a command: see README.md."""

import importlib.machinery
import os
import sys

from examples.common.arguments import silence

# TensorFlow reads this when it is imported, so no module of a task imports it earlier.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


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
