"""The types that annotations of this package share."""

from typing import Any, TypeAlias

# Keras has no name for the tensors of all its backends. A missing tensor is None.
Tensor: TypeAlias = Any
# None where Keras passes no shape because there is no such input.
Shape: TypeAlias = tuple[int | None, ...] | None
