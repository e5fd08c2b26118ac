"""Calls the head of a model with what it reads."""

from typing import Any

from keras import ops

from keras_attention._typing import Nested, Tensor


def first_head_state(head: Any, memory: Tensor, memory_mask: Tensor | None) -> Nested:
    """The initial state of a head, or None for a head without one."""
    if not hasattr(head, "initial_state"):
        return None
    return head.initial_state(memory, memory_mask)


def decoded_logits(
    model: Any,
    output: Tensor,
    features: dict[str, Tensor | None],
    state: Nested = None,
    training: bool | None = None,
) -> Any:
    """Logits of the output of a decoder; `(logits, state)` if a state is given.

    Args:
        features: the tensors that a head may read, by name, except for the context.
    """
    head = model.head
    if head is None:
        return model.target_embedding(output, reverse=True)
    reads = getattr(head, "reads", ())
    if "context" in reads:
        features = {**features, "context": _context(features["weights"], features["memory"])}
    if not set(reads) <= set(features):
        raise ValueError(
            f"{head.name}: `reads` names {sorted(set(reads) - set(features))}, but a head can read "
            f"{sorted({*features, 'context'})}."
        )
    options = {name: features[name] for name in reads}
    if state is not None:
        options["state"] = state
    found = head(output, **options, training=training)
    found, *state = found if state is not None else [found]
    if getattr(head, "tied", False):
        found = model.target_embedding(found, reverse=True)
    return (found, *state) if state else found


def _context(weights, memory):
    weights = ops.cast(weights, memory.dtype)
    if len(weights.shape) == 2:
        return ops.squeeze(ops.matmul(ops.expand_dims(weights, 1), memory), 1)
    return ops.matmul(weights, memory)
