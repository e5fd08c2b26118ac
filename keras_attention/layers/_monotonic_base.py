"""The base of attentions that stay or move on with a learned probability."""

from typing import Unpack

import keras

from keras_attention._spec import check_choice, check_number
from keras_attention._typing import Nested, RecurrentScoringOptions, Shape, Size, Tensor
from keras_attention.attention.recurrent_scoring import RecurrentScoringMixin
from keras_attention.attention.types import Memory, Step
from keras_attention.backend import ops
from keras_attention.layers._base_score import initial_weights, set_base_attention
from keras_attention.ops.masks import last_valid

STOP = 50.0  # a score whose sigmoid is one


class MonotonicBase(RecurrentScoringMixin):
    """An additive score with an offset and noise, whose sigmoid is the probability of a stop.

    The state begins with all weight on the first valid memory step.
    """

    moves_forward = True
    keep_last = False

    def __init__(
        self,
        units: int,
        noise: float,
        initial_offset: float,
        initial_gain: float | None,
        use_bias: bool,
        **kwargs: Unpack[RecurrentScoringOptions],
    ) -> None:
        super().__init__(**kwargs)
        set_base_attention(self, units, use_bias, weight_norm=True)
        check_choice(self.name, "normalizer", self.normalizer, ("softmax",))
        self.noise = check_number(self.name, "noise", noise, 0)
        self.initial_offset = check_number(self.name, "initial_offset", initial_offset)
        self.initial_gain = initial_gain
        if initial_gain is not None:
            self.base_attention._initial_gain = check_number(
                self.name, "initial_gain", initial_gain, 0
            )
        if self.noise > 0 and self.dropout == 0:
            self._seed_generator = keras.random.SeedGenerator(self.seed)

    def build(self, query_shape: Shape, value_shape: Shape = None, key_shape: Shape = None) -> None:
        super().build(query_shape, value_shape, key_shape)
        offset = keras.initializers.Constant(self.initial_offset)
        self.offset_bias = self.add_weight((), offset, name="offset_bias", autocast=False)

    def initial_state(self, memory: Memory) -> Nested:
        return initial_weights(memory, self.score_dtype)

    def score(self, query: Tensor, key: Tensor, state: Nested) -> Tensor:
        return self.base_attention.score(query, key) + ops.cast(self.offset_bias, self.score_dtype)

    def sample_noise(self, memory: Memory, steps: Size) -> Nested:
        if self.noise == 0:
            return None
        shape = steps, *ops.shape(memory.value)[:2]
        return keras.random.normal(
            shape, stddev=self.noise, dtype=self.score_dtype, seed=self._seed_generator
        )

    def _noisy_scores(self, step: Step) -> tuple[Tensor, Tensor | None]:
        """Return the scores of one step with their noise, and their mask or None, both `(B, Tk)`.

        In a window, and with `keep_last`, the last memory step stops the remaining mass.
        """
        scores, mask = step.scores, step.mask
        if step.noise is not None:
            scores = scores + ops.expand_dims(step.noise, 1)
        if mask is not None:
            mask = ops.broadcast_to(mask, ops.shape(scores))
        if self.keep_last or (self.half_width is not None and not step.training):
            length = ops.shape(scores)[2]
            last = length - 1 if mask is None else ops.expand_dims(last_valid(mask), 2)
            last = ops.arange(length, dtype="int32") == last
            scores = ops.where(last, ops.maximum(scores, STOP), scores)
        return ops.squeeze(scores, 1), None if mask is None else ops.squeeze(mask, 1)


def stop_probabilities(scores: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the probabilities of stopping at and of passing each step; masked ones are passed."""
    stop, go = ops.sigmoid(scores), ops.sigmoid(-scores)
    if mask is None:
        return stop, go
    return ops.where(mask, stop, ops.zeros_like(stop)), ops.where(mask, go, ops.ones_like(go))
