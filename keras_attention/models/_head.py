"""The base of all heads: checks of a call, and dtypes."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_attention._checks import LONGEST, check_positive_int
from keras_attention._shapes import check_batch, shape_of
from keras_attention._typing import Tensor
from keras_attention.layers.base import CheckedLayer

# The shapes of what a head can read, without the axis T where the output is one step.
SHAPES = {
    "inputs": "BTE",
    "tokens": "BT",
    "context": "BTD",
    "weights": "BTK",
    "memory": "BKD",
    "source": "BK",
    "targets": "BT",
}
AXES = {"B": "batch", "T": "steps", "K": "memory steps", "E": "features", "D": "features"}


class Head(CheckedLayer):
    """Checks what it is called with. It casts in its own `call`, where it needs float32 or more."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        # Keras would cast weights and states, which a logarithm follows, to half precision.
        self.autocast = False
        self.supports_masking = True
        self._names = ()  # of the layers inside
        self._policies = {}  # of the layers inside that a saved head had quantised

    @property
    def log_dtype(self) -> str:
        """The dtype of log probabilities: at least float32, whatever the compute dtype."""
        return "float64" if self.compute_dtype == "float64" else "float32"

    def check_read(self, output: Tensor, **read: Tensor) -> None:
        """Whether the output and everything that the head reads are there, with their axes."""
        steps = {2: "", 3: "T"}.get(len(output.shape))
        if steps is None:
            raise ValueError(
                f"{self.name}: `output` must have shape (batch, steps, features), or (batch, "
                f"features) for one step; received {tuple(output.shape)}."
            )
        for name, x in read.items():
            axes = SHAPES[name].replace("T", steps)
            shape = f"({', '.join(AXES[axis] for axis in axes)})"
            if x is None:
                raise ValueError(
                    f"{self.name}: `{name}` is missing. This head reads it; pass {name}=..., of "
                    f"shape {shape}."
                )
            if len(x.shape) != len(axes):
                raise ValueError(
                    f"{self.name}: `{name}` must have shape {shape} beside an `output` of shape "
                    f"{tuple(output.shape)}; received {tuple(x.shape)}."
                )
        check_batch(self.name, output=shape_of(output), **{k: shape_of(x) for k, x in read.items()})

    def joined(self, *tensors: Tensor) -> Tensor:
        """The tensors side by side, in the compute dtype."""
        return ops.concatenate([ops.cast(x, self.compute_dtype) for x in tensors], axis=-1)

    def get_build_config(self) -> dict | None:
        """The shapes of the inputs, and how the layers inside were quantised."""
        parts = {n: x.dtype_policy for n, x in self._parts().items() if x.quantization_mode}
        policies = {n: keras.dtype_policies.serialize(policy) for n, policy in parts.items()}
        config = super().get_build_config()
        return {**(config or {}), "policies": policies} if policies else config

    def build_from_config(self, config: dict) -> None:
        config = dict(config)
        for name, policy in config.pop("policies", {}).items():
            policy = self._policies[name] = keras.dtype_policies.deserialize(policy)
            if name in self._parts():
                self._parts()[name].dtype_policy = policy
        super().build_from_config(config)

    def _parts(self):
        """The layers inside that are made so far, which are attributes of their names."""
        parts = {name: getattr(self, name, None) for name in self._names}
        return {name: part for name, part in parts.items() if part is not None}

    def dense(self, units: int, name: str, **options: Any) -> keras.layers.Dense:
        """Makes a `Dense` with the dtype policy of the head, or with its own that was saved."""
        self._names += (name,)
        policy = self._policies.get(name, self.dtype_policy)
        return keras.layers.Dense(units, dtype=policy, name=name, **options)


def check_vocabulary(layer: str, vocabulary_size: int | None) -> int:
    hint = " It is the number of tokens, the padding included."
    return check_positive_int(layer, "vocabulary_size", vocabulary_size, LONGEST, hint)


def built(layer: keras.layers.Layer, width: int) -> None:
    """Builds a layer for inputs of this width, unless it was built before."""
    if not layer.built:
        layer.build((None, width))
