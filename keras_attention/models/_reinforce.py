"""Samples of positions, and the loss whose gradient is the estimate of REINFORCE."""

import keras
from keras import ops

from keras_attention._typing import Tensor
from keras_attention.ops.masks import first_largest
from keras_attention.ops.samples import take_last

DECAY = 0.9  # of the moving average


def sampled(logs: Tensor, generator: keras.random.SeedGenerator) -> Tensor:
    """Positions `(B, T)`, drawn with the log probabilities `(B, T, Tk)`."""
    # The largest of log a plus Gumbel noise is at j with probability a(j).
    uniform = keras.random.uniform(ops.shape(logs), dtype=logs.dtype, seed=generator)
    return first_largest(logs - ops.log(-ops.log(uniform)))


def reinforce(
    reward: Tensor, baseline: Tensor, logs: Tensor, position: Tensor, valid: Tensor, weight: float
) -> tuple[Tensor, Tensor]:
    """The loss, and the next baseline, a moving average of the mean reward.

        loss = - mean over valid b, i of (r[b,i] - m) log a[b,i,j] + w entropy(a[b,i,:])

    Args:
        reward: r, `(B, T)`, a constant for gradients. baseline: m, `()`.
        logs: log a, `(B, T, Tk)`. position: the sampled j, `(B, T)`.
        valid: `(B, T)` boolean. weight: w.
    """
    entropy = -ops.sum(ops.exp(logs) * logs, axis=-1)
    reward = ops.stop_gradient(reward)
    terms = (reward - baseline) * take_last(logs, position) + weight * entropy
    share = ops.cast(valid, logs.dtype)
    share = share / ops.maximum(ops.sum(share), 1.0)
    return -ops.sum(share * terms), DECAY * baseline + (1 - DECAY) * ops.sum(share * reward)
