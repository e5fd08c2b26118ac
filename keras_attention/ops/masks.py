"""Boolean masks, True where attention is allowed."""

from keras import ops


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
