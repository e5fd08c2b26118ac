"""Strategies of TensorFlow that Keras 3 does not support."""

import warnings

import keras

_UNSUPPORTED = {
    "MultiWorkerMirroredStrategy": "with several workers, only a training loop of your own works",
    "ParameterServerStrategy": "no workaround is known",
}


def warn_of_strategy() -> None:
    """Warns in the scope of a strategy that Keras 3 does not support."""
    if keras.backend.backend() != "tensorflow":
        return
    import tensorflow as tf

    if not tf.distribute.has_strategy():
        return
    strategy = tf.distribute.get_strategy()
    for name, problem in _UNSUPPORTED.items():
        if isinstance(strategy, getattr(tf.distribute, name)):
            warnings.warn(
                f"Keras 3 does not support tf.distribute.{name}: {problem}. For several machines, "
                "set KERAS_BACKEND=jax and use keras.distribution with "
                "keras.distribution.initialize(). On one machine with several GPUs, use "
                "tf.distribute.MirroredStrategy.",
                stacklevel=2,
            )
