"""The base of all heads: checks of a call, and dtypes."""

from __future__ import annotations

from typing import Any

import keras

from keras_attention._spec import MAX_STEPS, Spec, check_int
from keras_attention._typing import Tensor
from keras_attention.attention.checked_layer import CheckedLayer
from keras_attention.backend import ops

# What heads can read, beside the outputs of all steps or of one.
READ = Spec(
    *("output: float[B T D]", "inputs: float[B T Di]", "context: float[B T Dc]"),
    *("weights: float[B T Tk]", "memory: float[B Tk Dv]", "memory_mask: bool[B Tk]?"),
    *("source: any[B Tk]", "tokens: any[B T]", "targets: any[B T]"),
)
STEP = READ.replace(
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
        self._names = ()  # of the layers inside, attributes of the same names
        self._policies = {}  # of the layers inside that a saved head had quantised

    # The dtype of log probabilities.
    log_dtype = CheckedLayer.score_dtype

    def _check_tensors(self, tensors: dict[str, Any]) -> None:
        unread = set() if tensors.get("training") else {"targets"}
        read = [name for name in ("output", *self.reads) if name not in unread]
        tensors = {name: tensors.get(name) for name in read}
        spec = STEP if len(getattr(tensors["output"], "shape", ())) == 2 else READ
        call = f"head(output, {', '.join(f'{x}=...' for x in self.reads)})"
        spec.check(self.name, tensors, call=call)

    def joined(self, *tensors: Tensor) -> Tensor:
        """The tensors side by side, in the compute dtype."""
        return ops.concatenate([ops.cast(x, self.compute_dtype) for x in tensors], axis=-1)

    def get_build_config(self) -> dict | None:
        """The shapes of the inputs, and how the layers inside were quantised."""
        inside = [getattr(self, name) for name in self._names]
        policies = {
            x.name: keras.dtype_policies.serialize(x.dtype_policy)
            for x in inside
            if x.quantization_mode
        }
        config = super().get_build_config()
        return {**(config or {}), "policies": policies} if policies else config

    def build_from_config(self, config: dict) -> None:
        policies = config.get("policies", {})
        self._policies = {
            name: keras.dtype_policies.deserialize(policy) for name, policy in policies.items()
        }
        super().build_from_config({name: x for name, x in config.items() if name != "policies"})

    def dense(self, name: str, units: int, width: int, **options: Any) -> keras.layers.Dense:
        """Makes a `Dense` with weights, with the dtype policy of the head or one that was saved."""
        self._names += (name,)
        policy = self._policies.get(name, self.dtype_policy)
        layer = keras.layers.Dense(units, dtype=policy, name=name, **options)
        layer.build((None, width))
        return layer


def check_vocabulary(layer: str, vocabulary_size: int | None) -> int:
    hint = "It is the number of tokens, the padding included."
    return check_int(layer, "vocabulary_size", vocabulary_size, 1, MAX_STEPS, hint)
