"""Imports Keras, with an error that says what to install if its backend is missing."""

import importlib.util

BACKENDS = ("tensorflow", "jax", "torch")

try:
    import keras  # noqa: F401
except ModuleNotFoundError as error:
    if error.name not in BACKENDS:
        raise
    found = [name for name in BACKENDS if importlib.util.find_spec(name) is not None]
    settings = " or ".join(f"KERAS_BACKEND={name}" for name in found)
    remedy = (
        f"Set the environment variable {settings}"
        if found
        else f"Install it: pip install {error.name}. Or install another of {', '.join(BACKENDS)} "
        "and set the environment variable KERAS_BACKEND to its name"
    )
    raise ModuleNotFoundError(
        f"Keras is set to run on {error.name}, which is not installed. {remedy}.", name=error.name
    ) from None
