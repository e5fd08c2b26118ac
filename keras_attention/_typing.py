"""Names for types that Keras does not define."""

from collections.abc import Callable
from typing import Any, TypeAlias, TypedDict

import keras

# No type covers the tensors of all backends, symbolic tensors and arrays. The name tells a reader
# what to pass; a type checker accepts everything.
Tensor: TypeAlias = Any
# Tensors in any nesting of tuples, lists and dictionaries, or None.
Nested: TypeAlias = Any
# A Python integer where the size of an axis is known, otherwise a scalar tensor.
Size: TypeAlias = int | Tensor
# The shape of a tensor; None for a size that is not known.
TensorShape: TypeAlias = tuple[int | None, ...]
# The configuration of a layer or a tokenizer, as a file holds it.
Config: TypeAlias = dict[str, Any]
# What `Tokenizer.tensorflow_functions` returns.
TextFunctions: TypeAlias = tuple[Callable[..., Tensor], Callable[..., Tensor], list[object]]
# None where Keras passes no shape, because there is no such input.
Shape: TypeAlias = TensorShape | None


class LayerOptions(TypedDict, total=False):
    """The constructor arguments of every Keras layer."""

    name: str | None
    dtype: str | keras.DTypePolicy | None
    trainable: bool
    autocast: bool
    activity_regularizer: object


class DropoutOptions(LayerOptions, total=False):
    """The constructor arguments of a layer that drops weights."""

    dropout: float
    seed: int | None


class ScoringOptions(DropoutOptions, total=False):
    """The constructor arguments of `ScoringMixin`."""

    normalizer: str


class RecurrentScoringOptions(ScoringOptions, total=False):
    """The constructor arguments of `RecurrentScoringMixin`."""

    half_width: int | None
