"""A model for keras-tuner whose attention is searched."""

import inspect
from collections.abc import Callable
from typing import Any

import keras
import keras_tuner

from keras_attention._spec import check_bool
from keras_attention.tuning.space import attention_space

__all__ = ["AttentionHyperModel"]


class AttentionHyperModel(keras_tuner.HyperModel):
    """A hypermodel whose attention layer keras-tuner searches.

    Args:
        build: function of hyperparameters and an attention layer, which returns a compiled model.
        name: name of the hypermodel, or None.
        tunable: False keeps the hyperparameters of `build` out of the search.
        space: keyword arguments of `attention_space`, such as `prefix` and `units`.

    Raises:
        ValueError: `build` is not a function of two arguments; `tunable` is not a boolean; a
            keyword argument is unknown to `attention_space`.

    Example:
        >>> import keras, keras_tuner
        >>> from keras_attention.tuning import AttentionHyperModel
        >>> def build(hp, attention):
        ...     words, question = keras.Input((7, 5)), keras.Input((3, 5))
        ...     model = keras.Model([question, words], attention(question, words))
        ...     model.compile(keras.optimizers.Adam(hp.Float("rate", 1e-4, 1e-2)), "mse")
        ...     return model
        >>> model = AttentionHyperModel(build).build(keras_tuner.HyperParameters())
        >>> model.layers[-1].name.startswith("bahdanau_attention")
        True
    """

    def __init__(
        self,
        build: Callable[[keras_tuner.HyperParameters, keras.layers.Layer], keras.Model],
        name: str | None = None,
        tunable: bool = True,
        **space: Any,
    ) -> None:
        super().__init__(name, check_bool("AttentionHyperModel", "tunable", tunable))
        form = "build must be a function of hyperparameters and a layer"
        if not callable(build):
            raise ValueError(f"{form}; received {build!r}.")
        try:
            inspect.signature(build).bind(None, None)
        except TypeError:
            raise ValueError(
                f"{form}, build(hp, attention); received one that takes {inspect.signature(build)}."
            ) from None
        known = set(inspect.signature(attention_space).parameters) - {"hp"}
        if set(space) - known:
            raise ValueError(
                f"AttentionHyperModel: {', '.join(sorted(set(space) - known))} unknown; options of "
                f"attention_space: {', '.join(sorted(known))}."
            )
        self._make_model, self._space = build, space

    def build(self, hp: keras_tuner.HyperParameters) -> keras.Model:
        """Returns the model for these hyperparameters, compiled."""
        return self._make_model(hp, attention_space(hp, **self._space))
