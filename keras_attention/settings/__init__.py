"""Says so when another distribution, keras-attention, has overwritten `__init__.py` of the package.

Its `__init__.py` first imports a module `settings`, and Python prefers this folder to its file.
Nothing of ours imports it.
"""

import sys

__all__ = []

if not hasattr(sys.modules["keras_attention"], "__version__"):
    raise ImportError(
        "The distribution keras-attention has overwritten files of keras-attention-layers: both "
        "install a folder `keras_attention`, so only one of them can be installed. Run: "
        "pip uninstall -y keras-attention && "
        "pip install --force-reinstall --no-deps keras-attention-layers"
    )
