"""How much of the memory a hypothesis has read, and the scores for it."""

from typing import Any

from keras import ops

from keras_attention._checks import check_choice, described, dtype_of
from keras_attention._shapes import fits
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
    if not hasattr(mask, "shape") or len(mask.shape) != 2 or dtype_of(mask) != "bool":
        raise ValueError(
            "memory_mask must be a boolean tensor (batch, memory steps), True where the memory is "
            f"valid; received {described(mask)}."
        )
    return ops.convert_to_tensor(mask)


def check_coverage(kind: str) -> None:
    check_choice("beam_search", "coverage", kind, ("gnmt", "summary"))


def check_width(mask: Tensor | None, weights: Tensor | None) -> None:
    """The mask `(B, Tk)` beside the weights of a step, `(N, Tk)`."""
    if mask is None or weights is None:
        return
    if not fits(tuple(mask.shape)[1:], tuple(weights.shape)[1:]):
        raise ValueError(
            "memory_mask must have a place for each attention weight, (batch, "
            f"{weights.shape[1]}); received {tuple(mask.shape)}. Make it of the source that the "
            "memory encodes."
        )


def summed(weights: Tensor | None, before: list[Tensor]) -> Tensor:
    """Adds the weights of a step, `(N, Tk)`, to the sum of the steps before, `[(N, Tk)]` or []."""
    if weights is None:
        raise ValueError(
            "coverage_penalty needs the attention weights, but step returned None in their place. "
            "Return them as the third output, (logits, state, weights)."
        )
    weights = ops.cast(weights, "float32")
    return before[0] + weights if before else weights
