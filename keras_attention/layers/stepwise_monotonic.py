"""Stepwise monotonic attention."""

import math
from typing import Unpack

import keras

from keras_attention._spec import check_bool, check_number
from keras_attention._typing import Nested, RecurrentScoringOptions, Tensor
from keras_attention.attention.types import Step
from keras_attention.backend import ops
from keras_attention.layers._monotonic_base import MonotonicBase, stop_probabilities
from keras_attention.ops.shift import linear_recurrence, shift

__all__ = ["StepwiseMonotonicAttention"]


@keras.saving.register_keras_serializable(package="keras_attention")
class StepwiseMonotonicAttention(MonotonicBase):
    """Attention that stays, or moves on by exactly one memory step (He, Deng and He, 2019).

        e[b,i,j] = g v/|v| . tanh(W q[b,i] + V k[b,j] + b) + r
        p[b,i,j] = sigmoid(e[b,i,j])    the probability of staying at j
        a[b,i,j] = a[b,i-1,j] p[b,i,j] + a[b,i-1,j-1] (1 - p[b,i,j-1])
        c[b,i]   = sum_j a[b,i,j] v[b,j]

    Before the first step all weight is on the first valid memory step. No memory step is skipped.
    A masked one is passed: weight moves on to the next valid one. What moves on from the last one
    is lost, so a row sums to the probability that the end was not passed, at most one. With
    `keep_last` the last one keeps what reaches it, and a row sums to one, unless an
    `attention_mask` ends before the weight.

    Sizes: B samples, Tq query and Tk memory steps, Dq, Dk and Dv features.

    Args:
        units: the width in which query and key are compared.
        hard: whether inference reads one memory step: it stays where p is at least 1/2, and moves
            on otherwise. Beyond the end it reads nothing. Training is the same.
        noise: the standard deviation of the noise that training adds to e. The model learns a p
            near 0 or 1 to overcome it.
        temperature: divides e at inference, from 1e-6 to 1. Below 1, p is nearer to 0 or 1, so less
            weight leaks to other memory steps, from where it cannot come back. The limit 0 is the
            hard mode, where it changes nothing.
        keep_last: whether the last memory step keeps what reaches it: p is one there. Train with it
            where a loss of the alignment must see a model that runs ahead; lost weight is in no
            loss.
        initial_offset: the value of r before training. At first a step stays with a probability of
            about sigmoid(r). It is log(n - 1) for n query steps per memory step.
        initial_gain: the value of g before training, or None for units**-0.5.
        use_bias: whether to add the bias b.
        half_width: see `RecurrentScoringMixin`. In the window, the last memory step keeps what
            reaches it, as with `keep_last`.
        dropout, seed: see `ScoringMixin`.

    Weights:
        base_attention: query_kernel W, key_kernel V, score_vector v, bias b and gain g of
            `BahdanauAttention`. offset_bias: r, `()`.

    Call arguments, returns, raises: see `ScoringMixin`.

    Example:
        >>> import numpy
        >>> from keras_attention import StepwiseMonotonicAttention
        >>> query, value = numpy.ones((1, 2, 5)), numpy.ones((1, 3, 11))
        >>> attention = StepwiseMonotonicAttention(13)
        >>> attention.build(query.shape, value.shape)
        >>> # Without weights every p is 1/2.
        >>> base = attention.base_attention
        >>> base.set_weights([0 * x for x in base.get_weights()])
        >>> _, weights = attention(query, value, return_attention_scores=True)
        >>> weights[0].numpy().tolist()
        [[0.5, 0.5, 0.0], [0.25, 0.5, 0.25]]

    Reference: https://arxiv.org/abs/1906.00672, section 3. The paper has neither masks nor
    `keep_last`.
    """

    def __init__(
        self,
        units: int,
        hard: bool = False,
        noise: float = 1.0,
        temperature: float = 1.0,
        keep_last: bool = False,
        initial_offset: float = 0.0,
        initial_gain: float | None = None,
        use_bias: bool = True,
        **kwargs: Unpack[RecurrentScoringOptions],
    ) -> None:
        super().__init__(units, noise, initial_offset, initial_gain, use_bias, **kwargs)
        self.temperature = check_number(self.name, "temperature", temperature, 1e-6, 1)
        self.hard = check_bool(self.name, "hard", hard)
        self.keep_last = check_bool(self.name, "keep_last", keep_last)

    def advance(self, step: Step, state: Nested) -> tuple[Tensor, Nested]:
        scores, mask = self._noisy_scores(step)
        if self.temperature < 1 and not step.training:
            scores = scores / self.temperature
        if self.hard and not step.training:
            # NaN stays NaN.
            scores = ops.where(scores >= 0, math.inf, ops.where(scores < 0, -math.inf, scores))
        stay, go = stop_probabilities(scores, mask)
        moved = shift(go * state)
        if mask is not None:
            passes = shift(ops.cast(ops.logical_not(mask), moved.dtype))
            moved = linear_recurrence(passes, moved)
            moved = ops.where(mask, moved, ops.zeros_like(moved))
        weights = stay * state + moved
        return ops.expand_dims(weights, 1), weights
