"""The base of all heads: checks of a call, and layers of weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

import keras

from keras_attention._spec import MAX_STEPS, Spec, check_int
from keras_attention._typing import LayerOptions, Tensor
from keras_attention.attention.checked_layer import CheckedLayer
from keras_attention.backend import ops

# The tensors that heads can read, for all steps or for one.
SEQUENCE = Spec(
    *("output: float[B T D]", "inputs: float[B T Di]", "context: float[B T Dc]"),
    *("weights: float[B T Tk]", "memory: float[B Tk Dv]", "memory_mask: bool[B Tk]?"),
    *("source: any[B Tk]", "tokens: any[B T]", "targets: any[B T]"),
)
STEP = SEQUENCE.replace(
    *("output: float[B D]", "inputs: float[B Di]", "context: float[B Dc]", "weights: float[B Tk]"),
    *("tokens: any[B]", "targets: any[B]"),
)


class Head(CheckedLayer):
    """Checks the tensors of `reads`. Its `call` casts where it needs at least float32."""

    # The names of the tensors that the head reads, beside the output of the decoder.
    reads: tuple[str, ...] = ()
    log_dtype = CheckedLayer.score_dtype  # of log probabilities

    def __init__(self, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        # Keras would cast weights and states, which a logarithm follows, to half precision.
        self.autocast = False
        self.supports_masking = True
        self._names = ()  # of the layers inside, attributes of the same names
        self._policies = {}  # of the layers inside that a saved head had quantised

    def _check_tensors(self, tensors: dict[str, Tensor]) -> None:
        unread = set() if tensors.get("training") else {"targets"}
        tensors = {x: tensors.get(x) for x in ("output", *self.reads) if x not in unread}
        spec = STEP if len(getattr(tensors["output"], "shape", ())) == 2 else SEQUENCE
        call = f"head(output, {', '.join(f'{x}=...' for x in self.reads)})"
        spec.check(self.name, tensors, call=call)

    def concatenated(self, *tensors: Tensor) -> Tensor:
        """Concatenate the features of tensors, in the compute dtype."""
        return ops.concatenate([ops.cast(x, self.compute_dtype) for x in tensors], axis=-1)

    def get_build_config(self) -> dict | None:
        """Return the shapes of the inputs, and how the layers inside were quantised."""
        inside = [getattr(self, name) for name in self._names]
        policies = {
            x.name: keras.dtype_policies.serialize(x.dtype_policy)
            for x in inside
            if x.quantization_mode
        }
        config = super().get_build_config()
        return {**(config or {}), "policies": policies} if policies else config

    def build_from_config(self, config: Mapping) -> None:
        policies = config.get("policies", {})
        self._policies = {
            name: keras.dtype_policies.deserialize(policy) for name, policy in policies.items()
        }
        super().build_from_config({name: x for name, x in config.items() if name != "policies"})

    def dense(self, name: str, units: int, width: int, **options: Any) -> keras.layers.Dense:
        """Make a `Dense` with weights, with the dtype policy of the head or one that was saved."""
        self._names += (name,)
        policy = self._policies.get(name, self.dtype_policy)
        layer = keras.layers.Dense(units, dtype=policy, name=name, **options)
        layer.build((None, width))
        return layer


def check_vocabulary(layer: str, vocabulary_size: int | None) -> int:
    return check_int(layer, "vocabulary_size", vocabulary_size, 1, MAX_STEPS)
