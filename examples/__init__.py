"""The tasks of the papers, each a folder with a command: see README.md."""

import os

# TensorFlow reads this when it is imported, so no module of a task imports it earlier.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
