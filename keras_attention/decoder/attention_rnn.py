"""Attention inside a recurrent decoder."""

from typing import Any

import keras

from keras_attention._spec import (
    MAX_UNROLLED_STEPS,
    Description,
    check_bool,
    check_choice,
    raise_value_error,
)
from keras_attention._typing import Shape
from keras_attention.attention.scoring import ScoringMixin
from keras_attention.decoder._cells import check_cells, query_size, state_sizes
from keras_attention.decoder._loop import run_loop, run_step
from keras_attention.decoder.base import Decoder

__all__ = ["AttentionRNN"]

QUERIES = "previous", "current"


@keras.saving.register_keras_serializable(package="keras_attention")
class AttentionRNN(Decoder):
    """A recurrent decoder that attends to a memory at every step.

        c_i = attention(s_{i-1}, memory)          query="previous" (Bahdanau et al., 2015)
        s_i = cell([x_i; c_i], s_{i-1})           output s_i

        s_i = cell(x_i, s_{i-1})                  query="current" (Luong et al., 2015)
        h_i = attention(s_i, memory)              output h_i
        s_i = cell([x_i; h_{i-1}], s_{i-1})       instead, with `input_feeding`; h_0 = 0

    Inside the cell, s is its whole state; as query and as output it is the output of the cell, or
    of the last of stacked cells. h is the attentional vector of `LuongAttention(units=...)`, and
    otherwise the context. Keys are projected once per call. If the attention does not feed the
    recurrence (query="current" without input feeding), it runs once, after the loop.

    Sizes: B samples, T steps, D features, Tk memory steps of Dv features, H features of the cell,
    A features of the attention (Dv, or its `units`).

    Args:
        cell: a Keras RNN cell (`GRUCell`, `LSTMCell`, ...), or a list of cells to stack. With
            query="previous", either the first state of the cell is its output, as in the cells of
            Keras, or the cell has a method `query(states)` that returns the query.
        attention: a layer built on `ScoringMixin` or `RecurrentScoringMixin`.
        query: "previous" or "current", as above. Defaults to "current" with input feeding. Without,
            it is the `decoder_query` of the attention: "previous" for additive, location-sensitive,
            monotonic and target attention and `MemoryHop`, "current" for the others of this
            package. Your own has "previous", unless its class sets `decoder_query`.
        input_feeding: whether h_i is also an input of the next step; with query="current".
        output_mode: "cell" (H), "attention" (A) or "concat" (A + H, attention first). Defaults to
            "cell" for query="previous", and to "attention" for query="current".
        return_state: whether to return the last states too.
        unroll: whether to unroll the loop; needs a static T, at most 1000.

    Call arguments:
        sequences: x, `(B, T, D)`.
        memory: `(B, Tk, Dv)`, both keys and values.
        initial_state: the states of the cell, one tensor or a list, for several cells nested or
            flat; defaults to zeros. To resume, pass all states that a call with `return_state`
            returned; without the position, steps count from 0.
        sequences_mask: `(B, T)` boolean; a step where it is False keeps the state, and its output
            and weights are zero.
        memory_mask: `(B, Tk)` boolean; steps where it is False are not attended to. Pass it: from
            Keras 3.16 on, masks do not propagate through recurrent layers.
        return_attention_scores: whether to return the weights too, as they are before dropout.
        training: whether dropout is active. Inside the recurrence, the dropout of the attention
            drops the same memory steps at every step, as Keras cells do. A hook or a cell that
            draws random numbers itself draws new ones at every step.

    Returns:
        Outputs `(B, T, ...)`. With `return_state` a list: the outputs, the state of every cell
        (itself a list for a stacked cell of several states), with input feeding the fed vector, the
        tensors of the state of an attention that has one, and for an attention that counts steps
        the number of the next one, `(B,)` int32. With `return_attention_scores` the weights
        `(B, T, Tk)` are the last item.

    Raises:
        ValueError: an argument has the wrong type, or ranks, batch sizes or states do not agree.

    Example:
        >>> import keras, numpy
        >>> from keras_attention import AttentionRNN, BahdanauAttention
        >>> decoder = AttentionRNN(keras.layers.GRUCell(7), BahdanauAttention(5))
        >>> words, encoded = numpy.ones((2, 3, 11)), numpy.ones((2, 13, 17))
        >>> outputs, weights = decoder(words, encoded, return_attention_scores=True)
        >>> outputs.shape, weights.shape
        (TensorShape([2, 3, 7]), TensorShape([2, 3, 13]))

    References: https://arxiv.org/abs/1409.0473 (A.2); https://arxiv.org/abs/1508.04025 (3 and 3.3).
    """

    def __init__(
        self,
        cell: Any,
        attention: ScoringMixin,
        query: str | None = None,
        input_feeding: bool = False,
        output_mode: str | None = None,
        return_state: bool = False,
        unroll: bool = False,
        **kwargs: Any,
    ) -> None:
        cells = list(cell) if isinstance(cell, (list, tuple)) else [cell]
        if kwargs.get("dtype") is None and cells and not isinstance(cells[0], type):
            kwargs["dtype"] = getattr(cells[0], "dtype_policy", None)
        super().__init__(**kwargs)
        wanted = "a Keras RNN cell with a `state_size`, such as keras.layers.GRUCell(256), or a "
        cells = check_cells(self.name, "cell", cell, f"{wanted}list of cells")
        if isinstance(cell, (list, tuple)):
            cell = keras.layers.StackedRNNCells(cells, dtype=self.dtype_policy)
        self.cell = cell
        parts = [("cell", one) for one in cells]
        self._take_attention(attention, "cell", parts)
        for name, part in [*parts, ("attention", attention)]:
            if getattr(part, "activity_regularizer", None) is not None:
                expected = f"`{name}` must have no `activity_regularizer`, which cannot leave the "
                remedy = "Give it to the decoder: AttentionRNN(..., activity_regularizer=...)."
                raise_value_error(self.name, f"{expected}loop", part.activity_regularizer, remedy)
        self.input_feeding = check_bool(self.name, "input_feeding", input_feeding)
        if query is None:
            query = (
                "current"
                if input_feeding
                else check_choice(attention.name, "decoder_query", attention.decoder_query, QUERIES)
            )
        self.query = check_choice(self.name, "query", query, QUERIES)
        if input_feeding and query == "previous":
            expected = '`input_feeding=True` goes with query="current"'
            remedy = "Leave it out: the context is an input of the cell already."
            raise_value_error(self.name, expected, Description(f"query={query!r}"), remedy)
        if output_mode is None:
            output_mode = "cell" if query == "previous" else "attention"
        self.output_mode = check_choice(
            self.name, "output_mode", output_mode, ("cell", "attention", "concat")
        )
        self.return_state = check_bool(self.name, "return_state", return_state)
        self.unroll = check_bool(self.name, "unroll", unroll)
        self.supports_masking = True

    def build(self, sequences_shape: Shape, memory_shape: Shape = None) -> None:
        size = query_size(self.cell, self.query)
        self._build_attention(size, sequences_shape, memory_shape)
        batch, _, features = sequences_shape
        if not self.cell.built:
            self.cell.build((batch, features + self._fed_size))

    _run, _step = run_loop, run_step

    def _check_tensors(self, tensors: dict[str, Any]) -> None:
        super()._check_tensors(tensors)
        shape = tuple(tensors["sequences"].shape)
        if self.unroll and not (isinstance(shape[1], int) and shape[1] <= MAX_UNROLLED_STEPS):
            expected = "`unroll=True` copies the loop for every step. It needs a known number of "
            remedy = "Give the number to keras.Input, or leave `unroll` out."
            raise_value_error(
                self.name,
                f"{expected}steps, at most {MAX_UNROLLED_STEPS}",
                Description(shape),
                remedy,
            )

    @property
    def _state_sizes(self) -> list:
        return state_sizes(self.cell)

    @property
    def _fed_size(self) -> int:
        """The size of what a step appends to its inputs: the context, the fed vector or nothing."""
        feeds = self.query == "previous" or self.input_feeding
        return self._attention_size if feeds else 0

    @property
    def attends_inside(self) -> bool:
        """Whether the attention runs inside the recurrence. Otherwise it runs once, after it."""
        return self.query == "previous" or self.input_feeding or self.attention.has_state

    def compute_output_shape(
        self, sequences_shape: Shape, memory_shape: Shape = None, initial_state_shape: Any = None
    ) -> Shape | list:
        if not self.built:
            self.build(sequences_shape, memory_shape)
        shapes = {"sequences": sequences_shape, "memory": memory_shape}
        results = self.compute_output_spec(**self.CALL.symbols(shapes, self.compute_dtype))
        return keras.tree.map_structure(lambda x: tuple(x.shape), results)
