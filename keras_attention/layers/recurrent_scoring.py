"""The protocol of an attention that remembers where it looked."""

from typing import Any

from keras import ops

from keras_attention._shapes import check_scores
from keras_attention._typing import Nested, Size, Tensor
from keras_attention.layers._hooks import check_hook
from keras_attention.layers._recurrent_attention import RecurrentAttention
from keras_attention.layers._state_checks import check_weights
from keras_attention.layers._types import Memory
from keras_attention.ops._stored import stored

__all__ = ["RecurrentScoringMixin"]


class RecurrentScoringMixin(RecurrentAttention):
    """Makes an attention layer from a score that depends on earlier steps.

        e[b,i,j] = score(q[b,i], k[b,j], z[b,i-1])
        a[b,i,:] = softmax of e[b,i,:] over the valid j     or another normalizer
        z[b,i]   = next_state(z[b,i-1], a[b,i,:])
        c[b,i]   = sum_j a[b,i,j] v[b,j]

    The state z is any nesting of tensors whose first axis is the batch. Often it is the last
    weights, or their sum. The layer keeps its floating-point tensors in `score_dtype`. Integers
    keep their dtype: cast them before you mix them with weights.

    Sizes: B samples, Tq query and Tk memory steps, Dq, Dk and Dv features.

    Derive from the mixin, and write `initial_state`, `score` and `next_state`. This attention sees
    the sum of its past weights:

        >>> import keras, numpy
        >>> from keras import ops
        >>> from keras_attention import RecurrentScoringMixin
        >>> class RestlessAttention(RecurrentScoringMixin):
        ...     def initial_state(self, memory):
        ...         return ops.zeros(ops.shape(memory.value)[:2])
        ...     def score(self, query, key, state):
        ...         return ops.einsum("bqd,bkd->bqk", query, key) - 99 * ops.expand_dims(state, 1)
        ...     def next_state(self, state, weights):
        ...         return state + weights
        >>> query, value = numpy.ones((1, 3, 3)), numpy.diag([3.0, 2, 1])[None]
        >>> _, weights = RestlessAttention()(query, value, return_attention_scores=True)
        >>> [int(ops.argmax(step)) for step in weights[0]]
        [0, 2, 1]

    Called on a sequence of queries, the layer runs a loop over them. A masked query keeps the
    state. In an `AttentionRNN` the state is a part of the `DecoderState`. For single steps pass the
    state: `output, state, weights = layer.attend(query, memory, state)`.

    You can also override the other hooks of `ScoringMixin`. A `window` masks the scores; a Gaussian
    window raises an error.

    Args:
        half_width: D. At inference, each step reads only the memory steps within D of the one that
            the step before read most. The first step of an attention that moves forward reads near
            the first valid memory step, that of others reads everything. None, the default, always
            reads everything, as training does.
        normalizer, dropout, seed: see `ScoringMixin`.

    Call arguments, returns, raises: see `ScoringMixin`.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        for name in ("score", "weigh", "next_state", "draw", "advance"):
            check_hook(cls, name, getattr(RecurrentScoringMixin, name))
        super().__init_subclass__(**kwargs)

    def initial_state(self, memory: Memory) -> Nested:
        """The state before the first step: tensors `(B, ...)` in any nesting."""
        raise NotImplementedError(
            f"{type(self).__name__} must define initial_state(memory), such as zeros of shape "
            "(batch, memory steps)."
        )

    def score(self, query: Tensor, key: Tensor, state: Nested) -> Tensor:
        """Compares one query with every key.

        Args:
            query: `(B, 1, Dp)` in `score_dtype`, as `project_query` returned it.
            key: `(B, Tk, Dp)` in `score_dtype`, as `project_key` returned it.
            state: from `initial_state`, or from the previous step.

        Returns:
            Scores `(B, 1, Tk)`.
        """
        raise NotImplementedError(
            f"{type(self).__name__} must define score(query, key, state) -> (batch, 1, memory "
            "steps)."
        )

    def weigh(self, scores: Tensor, mask: Tensor, state: Nested) -> Tensor:
        """Turns the scores of one step into weights.

        Args:
            scores: `(B, 1, Tk)`.
            mask: boolean, broadcasts to the scores, or None. The weights must be zero where it is
                False.
            state: as for `score`.
        """
        return super().weigh(scores, mask)

    def next_state(self, state: Nested, weights: Tensor) -> Nested:
        """The state after a step of weights `(B, Tk)`.

        It has the nesting, shapes and dtypes of `state`, the same keys in a dictionary.
        """
        raise NotImplementedError(
            f"{type(self).__name__} must define next_state(state, weights) -> the next state, of "
            "the same nesting and shapes."
        )

    def draw(self, memory: Memory, steps: Size) -> Nested:
        """Random numbers for all steps of a call in training: tensors `(steps, B, ...)`, or None.

        They are drawn before the loop, because a loop repeats one step and, on JAX, cannot change
        a `keras.random.SeedGenerator`.
        """
        return None

    def advance(
        self,
        query: Tensor,
        memory: Memory,
        mask: Tensor | None,
        state: Nested,
        drawn: Nested,
        training: bool | None,
    ) -> tuple[Tensor, Nested]:
        """One step: calls `project_query`, `score`, `weigh` and `next_state`.

        Override it if the state depends on the query, or if the step differs in training.

        Args:
            query: `(B, 1, Dq)` in `score_dtype`.
            memory: keys as `project_key` returned them, values, and their mask.
            mask: boolean, broadcasts to `(B, 1, Tk)`, or None.
            drawn: what `draw` returned for this step, tensors `(B, ...)`; None at inference.
            training: whether to run in training mode.

        Returns:
            Weights `(B, 1, Tk)`, zero where they are masked, and the next state.
        """
        scores = stored(self.score(self._project_query(query), memory.key, state))
        wanted = query.shape[0], 1, memory.value.shape[1]
        check_scores(self.name, scores, wanted)
        weights = self.weigh(scores, mask, state)
        check_weights(self.name, weights, wanted)
        return weights, self.next_state(state, ops.squeeze(weights, 1))

    def sequence_loss(
        self, weights: Tensor, query_mask: Tensor | None, memory_mask: Tensor | None
    ) -> Tensor | None:
        """A scalar to add to the loss of the model, in validation too, or None.

        It is called once per call of the layer or of its decoder, and never by `step`.

        Args:
            weights: `(B, Tq, Tk)`, as the call returns them, in `score_dtype`.
            query_mask, memory_mask: `(B, Tq)` and `(B, Tk)` boolean, or None.
        """
        return None
