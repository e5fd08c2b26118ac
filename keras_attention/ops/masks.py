"""Boolean masks, True where attention is allowed."""

from typing import Any, NamedTuple

from keras import ops

from keras_attention.ops.windows import take_windows

__all__ = ["Masks", "all_of", "blanked", "causal_mask"]


def blanked(sequence, mask):
    """`(B, T, D)` with zeros where the mask `(B, T)`, or None, is False."""
    # Padding may hold anything, NaN included, and 0 * NaN is NaN.
    if mask is None:
        return sequence
    return ops.where(ops.expand_dims(mask, 2), sequence, ops.zeros_like(sequence))


def all_of(*masks):
    """Masks that broadcast to each other, joined; None stands for a mask that is True."""
    masks = [mask for mask in masks if mask is not None]
    if not masks:
        return None
    result, *rest = masks
    for mask in rest:
        result = ops.logical_and(result, mask)
    return result


def causal_mask(steps, length):
    """`(Tq, Tk)`, True where the memory step is not after the query step.

    Args:
        steps, length: Tq and Tk. Both may be tensors.
    """
    rows, columns = ops.arange(steps), ops.arange(length)
    return ops.expand_dims(rows, 1) >= ops.expand_dims(columns, 0)


class Masks(NamedTuple):
    """What forbids a query to attend to a memory step; None where a mask is missing.

    memory: `(B, Tk)`. query: `(B, Tq)`. pairs: `(Tq, Tk)` or `(B, Tq, Tk)`. causal: a Python
    boolean, whether query i may only attend to the memory steps 0 .. i.
    """

    memory: Any = None
    query: Any = None
    pairs: Any = None
    causal: bool = False

    def joined(self, steps, length):
        """One mask for all pairs, that broadcasts to `(B, Tq, Tk)`, or None."""
        return all_of(
            None if self.memory is None else ops.expand_dims(self.memory, 1),
            None if self.query is None else ops.expand_dims(self.query, 2),
            self.pairs,
            causal_mask(steps, length) if self.causal else None,
        )

    def at(self, position):
        """The same for the memory steps `(B, Tq, W)` only: broadcasts to `(B, Tq, W)`, or None."""
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
