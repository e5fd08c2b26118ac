"""The distribution over the position that hard attention reads."""

from keras import ops

from keras_attention._typing import Tensor
from keras_attention.ops.loops import scan, swap_steps
from keras_attention.ops.masks import first_largest
from keras_attention.ops.samples import take_last

# The logarithm of the probability of an impossible position. Unlike -inf it is finite, so that
# gradients are not NaN where nothing is valid.
FLOOR = -1e30
SMALLEST = 1e-30  # what a weight of zero counts as at a valid position


def log_weights(weights: Tensor, mask: Tensor | None) -> Tensor:
    """log a, `(B, T, Tk)`, `FLOOR` where the mask `(B, Tk)` is False.

    A row sums to one. Where nothing is valid, all positions are equally probable.
    """
    logs = ops.log(ops.maximum(weights, SMALLEST))
    if mask is not None:
        logs = ops.where(ops.expand_dims(mask, 1), logs, FLOOR)
    return ops.log_softmax(logs, axis=-1)


def log_start(memory: Tensor, mask: Tensor | None, dtype: str) -> Tensor:
    """The log distribution `(B, Tk)` of a reader at the first valid position, or else the first."""
    valid = ops.ones_like(memory[..., 0], "float32") if mask is None else ops.cast(mask, "float32")
    place = ops.arange(ops.shape(memory)[1], dtype="int32")
    at_start = place == ops.expand_dims(first_largest(valid), 1)
    return ops.cast(ops.where(at_start, 0.0, FLOOR), dtype)


def advance(predicted: Tensor, said: Tensor, logs: Tensor) -> Tensor:
    """One step of the recursion over positions that never move back.

        r(j')  = p(j' | y[<i])        = P[i-1](j') p(y[i-1] | j') / (their sum over j')
        P[i](j) = p(j | y[<i])        = sum over j' <= j of r(j') a[i](j) / (sum_{l >= j'} a[i](l))

    Args:
        predicted: log P[i-1], `(B, Tk)`. said: log p(y[i-1] | j), `(B, Tk)`.
        logs: log a[i], `(B, Tk)`.

    Returns:
        log P[i], `(B, Tk)`.
    """
    place = ops.arange(ops.shape(logs)[1], dtype="int32")
    ahead = ops.expand_dims(place, 1) <= place
    moves = ops.log_softmax(ops.where(ahead, ops.expand_dims(logs, 1), FLOOR), axis=-1)
    read = ops.log_softmax(predicted + said, axis=-1)
    return ops.logsumexp(ops.expand_dims(read, 2) + moves, axis=1)


def log_forward(start: Tensor, said: Tensor, logs: Tensor) -> Tensor:
    """All steps of `advance`.

    Args:
        start: `(B, Tk)`. said: `(B, T, Tk)`, zeros at the first step. logs: `(B, T, Tk)`.

    Returns:
        log P, `(B, T, Tk)`.
    """

    def step(predicted, inputs):
        predicted = advance(predicted, *inputs)
        return predicted, predicted

    return swap_steps(scan(step, start, (swap_steps(said), swap_steps(logs)))[1])


def probability_of(tokens: Tensor, log_probs: Tensor) -> Tensor:
    """The log probability of the tokens `(B, T)` at every position, `(B, T, Tk)`."""
    tokens = ops.broadcast_to(ops.expand_dims(tokens, 2), ops.shape(log_probs)[:-1])
    return take_last(log_probs, tokens)
