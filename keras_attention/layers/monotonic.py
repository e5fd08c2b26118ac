"""Monotonic attention, and monotonic chunkwise attention."""

from typing import Unpack

import keras

from keras_attention._spec import check_choice, check_int
from keras_attention._typing import Nested, RecurrentScoringOptions, Shape, Tensor
from keras_attention.attention.types import Step
from keras_attention.backend import ops, scan, swap_steps
from keras_attention.layers._monotonic_base import MonotonicBase, stop_probabilities
from keras_attention.layers.bahdanau import BahdanauAttention
from keras_attention.ops.masks import argmax
from keras_attention.ops.normalize import masked_softmax
from keras_attention.ops.shift import fold, linear_recurrence, shift, unfold

__all__ = ["MonotonicAttention"]

MODES = ("parallel", "recursive", "hard")


@keras.saving.register_keras_serializable(package="keras_attention")
class MonotonicAttention(MonotonicBase):
    """Attention that moves forward only (Raffel et al., 2017; Chiu and Raffel, 2018).

        e[b,i,j] = g v/|v| . tanh(W q[b,i] + V k[b,j] + b) + r
        p[b,i,j] = sigmoid(e[b,i,j])    the probability of stopping at j, once it is reached
        a[b,i,j] = p[b,i,j] t[b,i,j]
        t[b,i,j] = a[b,i-1,j] + (1 - p[b,i,j-1]) t[b,i,j-1]
        c[b,i]   = sum_j a[b,i,j] v[b,j]

    Before the first step all weight is on the first valid memory step. A row sums to the
    probability of stopping at all, at most one.

    With `chunk_size` = w ("MoChA") a softmax reads the w memory steps that end where it stops:

        d[b,i,j] = sum_l a[b,i,l] softmax of u[b,i,l-w+1..l] at j    the weights, instead of a

    where u is an additive score with weights of its own.

    Sizes: B samples, Tq query and Tk memory steps, Dq, Dk and Dv features.

    Args:
        units: the width in which query and key are compared.
        mode: how a is computed. "parallel" takes about log2(Tk) passes over the memory, "recursive"
            one step of a loop for each memory step; the result is the same. "hard" trains like
            "parallel", but at inference reads the first memory step, from the last one read on,
            with p of at least 1/2. Once there is none, this and all later steps read nothing.
            That is common before training.
        noise: the standard deviation of the noise that training adds to e. The model learns a p
            near 0 or 1 to overcome it.
        chunk_size: w, in memory steps, or None for the attention without chunks.
        initial_offset: the value of r before training. At first a step moves on by about exp(-r)
            memory steps, and stays with a probability of sigmoid(r).
        initial_gain: the value of g before training, or None for the paper's, units**-0.5. With a
            larger one, such as 4, the model learns sooner to move on at a certain content.
        use_bias: whether to add the bias b.
        half_width: see `RecurrentScoringMixin`. In the window, a step that has stopped nowhere
            stops at the last memory step.
        dropout, seed: see `ScoringMixin`.

    Weights:
        base_attention: query_kernel W, key_kernel V, score_vector v, bias b and gain g of
            `BahdanauAttention`. offset_bias: r, `()`.
        chunk_attention: the weights of u, with `chunk_size`.

    Call arguments, returns, raises: see `ScoringMixin`.

    Example:
        >>> import keras, numpy
        >>> from keras_attention import MonotonicAttention
        >>> query, value = numpy.ones((1, 2, 5)), numpy.ones((1, 3, 11))
        >>> attention = MonotonicAttention(13, initial_offset=0.0)
        >>> attention.build(query.shape, value.shape)
        >>> # Without weights every p is 1/2.
        >>> base = attention.base_attention
        >>> base.set_weights([0 * x for x in base.get_weights()])
        >>> _, weights = attention(query, value, return_attention_scores=True)
        >>> weights[0].numpy().tolist()
        [[0.5, 0.25, 0.125], [0.25, 0.25, 0.1875]]

    References: https://arxiv.org/abs/1704.00784, sections 2.2 to 2.4;
    https://arxiv.org/abs/1712.05382, section 2.3. Unlike there, nothing is divided by a product of
    1 - p, which underflows for long memories.
    """

    def __init__(
        self,
        units: int,
        mode: str = "parallel",
        noise: float = 1.0,
        chunk_size: int | None = None,
        initial_offset: float = -4.0,
        initial_gain: float | None = None,
        use_bias: bool = True,
        **kwargs: Unpack[RecurrentScoringOptions],
    ) -> None:
        super().__init__(units, noise, initial_offset, initial_gain, use_bias, **kwargs)
        self.mode = check_choice(self.name, "mode", mode, MODES)
        self.chunk_size = chunk_size
        self.chunk_attention = None
        if chunk_size is not None:
            self.chunk_size = check_int(self.name, "chunk_size", chunk_size)
            self.chunk_attention = BahdanauAttention(
                units, True, dtype=self.dtype_policy, name="chunk_attention"
            )

    def build(self, query_shape: Shape, value_shape: Shape = None, key_shape: Shape = None) -> None:
        super().build(query_shape, value_shape, key_shape)
        if self.chunk_attention is not None and not self.chunk_attention.built:
            self.chunk_attention.build(query_shape, value_shape, key_shape)

    def project_query(self, query: Tensor) -> Tensor:
        projected = super().project_query(query)
        if self.chunk_attention is None:
            return projected
        return ops.concatenate([projected, self.chunk_attention.project_query(query)], axis=-1)

    def project_key(self, key: Tensor) -> Tensor:
        projected = super().project_key(key)
        if self.chunk_attention is None:
            return projected
        return ops.concatenate([projected, self.chunk_attention.project_key(key)], axis=-1)

    def score(self, query: Tensor, key: Tensor, state: Nested) -> Tensor:
        # In a loop, TensorFlow stores every slice at every step, even a slice of the whole key.
        if self.chunk_size is not None:
            query, key = query[..., : self.units], key[..., : self.units]
        return super().score(query, key, state)

    def advance(self, step: Step, state: Nested) -> tuple[Tensor, Nested]:
        scores, mask = self._noisy_scores(step)
        if self.mode == "hard" and not step.training:
            stopped = _first_stop(scores, mask, state)
        else:
            stop, go = stop_probabilities(scores, mask)
            run = _loop if self.mode == "recursive" else linear_recurrence
            stopped = stop * run(shift(go), state)
        if self.chunk_attention is None or self.chunk_size is None:
            return ops.expand_dims(stopped, 1), stopped
        query, key = step.projected[..., self.units :], step.memory.key[..., self.units :]
        scores = ops.squeeze(self.chunk_attention.score(query, key), 1)
        weights = chunk_weights(stopped, scores, mask, self.chunk_size)
        return ops.expand_dims(weights, 1), stopped


def chunk_weights(stopped: Tensor, scores: Tensor, mask: Tensor | None, width: int) -> Tensor:
    """Compute d, all `(B, Tk)`: spread each weight by a softmax over the chunk that ends there."""
    valid = ops.ones_like(stopped) if mask is None else ops.cast(mask, stopped.dtype)
    inside = unfold(valid, width - 1, width) > 0
    chunks = masked_softmax(unfold(scores, width - 1, width), inside)  # (B, Tk, w)
    return fold(ops.expand_dims(stopped, -1) * chunks, width - 1)


def _first_stop(scores, mask, last):
    """Return one at the first valid position with p >= 1/2 from the last one on, else zero."""
    position = ops.arange(ops.shape(scores)[1], dtype="int32")
    start = ops.expand_dims(argmax(last), 1)
    ahead = ops.logical_and(position >= start, ops.any(last > 0, axis=1, keepdims=True))
    ahead = ahead if mask is None else ops.logical_and(ahead, mask)
    reached = ops.logical_and(ahead, scores >= 0)
    first = ops.expand_dims(argmax(ops.cast(reached, scores.dtype)), 1)
    stopped = ops.cast(ops.logical_and(reached, position == first), scores.dtype)
    return ops.where(ops.logical_and(ahead, ops.isnan(scores)), scores, stopped)


def _loop(factors, terms):
    """Compute `linear_recurrence` position by position."""

    def step(last, inputs):
        factor, term = inputs
        last = factor * last + term
        return last, last

    if terms.shape[1] == 0:
        return terms
    first = ops.zeros_like(terms[:, 0])
    _, sums = scan(step, first, (swap_steps(factors), swap_steps(terms)))
    return swap_steps(sums)
