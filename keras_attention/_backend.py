"""Imports Keras, with an error that says what to install if its backend is missing."""

import importlib.util

BACKENDS = ("tensorflow", "jax", "torch")

try:
    import keras  # noqa: F401
except ModuleNotFoundError as error:
    if error.name not in BACKENDS:
        raise
    found = [name for name in BACKENDS if importlib.util.find_spec(name) is not None]
    remedy = (
        f"Set the environment variable KERAS_BACKEND={found[0]} to use {' or '.join(found)}"
        if found
        else "Install one: pip install 'keras-attention-layers[tensorflow]', or [jax] or [torch], "
        "then set the environment variable KERAS_BACKEND=jax or KERAS_BACKEND=torch"
    )
    raise ModuleNotFoundError(
        f"Keras is set to run on {error.name}, which is not installed. {remedy}.", name=error.name
    ) from None
