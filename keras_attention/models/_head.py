"""The base of all heads: checks of a call, and dtypes."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_attention._spec import LONGEST, Spec, check_int
from keras_attention._typing import Tensor
from keras_attention.layers.base import CheckedLayer

# What heads can read, beside the outputs of all steps or of one.
READ = Spec(
    *("output: float[B T D]", "inputs: float[B T Di]", "context: float[B T Dc]"),
    *("weights: float[B T Tk]", "memory: float[B Tk Dv]", "memory_mask: bool[B Tk]?"),
    *("source: any[B Tk]", "tokens: any[B T]", "targets: any[B T]"),
)
STEP = READ.but(
    *("output: float[B D]", "inputs: float[B Di]", "context: float[B Dc]", "weights: float[B Tk]"),
    *("tokens: any[B]", "targets: any[B]"),
)


class Head(CheckedLayer):
    """Checks the tensors of `reads`. It casts in its own `call`, where it needs float32 or more."""

    # The names of what it reads, beside the output of the decoder.
    reads: tuple[str, ...] = ()

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

    def _check_tensors(self, given: dict[str, Any]) -> None:
        unread = set() if given.get("training") else {"targets"}
        given = {name: given.get(name) for name in ("output", *self.reads) if name not in unread}
        spec = STEP if len(getattr(given["output"], "shape", ())) == 2 else READ
        call = f"head(output, {', '.join(f'{x}=...' for x in self.reads)})"
        spec.check(self.name, given, call=call)

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
    hint = "It is the number of tokens, the padding included."
    return check_int(layer, "vocabulary_size", vocabulary_size, 1, LONGEST, hint)


def built(layer: keras.layers.Layer, width: int) -> None:
    """Builds a layer for inputs of this width, unless it was built before."""
    if not layer.built:
        layer.build((None, width))
