"""Forward attention."""

from typing import Unpack

import keras

from keras_attention._spec import check_bool
from keras_attention._typing import Nested, RecurrentScoringOptions, Shape, Tensor
from keras_attention.attention.recurrent_scoring import RecurrentScoringMixin
from keras_attention.attention.types import Memory, Step
from keras_attention.backend import batched_matmul, ops
from keras_attention.layers._base_score import initial_weights, set_base_attention
from keras_attention.ops.masks import all_of
from keras_attention.ops.shift import shift

__all__ = ["ForwardAttention"]

# Mass that moves past the last memory step is lost, and a row without mass would sum to zero.
LARGEST_MOVE = 1 - 1e-6


@keras.saving.register_keras_serializable(package="keras_attention")
class ForwardAttention(RecurrentScoringMixin):
    """Attention that stays or moves one memory step on (Zhang, Ling and Dai, 2018).

        e[b,i,j] = v . tanh(W q[b,i] + V k[b,j] + b),    y[b,i,:] = softmax of e[b,i,:]
        m[b,i,j] = a[b,i-1,j] + a[b,i-1,j-1]                            by default
        m[b,i,j] = (1 - u[b,i-1]) a[b,i-1,j] + u[b,i-1] a[b,i-1,j-1]    with `transition_agent`
        a[b,i,j] = m[b,i,j] y[b,i,j] / sum_l m[b,i,l] y[b,i,l]
        c[b,i]   = sum_j a[b,i,j] v[b,j]
        u[b,i]   = sigmoid(w . [c[b,i]; q[b,i]] + r),    u[b,0] = 1/2

    Before the first step all weight is on the first valid memory step. The layer computes a as the
    softmax of e + log m, which is the same but cannot divide by zero. It cannot cross a masked
    memory step between valid ones.

    Sizes: B samples, Tq query and Tk memory steps, Dq, Dk and Dv features.

    Args:
        units: the width in which query and key are compared.
        transition_agent: whether the layer learns when to move.
        use_bias: whether to add the bias b.
        half_width: see `RecurrentScoringMixin`. normalizer, dropout, seed: see `ScoringMixin`.

    Weights:
        base_attention: query_kernel W, key_kernel V, score_vector v, bias b of `BahdanauAttention`.
        agent_vector: w, `(Dv + Dq,)`, and agent_bias: r, `()`, with `transition_agent`.

    Call arguments, returns, raises: see `ScoringMixin`.

    Example:
        >>> import numpy
        >>> from keras_attention import ForwardAttention
        >>> query, value = numpy.ones((1, 2, 5)), numpy.ones((1, 4, 11))
        >>> _, weights = ForwardAttention(13)(query, value, return_attention_scores=True)
        >>> [[round(float(x), 2) for x in row] for row in weights[0]]
        [[0.5, 0.5, 0.0, 0.0], [0.25, 0.5, 0.25, 0.0]]

    Reference: https://arxiv.org/abs/1807.06736, algorithms 1 and 2. There, the agent is a network
    that also sees the last output of the decoder; here it is one layer.
    """

    decoder_query = "current"
    moves_forward = True

    def __init__(
        self,
        units: int,
        transition_agent: bool = False,
        use_bias: bool = True,
        **kwargs: Unpack[RecurrentScoringOptions],
    ) -> None:
        super().__init__(**kwargs)
        set_base_attention(self, units, use_bias)
        self.transition_agent = check_bool(self.name, "transition_agent", transition_agent)

    def build(self, query_shape: Shape, value_shape: Shape = None, key_shape: Shape = None) -> None:
        super().build(query_shape, value_shape, key_shape)
        if self.transition_agent:
            shape = (self._sizes["Dv"] + self._sizes["Dq"],)
            self.agent_vector = self.add_weight(shape, name="agent_vector", autocast=False)
            self.agent_bias = self.add_weight((), "zeros", name="agent_bias", autocast=False)

    def initial_state(self, memory: Memory) -> Nested:
        weights = initial_weights(memory, self.score_dtype)
        if not self.transition_agent:
            return weights
        return weights, ops.full((ops.shape(memory.value)[0], 1), 0.5, dtype=self.score_dtype)

    def score(self, query: Tensor, key: Tensor, state: Nested) -> Tensor:
        return self.base_attention.score(query, key)

    def advance(self, step: Step, state: Nested) -> tuple[Tensor, Nested]:
        last, move = state if self.transition_agent else (state, None)
        stay = last if move is None else (1.0 - move) * last
        moved = shift(last) if move is None else move * shift(last)
        reached = ops.expand_dims(stay + moved, 1)
        mask = all_of(step.mask, reached > 0)
        reached = ops.where(mask, reached, ops.ones_like(reached))
        weights = self.weigh(step.scores + ops.log(reached), mask, state)
        new = ops.squeeze(weights, 1)
        # Where a mask leaves nothing that can be reached, the step changes nothing. NaN stays NaN.
        nothing = ops.all(new == 0, axis=-1, keepdims=True)
        new = ops.where(nothing, last, new)
        if move is None:
            return weights, new
        context = batched_matmul(weights, ops.cast(step.memory.value, self.score_dtype))
        both = ops.squeeze(ops.concatenate([context, step.query], axis=-1), 1)
        vector = ops.cast(self.agent_vector, self.score_dtype)
        logit = ops.sum(both * vector, axis=-1, keepdims=True)
        next_move = ops.sigmoid(logit + ops.cast(self.agent_bias, self.score_dtype))
        return weights, (new, ops.where(nothing, move, ops.minimum(next_move, LARGEST_MOVE)))
