"""Sample tokens from rows of logits."""

import math

import keras

from keras_attention._spec import MAX_SEED, dtype_of, is_integer, raise_value_error
from keras_attention._typing import Tensor
from keras_attention.backend import SEED_DTYPE, ops
from keras_attention.ops.masks import take_last
from keras_attention.search._top_k import top_k as largest_logits


def draw(
    logits: Tensor,
    temperature: float | Tensor,
    top_k: int | None,
    top_p: float | Tensor | None,
    seed: Tensor,
) -> Tensor:
    """Sample a token per row of `(N, V)`, `(N,)`; see `sample_search`.

    A token of probability 0 is never drawn, unless the row has no other. The seed is `(2,)`.
    """
    tokens = None
    if top_k is not None and top_k < logits.shape[-1]:
        logits, tokens = largest_logits(logits, top_k)
    peak = ops.max(logits, axis=-1, keepdims=True)
    index = _draw_index(ops.exp((logits - peak) / temperature), top_p, seed)
    return index if tokens is None else take_last(tokens, index)


def _draw_index(mass, top_p, seed):
    """Sample an index per row with the probabilities mass / sum(mass), among the `top_p`.

    Nothing is sorted. An index belongs to the smallest set that holds the share `top_p` if all
    larger masses together are less. Any other index is resampled, from the larger masses only.
    On average, about log(1 / top_p) draws of a row are rejected.
    """
    size = mass.shape[-1]
    group = math.isqrt(size - 1) + 1
    groups = -(-size // group)
    mass = ops.pad(mass, ((0, 0), (0, groups * group - size)))
    mass = ops.reshape(mass, (-1, groups, group))
    sums = ops.sum(mass, axis=-1)
    index, limit = _race(mass, sums, ops.full_like(sums[:, :1], -1.0), seed)
    if top_p is not None:
        enough = top_p * ops.sum(sums, axis=-1)

        def again(i, index, limit, outside):
            sums = ops.sum(ops.where(mass > ops.expand_dims(limit, -1), mass, 0.0), axis=-1)
            outside = ops.sum(sums, axis=-1) >= enough
            other, lower = _race(mass, sums, limit, seed + i)
            limit = ops.where(ops.expand_dims(outside, -1), lower, limit)
            return i + 1, ops.where(outside, other, index), limit, outside

        start = ops.convert_to_tensor(1, "int32"), index, limit, ops.ones_like(index, "bool")
        _, index, *_ = ops.while_loop(
            lambda i, index, limit, outside: ops.any(outside),
            again,
            start,
            maximum_iterations=size,
        )
    return ops.minimum(index, size - 1)  # a padded index wins where all masses are NaN


def _race(mass, sums, limit, seed):
    """Sample an index with the probabilities of the masses above the limit; return its mass.

    Draw an exponential time for each index, with its mass as the rate. The index with the smallest
    time has these probabilities. The row is cut into groups, with the sums `sums`: one race of the
    groups, then one in the group that has won, so that V tokens take about 2 sqrt(V) random
    values.
    """
    count, groups, group = ops.shape(mass)
    times = -ops.log(
        keras.random.uniform(
            (count, groups + group),
            minval=1e-30,  # the logarithm of zero is infinite
            maxval=1 - 2.0**-24,  # the logarithm of one is zero
            dtype="float32",
            seed=_Seed(seed),
        )
    )
    winner = ops.cast(ops.argmax(sums / times[:, :groups], axis=-1), "int32")
    inside = ops.squeeze(ops.take_along_axis(mass, ops.reshape(winner, (-1, 1, 1)), axis=1), 1)
    inside = ops.where(inside > limit, inside, 0.0)
    best = ops.cast(ops.argmax(inside / times[:, groups:], axis=-1), "int32")
    return group * winner + best, ops.expand_dims(take_last(inside, best), -1)


def search_seed(seed: Tensor | int) -> Tensor:
    """Draw a seed `(2,)` for all steps of a search, before its loop.

    A loop that XLA compiles cannot change the variable of a `SeedGenerator`.
    """
    if is_integer(seed) and 0 <= seed <= MAX_SEED:
        seed = int(seed)
    elif getattr(seed, "shape", None) == () and "int" in dtype_of(seed):
        seed = ops.cast(seed, "int32")
        seed = _Seed(ops.stack([seed, ops.zeros_like(seed)]))
    elif seed is not None and not isinstance(seed, keras.random.SeedGenerator):
        expected = f"`seed` must be an integer from 0 to {MAX_SEED}, a scalar integer tensor, a "
        raise_value_error("search", f"{expected}keras.random.SeedGenerator or None", seed)
    return keras.random.randint((2,), 0, 2**31 - 1, seed=seed)


def step_seed(seed: Tensor, t: Tensor) -> Tensor:
    """Return the seed `(2,)` of step t, which does not depend on the number of steps."""
    seed = seed + ops.stack([ops.zeros_like(t), t])
    return keras.random.randint((2,), 0, 2**31 - 1, seed=_Seed(seed))


class _Seed(keras.random.SeedGenerator):
    """Gives functions of `keras.random` a seed `(2,)` that a tensor holds, without a variable."""

    def __init__(self, value: Tensor):
        self.value = ops.cast(value, SEED_DTYPE)

    def next(self, ordered: bool = True) -> Tensor:
        return self.value
