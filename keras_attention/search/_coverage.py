"""How much of the memory a hypothesis has read, and the scores for it."""

from typing import Any

from keras import ops

from keras_attention._spec import fits, is_tensor, refuse
from keras_attention._typing import Tensor

# The smallest coverage that counts. It keeps the logarithm finite.
FLOOR = 1e-10


def coverage_score(kind: str, read: Tensor, mask: Tensor | None) -> Tensor:
    """The coverage terms of `beam_search`, from the summed weights `(N, Tk)`: `(N,)`."""
    unread, reread = ops.log(ops.clip(read, FLOOR, 1.0)), 1.0 - ops.maximum(read, 1.0)
    terms = unread if kind == "gnmt" else reread
    return ops.sum(terms if mask is None else ops.where(mask, terms, 0.0), axis=-1)


def checked_mask(mask: Any) -> Tensor | None:
    if mask is None:
        return None
    if not is_tensor(mask, "bool", None, None):
        expected = "`memory_mask` must be boolean (batch, memory steps), True where it is valid"
        refuse("beam_search", expected, mask)
    return ops.convert_to_tensor(mask)


def check_width(mask: Tensor | None, weights: Tensor | None) -> None:
    """The mask `(B, Tk)` beside the weights of a step, `(N, Tk)`."""
    if mask is None or weights is None:
        return
    if not fits(tuple(mask.shape)[1:], tuple(weights.shape)[1:]):
        expected = f"`memory_mask` must have a place for each weight, (batch, {weights.shape[1]})"
        refuse("beam_search", expected, mask, "Make it of the source that the memory encodes.")


def summed(weights: Tensor | None, before: list[Tensor]) -> Tensor:
    """Adds the weights of a step, `(N, Tk)`, to the sum of the steps before, `[(N, Tk)]` or []."""
    if weights is None:
        expected = "`coverage_penalty` needs the weights, the third output of `step`"
        refuse("beam_search", expected, None)
    weights = ops.cast(weights, "float32")
    return before[0] + weights if before else weights
