"""Names for types that Keras does not define."""

from typing import Any, TypeAlias

# No type covers the tensors of all backends, symbolic tensors and arrays. The name tells a reader
# what to pass; a type checker accepts everything.
Tensor: TypeAlias = Any
# Tensors in any nesting of tuples, lists and dictionaries, or None.
Nested: TypeAlias = Any
# A Python integer where the size of an axis is known, otherwise a scalar tensor.
Size: TypeAlias = int | Tensor
# None where Keras passes no shape, because there is no such input.
Shape: TypeAlias = tuple[int | None, ...] | None
