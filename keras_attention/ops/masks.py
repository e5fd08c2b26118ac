"""Boolean masks, True where attention is allowed."""

import math
from typing import NamedTuple

from keras_attention._typing import Size, Tensor
from keras_attention.backend import execution_context, ops
from keras_attention.ops.windows.positions import take_windows

__all__ = ["Masks", "all_of", "argmax", "causal_mask", "last_valid", "take_last", "zero_masked"]


def argmax(x: Tensor) -> Tensor:
    """Return the index of the largest element of the last axis, the first of equal ones; int32.

    ONNX can run it. In TensorFlow `ops.argmax` of floating-point numbers looks at sign bits, which
    ONNX cannot.

    Example:
        >>> import numpy
        >>> from keras import ops
        >>> from keras_attention.ops.masks import argmax
        >>> scores = numpy.array([[0.1, 0.7, 0.7], [0.5, 0.2, 0.3]])
        >>> ops.convert_to_numpy(argmax(scores)).tolist()
        [1, 0]
    """
    if x.shape[-1] == 0:
        return ops.zeros(ops.shape(x)[:-1], "int32")
    largest = ops.cast(x == ops.max(x, axis=-1, keepdims=True, initial=-math.inf), "int32")
    if x.shape[-1] is None:  # a graph may run with an empty axis, where argmax would fail
        largest = ops.pad(largest, [[0, 0]] * (len(x.shape) - 1) + [[0, 1]])
    return ops.cast(ops.argmax(largest, axis=-1), "int32")


def mean_or_zero(x: Tensor) -> Tensor:
    """Return the mean of a vector; zero for an empty one.

    Example:
        >>> import numpy
        >>> from keras_attention.ops.masks import mean_or_zero
        >>> [float(mean_or_zero(numpy.array(x, "float32"))) for x in ([1, 3], [])]
        [2.0, 0.0]
    """
    return ops.sum(x) / ops.cast(ops.maximum(ops.shape(x)[0], 1), x.dtype)


def last_valid(mask: Tensor) -> Tensor:
    """Return the last position where a mask `(B, 1, Tk)` is True, `(B, 1)` int32; 0 without one.

    Example:
        >>> import numpy
        >>> from keras import ops
        >>> from keras_attention.ops.masks import last_valid
        >>> mask = numpy.array([[[True, True, False]], [[False, False, False]]])
        >>> ops.convert_to_numpy(last_valid(mask)).tolist()
        [[1], [0]]
    """
    if mask.shape[-1] == 0:
        return ops.zeros(ops.shape(mask)[:-1], "int32")
    position = ops.arange(ops.shape(mask)[-1], dtype="int32")
    return ops.max(ops.where(mask, position, 0), axis=-1, initial=0)


def take_last(x: Tensor, index: Tensor) -> Tensor:
    """Take one element of every row, `x[..., index[...]]`.

    Args:
        x: `(..., D)`.
        index: `(...)`, integers from 0 to D - 1.

    Returns:
        `(...)`.
    """
    index = ops.expand_dims(ops.cast(index, "int32"), -1)
    return ops.squeeze(ops.take_along_axis(x, index, axis=-1), -1)


def zero_masked(sequence: Tensor, mask: Tensor | None) -> Tensor:
    """Replace the masked steps of a sequence by zeros.

    A weight of zero is not enough: padding may hold NaN, and 0 * NaN is NaN.

    Args:
        sequence: `(B, T, D)`.
        mask: boolean, `(B, T)` or of single elements, `(B, T, D)`, True for what is valid; None if
            everything is.

    Returns:
        `(B, T, D)`.

    Example:
        >>> import numpy
        >>> from keras import ops
        >>> from keras_attention.ops.masks import zero_masked
        >>> sequence = numpy.array([[[1.0], [2.0], [numpy.nan]]])
        >>> mask = numpy.array([[True, True, False]])
        >>> ops.convert_to_numpy(zero_masked(sequence, mask)).tolist()
        [[[1.0], [2.0], [0.0]]]
    """
    if mask is None:
        return sequence
    mask = ops.expand_dims(mask, 2) if len(mask.shape) == 2 else mask
    context = execution_context(sequence)
    if not context.graph or context.compiled:
        return ops.where(mask, sequence, ops.zeros_like(sequence))
    # The graph may be converted to ONNX. There `where` is a sum of two products, which keeps
    # NaN, unless its condition is `isnan`.
    hidden = ops.isnan(ops.where(mask, 0.0, float("nan")))
    return ops.where(hidden, ops.cast(0, sequence.dtype), sequence)


def all_of(*masks: Tensor | None) -> Tensor | None:
    """Join masks that broadcast to each other: True where all of them are True.

    Args:
        masks: boolean tensors; None stands for a mask that is True everywhere.

    Returns:
        One mask, or None if there is none to join.

    Example:
        >>> import numpy
        >>> from keras import ops
        >>> from keras_attention.ops.masks import all_of, causal_mask
        >>> words = numpy.array([[True, False, True]])
        >>> ops.convert_to_numpy(all_of(words, None, causal_mask(2, 3))).tolist()
        [[True, False, False], [True, False, False]]
    """
    result = None
    for mask in masks:
        if mask is not None:
            result = mask if result is None else ops.logical_and(result, mask)
    return result


def causal_mask(steps: Size, length: Size) -> Tensor:
    """Let every query step attend to the memory steps up to its own.

    Args:
        steps: Tq, an integer or a scalar tensor.
        length: Tk, an integer or a scalar tensor.

    Returns:
        `(Tq, Tk)` boolean, True where the memory step does not come after the query step.

    Example:
        >>> from keras import ops
        >>> from keras_attention.ops import causal_mask
        >>> ops.convert_to_numpy(causal_mask(2, 3)).tolist()
        [[True, False, False], [True, True, False]]
    """
    rows, columns = ops.arange(steps), ops.arange(length)
    return ops.expand_dims(rows, 1) >= ops.expand_dims(columns, 0)


class Masks(NamedTuple):
    """Which memory steps each query may attend to; a mask that is None allows everything.

    Attributes:
        memory: `(B, Tk)` boolean.
        query: `(B, Tq)` boolean.
        pairs: `(Tq, Tk)` or `(B, Tq, Tk)` boolean.
        causal: whether query step i attends to the memory steps 0 .. i only.

    Example:
        >>> import numpy
        >>> from keras import ops
        >>> from keras_attention.ops.masks import Masks
        >>> query, value = numpy.ones((1, 2, 5)), numpy.ones((1, 3, 7))
        >>> masks = Masks(memory=numpy.array([[False, True, True]]), causal=True)
        >>> ops.convert_to_numpy(masks.joined(query, value)).tolist()
        [[[False, False, False], [False, True, False]]]
    """

    memory: Tensor | None = None
    query: Tensor | None = None
    pairs: Tensor | None = None
    causal: bool = False

    def joined(self, query: Tensor, value: Tensor) -> Tensor | None:
        """Join the masks of a query and a value; broadcasts to `(B, Tq, Tk)`, or None."""
        causal = None
        if self.causal:
            causal = causal_mask(ops.shape(query)[1], ops.shape(value)[1])
        return all_of(
            None if self.memory is None else ops.expand_dims(self.memory, 1),
            None if self.query is None else ops.expand_dims(self.query, 2),
            self.pairs,
            causal,
        )

    def at(self, position: Tensor) -> Tensor | None:
        """Join the masks at the memory steps `(B, Tq, W)`; broadcasts to that shape, or None."""
        batch, steps, _ = ops.shape(position)
        pairs = self.pairs
        if pairs is not None:
            pairs = ops.broadcast_to(pairs, (batch, steps, ops.shape(pairs)[-1]))
            pairs = ops.take_along_axis(pairs, position, axis=-1)
        row = ops.reshape(ops.arange(steps, dtype="int32"), (1, -1, 1))
        return all_of(
            None if self.memory is None else take_windows(self.memory, position),
            None if self.query is None else ops.expand_dims(self.query, 2),
            pairs,
            row >= position if self.causal else None,
        )
