"""Drawing tokens at random from rows of logits."""

import math
from typing import Any

import keras
from keras import ops

from keras_attention._checks import LAST_SEED, described, dtype_of, is_integer
from keras_attention._typing import Tensor
from keras_attention.search._largest import largest

HALVINGS = 28  # of an interval of about 20 between logarithms: to less than the error of float32


def draw(
    logits: Tensor,
    temperature: float,
    top_k: int | None,
    top_p: float | None,
    seed: keras.random.SeedGenerator,
) -> Tensor:
    """Draws a token for each row of `(N, V)`, `(N,)`; see `sample_search`.

    A token without probability is never drawn, unless the row has no other.
    """
    tokens = None
    if top_k is not None and top_k < logits.shape[-1]:
        logits, tokens = largest(logits, top_k)
    peak = ops.max(logits, axis=-1, keepdims=True)
    mass = ops.exp((logits - peak) / temperature)
    if top_p is not None and top_p < 1:
        mass = ops.where(mass >= _least_kept(mass, top_p), mass, 0.0)
    index = _race(mass, seed)
    return index if tokens is None else _take(tokens, index)


def _least_kept(mass, top_p):
    """The smallest mass that top_p keeps, `(N, 1)`, found by bisection instead of sorting.

    The largest mass of a row is 1. All masses below (1 - top_p) / V of the total are together less
    than 1 - top_p of it, so that the smallest mass kept is larger.
    """
    total = ops.sum(mass, axis=-1, keepdims=True)
    least = ops.log(total * ((1 - top_p) / mass.shape[-1]))

    def halve(_, bounds):
        low, high = bounds  # enough is at least as large as exp(low), but not as exp(high)
        middle = (low + high) / 2
        kept = ops.where(mass >= ops.exp(middle), mass, 0.0)
        enough = ops.sum(kept, axis=-1, keepdims=True) >= top_p * total
        return ops.where(enough, middle, low), ops.where(enough, high, middle)

    return ops.exp(ops.fori_loop(0, HALVINGS, halve, (least, ops.zeros_like(least)))[0])


def _race(mass, seed):
    """Draws an index of each row with the probabilities mass / sum(mass).

    The least of exponential times with the rates `mass` comes first with just these probabilities.
    The row is cut into groups: one race of the groups, then one in the group that has won, so that
    a vocabulary of V tokens takes about 2 sqrt(V) random numbers.
    """
    size = mass.shape[-1]
    group = math.isqrt(size - 1) + 1
    groups = -(-size // group)
    mass = ops.pad(mass, ((0, 0), (0, groups * group - size)))
    mass = ops.reshape(mass, (-1, groups, group))
    shape = (ops.shape(mass)[0], groups + group)
    # Above zero, whose logarithm is infinite, and below one, whose logarithm is zero.
    times = -ops.log(keras.random.uniform(shape, 1e-30, 1 - 2.0**-24, dtype="float32", seed=seed))
    winner = ops.argmax(ops.sum(mass, axis=-1) / times[:, :groups], axis=-1)
    winner = ops.cast(winner, "int32")
    inside = ops.squeeze(ops.take_along_axis(mass, ops.reshape(winner, (-1, 1, 1)), axis=1), 1)
    index = group * winner + ops.cast(ops.argmax(inside / times[:, groups:], axis=-1), "int32")
    return ops.minimum(index, size - 1)  # NaN everywhere, and a padded place has won


def _take(x, index):
    return ops.squeeze(ops.take_along_axis(x, ops.expand_dims(index, -1), axis=1), -1)


def step_seeds(seed: Any, count: int) -> Tensor:
    """Seeds for the steps of a search, `(count, 2)`, drawn before its loop.

    A loop that XLA compiles cannot change the variable of a `SeedGenerator`.
    """
    if is_integer(seed) and 0 <= seed <= LAST_SEED:
        seed = int(seed)
    elif getattr(seed, "shape", None) == () and "int" in dtype_of(seed):
        seed = ops.cast(seed, "int32")
        seed = Seed(ops.stack([seed, ops.zeros_like(seed)]))
    elif seed is not None and not isinstance(seed, keras.random.SeedGenerator):
        raise ValueError(
            f"seed must be an integer from 0 to {LAST_SEED}, a scalar integer tensor, a "
            f"keras.random.SeedGenerator or None; received {described(seed)}."
        )
    return keras.random.randint((count, 2), 0, 2**31 - 1, seed=seed)


class Seed(keras.random.SeedGenerator):
    """Gives functions of `keras.random` a seed `(2,)` that a tensor holds, without a variable."""

    def __init__(self, value: Tensor):
        # JAX takes the tensor for a key, TensorFlow wants int32.
        self.value = ops.cast(value, "uint32" if keras.backend.backend() == "jax" else "int32")

    def next(self, ordered: bool = True) -> Tensor:
        return self.value
