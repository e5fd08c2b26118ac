"""The tuples that the parts of an attention exchange."""

from collections.abc import Callable
from typing import ClassVar, NamedTuple, Protocol

from keras_attention._typing import Nested, Size, Tensor
from keras_attention.ops.masks import Masks

__all__ = ["AttendOptions", "Attended", "DecoderAttention", "DecoderState", "Memory", "Residuals"]
__all__ += ["Step", "Window"]


class Memory(NamedTuple):
    """A prepared memory: `ScoringMixin.prepare` makes it once for all queries.

    Attributes:
        key: `(B, Tk, Dp)`, the result of `project_key`.
        value: `(B, Tk, Dv)`.
        mask: `(B, Tk)` boolean, or None where every step is valid.

    With `MultiSource`, each is a list with an item for each memory.

    Example:
        >>> import keras, numpy
        >>> from keras_attention import BahdanauAttention
        >>> attention, words = BahdanauAttention(3), numpy.ones((2, 7, 5), "float32")
        >>> attention.build((2, 11), words.shape)
        >>> memory = attention.prepare(words, value_mask=numpy.arange(7) < [[7], [4]])
        >>> for query in numpy.ones((9, 2, 11), "float32"):  # the keys are projected once for all
        ...     context, _, weights = attention.attend(query, memory)
        >>> keras.ops.convert_to_numpy(weights)[1].round(2).tolist()
        [0.25, 0.25, 0.25, 0.25, 0.0, 0.0, 0.0]
    """

    key: Nested
    value: Nested
    mask: Nested = None


class Window(NamedTuple):
    """The part of the memory that each query reads: positions floor(p) - D to floor(p) + D.

    Only the Gaussian passes gradients to p.

    Attributes:
        center: p, `(B, Tq)`, floating point, in positions of the memory.
        half_width: D, a positive integer.
        gaussian: whether the weights are multiplied by exp(-(j - p)^2 / (2 (D/2)^2)).

    Example:
        A hook `window` that lets query i read the memory steps i - 1 to i + 1:

        >>> import numpy
        >>> from keras import ops
        >>> from keras_attention import BahdanauAttention
        >>> from keras_attention.attention import Window
        >>> class DiagonalAttention(BahdanauAttention):
        ...     uses_position = True
        ...     def window(self, query, memory, position):
        ...         batch, steps, _ = ops.shape(query)
        ...         position = ops.arange(steps) if position is None else position
        ...         center = ops.cast(ops.reshape(position, (-1, steps)), "float32")
        ...         return Window(ops.broadcast_to(center, (batch, steps)), half_width=1)
        >>> x = numpy.ones((1, 5, 3), "float32")
        >>> _, weights = DiagonalAttention(4)(x[:, :3], x, return_attention_scores=True)
        >>> [row.round(2).tolist() for row in ops.convert_to_numpy(weights)[0].astype("float64")]
        [[0.5, 0.5, 0.0, 0.0, 0.0], [0.33, 0.33, 0.33, 0.0, 0.0], [0.0, 0.33, 0.33, 0.33, 0.0]]
    """

    center: Tensor
    half_width: int
    gaussian: bool = False


class Attended(NamedTuple):
    """Result of `ScoringMixin.attend`, in the order of a decoder's `step`.

    Attributes:
        output: `(B, Tq, Do)`, or `(B, Do)` for one query.
        state: the state of the attention, or None.
        weights: `(B, Tq, Tk)`, or `(B, Tk)` for one query; for several memories a list.

    Example:
        >>> import numpy
        >>> from keras_attention import LuongAttention
        >>> attention, words = LuongAttention("dot"), numpy.ones((2, 7, 5), "float32")
        >>> attention.build((2, 5), words.shape)
        >>> attended = attention.attend(words[:, 0], attention.prepare(words))
        >>> tuple(attended.output.shape), tuple(attended.weights.shape), attended.state
        ((2, 5), (2, 7), None)
    """

    output: Tensor
    state: Nested
    weights: Nested


class Residuals(NamedTuple):
    """Results of hooks, which a decoder stores for its gradient.

    Attributes:
        query: `(B, Tq, Dp)`, the result of `project_query`.
        scores: `(B, Tq, Tk)`, the result of `score`; None in a window, or without a score.
    """

    query: Nested = None
    scores: Nested = None


class AttendOptions(NamedTuple):
    """Options of `_attend`.

    Attributes:
        masks: `Masks`.
        training, return_attention_scores, position, noise: see `ScoringMixin.attend`.
        drop: whether to drop weights in training. A decoder has dropped the memory instead.
        stored: the `Residuals` of an earlier call with the same arguments, or None.
    """

    masks: Masks
    training: bool | None = None
    return_attention_scores: bool = True
    position: Tensor | None = None
    noise: Nested = None
    drop: bool = True
    stored: Nested = None


class DecoderAttention(Protocol):
    """Attention methods for decoders, beside the public hooks.

    `ScoringMixin`, `RecurrentScoringMixin` and attentions of several attentions implement it.
    """

    name: str
    compute_dtype: str
    variable_dtype: str
    has_state: bool
    uses_position: bool
    memory_count: int | None
    _own: ClassVar[frozenset[str]]

    @property
    def score_dtype(self) -> str:
        """Return the dtype of scores."""
        ...

    def combine(self, query: Tensor, context: Tensor) -> Tensor:
        """Turn the context into the output of the layer."""
        ...

    def output_size(self, query_size: int, value_size: Nested) -> int:
        """Return the number of features of the output of `combine`."""
        ...

    def sequence_loss(
        self, weights: Nested, query_mask: Tensor | None, memory_mask: Nested
    ) -> Tensor | None:
        """Return a scalar to add to the loss of the model, or None."""
        ...

    def _prepare(self, value: Nested, key: Nested = None, value_mask: Nested = None) -> Memory:
        """Make the memory, as the public `prepare` does, without checks."""
        ...

    def _state(self, memory: Memory, received: Nested = None) -> Nested:
        """Return the state before the first step, in the dtypes that the layer keeps; or None.

        Args:
            received: a state, or a flat list of its tensors, to check and cast instead.
        """
        ...

    def _begin_training(self, memory: Memory, steps: Size) -> tuple[Memory, Nested]:
        """Sample the random numbers of all steps, before a loop around `_attend`.

        Returns:
            The memory, with dropout that is the same at every step, and the noise of all steps,
            `(steps, B, ...)` in any nesting, or None.
        """
        ...

    def _attend(
        self, query: Tensor, memory: Memory, state: Nested, options: AttendOptions
    ) -> tuple[Nested, Nested, Nested, Nested]:
        """Compute the scores, the weights and the context of all queries.

        Args:
            query: `(B, Tq, Dq)`, zero where it is masked.
            state: as `_state` returns it; None for the state before the first step.

        Returns:
            The context `(B, Tq, Dv)`, the weights `(B, Tq, Tk)`, which may be None if they are not
            wanted, the new state, and `Residuals`.
        """
        ...

    def _output_product(self) -> tuple[list[Tensor], Callable[[Tensor], Tensor]] | None:
        """Return the kernels of `combine` and its activation, if it is that of one product.

        The last kernel multiplies the context, a kernel before it the query. A decoder then
        computes their gradients after its loop. None: `combine` is a part of the attention.
        """
        ...


class Step(NamedTuple):
    """Inputs of `RecurrentScoringMixin.advance`, but the state.

    Attributes:
        query: `(B, 1, Dq)` in `score_dtype`, not projected.
        projected: `(B, 1, Dp)`, the result of `project_query`.
        scores: `(B, 1, Tk)`, the result of `score`; None if the class does not define it.
        memory: keys as `project_key` returned them, values, and their mask.
        mask: boolean, broadcasts to `(B, 1, Tk)`, or None. Weights must be zero where it is False.
        noise: what `sample_noise` returned for this step, tensors `(B, ...)`; None at inference.
        training: whether to run in training mode.

    Example:
        An attention whose window moves on by a learned number of memory steps:

        >>> import keras, numpy
        >>> from keras import ops
        >>> from keras_attention import RecurrentScoringMixin
        >>> class MovingAttention(RecurrentScoringMixin):
        ...     def initial_state(self, memory):
        ...         return ops.zeros((ops.shape(memory.value)[0], 1))
        ...     def advance(self, step, state):
        ...         state = state + ops.exp(ops.mean(step.query[:, 0], axis=-1, keepdims=True))
        ...         index = ops.arange(step.memory.value.shape[1], dtype=state.dtype)
        ...         scores = -ops.square(index - state)
        ...         return self.weigh(ops.expand_dims(scores, 1), step.mask, state), state
        >>> query, value = numpy.zeros((1, 3, 2), "float32"), numpy.ones((1, 5, 2), "float32")
        >>> _, weights = MovingAttention()(query, value, return_attention_scores=True)
        >>> [int(ops.argmax(row)) for row in weights[0]]
        [1, 2, 3]
    """

    query: Tensor
    projected: Nested
    scores: Tensor
    memory: Memory
    mask: Tensor | None
    noise: Nested
    training: bool | None


class DecoderState(NamedTuple):
    """State of an `AttentionRNN` between two steps.

    Attributes:
        cells: the states of the cell, a list, nested for stacked cells of several states.
        input_feed: the output of the attention at the step before, `(B, A)`, with input feeding.
        attention: the state of an attention that has one.
        position: the number of the next step, `(B,)` int32.

    Example:
        >>> import keras, numpy
        >>> from keras_attention import AttentionRNN, BahdanauAttention
        >>> decoder = AttentionRNN(keras.layers.GRUCell(7), BahdanauAttention(5))
        >>> words, encoded = numpy.ones((3, 2, 11)), numpy.ones((2, 13, 17))
        >>> decoder.build((2, 1, 11), encoded.shape)
        >>> memory = decoder.prepare(encoded)
        >>> state = decoder.get_initial_state(memory)
        >>> for word in words:
        ...     output, state, weights = decoder.step(word, state, memory)
        >>> keras.ops.convert_to_numpy(state.position).tolist()
        [3, 3]
    """

    cells: Nested
    input_feed: Tensor | None
    attention: Nested
    position: Tensor
