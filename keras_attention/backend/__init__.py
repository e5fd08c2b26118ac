"""Every difference between _backends, and nothing else.

`tensorflow.py`, `jax.py` and `torch.py` have the same names; the one on which Keras runs is chosen
here, once. The others are not imported. `structures.py` and `context.py` serve all of them.
"""

import importlib.util

try:
    import keras
except ModuleNotFoundError as _error:
    _backends = "tensorflow", "jax", "torch"
    if _error.name not in _backends:
        raise
    _installed = [name for name in _backends if importlib.util.find_spec(name) is not None]
    _settings = " or ".join(f"KERAS_BACKEND={name}" for name in _installed)
    _remedy = (
        f"Set the environment variable {_settings}"
        if _installed
        else f"Install it: pip install {_error.name}. Or install another of {', '.join(_backends)} "
        "and set the environment variable KERAS_BACKEND to its name"
    )
    raise ModuleNotFoundError(
        f"Keras is set to run on {_error.name}, which is not installed. {_remedy}.",
        name=_error.name,
    ) from None

from keras_attention.backend.context import Compiling, ExecutionContext, compiling
from keras_attention.backend.structures import (
    Body,
    Function,
    leaves,
    swap_steps,
    tree_map,
    unflatten_as,
    where_valid,
)

if keras.backend.backend() == "jax":
    from keras_attention.backend.jax import *  # noqa: F403
elif keras.backend.backend() == "torch":
    from keras_attention.backend.torch import *  # noqa: F403
else:
    from keras_attention.backend.tensorflow import *  # noqa: F403
