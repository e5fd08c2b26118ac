"""Attention inside a recurrent decoder."""

import functools
from typing import Any, Unpack

import keras
from keras import tree

from keras_attention._spec import (
    MAX_UNROLLED_STEPS,
    Description,
    check_bool,
    check_choice,
    is_floating,
    raise_value_error,
)
from keras_attention._typing import LayerOptions, Nested, Shape, Tensor
from keras_attention.attention.checked_layer import take_dtype, updates_weights
from keras_attention.attention.scoring import ScoringMixin, attend_masked
from keras_attention.attention.types import DecoderState
from keras_attention.backend import (
    compiling,
    execution_context,
    leaves,
    ops,
    swap_steps,
    tree_map,
    where_valid,
)
from keras_attention.decoder._cells import (
    check_cells,
    check_output,
    dropout_masks,
    query_of,
    query_size,
    state_sizes,
    with_constant_weights,
)
from keras_attention.decoder._padding import cut_memory, pad_memory
from keras_attention.decoder._step_ops import AttentionOp, CellOps, OutputOp, runs_as_ops
from keras_attention.decoder.base_decoder import Decoder
from keras_attention.ops.masks import Masks, zero_masked
from keras_attention.ops.random import generator_states, scan_with_random_state
from keras_attention.recurrence import recur

__all__ = ["AttentionRNN", "samples_in_step", "step_positions"]

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
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        cells = list(cell) if isinstance(cell, (list, tuple)) else [cell]
        take_dtype(kwargs, next(iter(cells), None))
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
        batch, _, features = self._build_attention(size, sequences_shape, memory_shape)
        if not self.cell.built:
            self.cell.build((batch, features + self._input_feed_size))

    def _unroll(self, sequences, memory, state, mask, scores_wanted, training):
        """Run all steps; return the outputs, the weights and the last state."""
        sequences = ops.cast(sequences, self.compute_dtype)
        position, last_position = step_positions(sequences, state.position, mask)
        options = {"return_attention_scores": scores_wanted, "training": training}
        as_ops = runs_as_ops(self.cell, training) and all(map(is_floating, leaves(state.attention)))
        if self.attends_inside:
            as_ops = as_ops and not samples_in_step(self.attention)
            as_ops = as_ops and not (training and updates_weights(self.attention))
        # The loop is time-major.
        inputs = tree_map(swap_steps, (sequences, mask, position))
        with compiling(True if training else None):
            pads = as_ops and bool(training)
            pads = pads and execution_context(sequences, *leaves(memory.value)).compiles_loops
            inside, carry, noise = memory, state[:3], None
            if pads:
                inside, carry = pad_memory(self.attention, inside, carry)
            if self.attends_inside and training:
                inside, noise = self.attention._begin_training(inside, ops.shape(inputs[0])[0])
            inputs = *inputs, noise
            if as_ops:
                step, named_ops, dropout, inputs = self._as_ops(inputs, inside, options)
                loop = step, named_ops, carry, inputs, dropout
                carry, outputs = recur(*loop, self.unroll, bool(training))
            else:
                carry, outputs = self._run_any_cell(inputs, inside, carry, options)
            if pads:
                carry, outputs = cut_memory(memory, state[:3], carry, outputs)
        outputs, weights = tree_map(swap_steps, outputs)
        if not self.attends_inside:
            options |= {"masks": Masks(query=mask), "position": position}
            attended = attend_masked(self.attention, outputs, memory, **options)
            outputs, weights = self._joined(outputs, attended.output), attended.weights
        outputs = zero_masked(outputs, mask)
        weights = tree_map(lambda x: zero_masked(x, mask), weights)
        cells, fed, attention_state = carry
        return outputs, weights, DecoderState(cells, fed, attention_state, last_position)

    def _as_ops(self, inputs, memory, options):
        """Return a step and its ops, for `recur`; its dropout masks, and its inputs."""
        sequences, mask, position, noise = inputs
        cell, output = CellOps(self.cell, sequences, options["training"]), None
        named_ops = dict(cell.ops)
        if self.attends_inside:
            product = self.attention._output_product()
            if product is not None:
                output = named_ops["output"] = OutputOp(*product)
            options = options | {"differentiated": True, "combine": output is None}
            named_ops["attention"] = AttentionOp(self.attention, memory, **options)
        step = functools.partial(self._one_step, cell.step, self.attends_inside, output)
        position = position if self.attention.uses_position else None
        return step, named_ops, cell.dropout, (None, mask, position, noise)

    def _run_any_cell(self, inputs, memory, carry, options):
        """Run a loop over any cell, which the backend differentiates."""
        call = AttentionOp(self.attention, memory, **options).call
        step = functools.partial(self._one_step, self._call_cell, self.attends_inside, None, call)
        loop = functools.partial(scan_with_random_state, step, carry, inputs, self, self.unroll)
        batch, features = ops.shape(inputs[0])[1:]
        with dropout_masks(self.cell, batch, features + self._input_feed_size):
            return with_constant_weights(self, loop)

    def _step(self, inputs, state, memory):
        parts = self._call_cell, True, None, AttentionOp(self.attention, memory).call
        x = inputs, None, state.position, None
        (cells, fed, last), (output, weights) = self._one_step(*parts, state[:3], x)
        return output, DecoderState(cells, fed, last, state.position + 1), weights

    def _one_step(self, cell, attends, product, call, carry, inputs, dropout=None):
        """Run one step of the equation in the docstring; a masked step keeps its carry.

        Args:
            cell: runs one step of the cells. attends: whether the attention runs in the loop.
            product: the `OutputOp` of the attention, or None.
            call: calls an op by its name.
            carry: the states of the cells, the input feed and the state of the attention.
            inputs: x, its mask, its position, and the noise of the attention.
            dropout: the dropout masks of the ops.
        """
        (cells, fed, state), (x, mask, position, noise) = carry, inputs
        output = attended = weights = None
        if self.query == "current":
            output, cells = cell(call, x, fed, cells, dropout)
        if attends:
            query = output if self.query == "current" else query_of(self.cell, cells)
            attended, state, weights = call("attention", query, state, noise, position)
            if product is not None:
                attended = product.step(call, query, attended)
        if self.query == "previous":
            output, cells = cell(call, x, attended, cells, dropout)
        new = cells, attended if self.input_feeding else None, state
        output = self._joined(output, attended) if attends else output
        return new if mask is None else where_valid(mask, new, carry), (output, weights)

    def _call_cell(self, call, inputs, feed, states, dropout=None):
        inputs = inputs if feed is None else ops.concatenate([inputs, feed], axis=-1)
        output, new = self.cell(inputs, states)
        check_output(self.name, self.cell, output, new if self.query == "previous" else None)
        return output, tree.pack_sequence_as(states, tree.flatten(new))

    def _joined(self, output, attended):
        """Return the output of a step, by `output_mode`."""
        if self.output_mode == "concat":
            return ops.concatenate([attended, output], axis=-1)
        return output if self.output_mode == "cell" else attended

    def _check_tensors(self, tensors: dict[str, Tensor]) -> None:
        super()._check_tensors(tensors)
        shape = tuple(tensors["sequences"].shape)
        if self.unroll and not (isinstance(shape[1], int) and shape[1] <= MAX_UNROLLED_STEPS):
            expected = "`unroll=True` copies the loop for every step. It needs a known number of "
            remedy = "Give the number to keras.Input, or leave `unroll` out."
            expected += f"steps, at most {MAX_UNROLLED_STEPS}"
            raise_value_error(self.name, expected, Description(shape), remedy)

    @property
    def _state_sizes(self) -> list:
        return state_sizes(self.cell)

    @property
    def _input_feed_size(self) -> int:
        """Return the number of features that a step appends to its inputs."""
        feeds = self.query == "previous" or self.input_feeding
        return self._attention_size if feeds else 0

    @property
    def attends_inside(self) -> bool:
        """Return whether the attention runs inside the recurrence; otherwise once, after it."""
        return self.query == "previous" or self.input_feeding or self.attention.has_state

    def compute_output_shape(
        self, sequences_shape: Shape, memory_shape: Shape = None, initial_state_shape: Nested = None
    ) -> Shape | list:
        if not self.built:
            self.build(sequences_shape, memory_shape)
        shapes = {"sequences": sequences_shape, "memory": memory_shape}
        results = self.compute_output_spec(**self.CALL.symbols(shapes, self.compute_dtype))
        return keras.tree.map_structure(lambda x: tuple(x.shape), results)


def step_positions(sequences: Tensor, start: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the position of every step, `(B, T)`, and the position after the last one.

    Masked steps do not count.
    """
    batch, steps = ops.shape(sequences)[:2]
    if mask is None:
        count = ops.broadcast_to(ops.arange(steps, dtype="int32"), (batch, steps))
        total = ops.full((batch,), steps, dtype="int32")
    else:
        valid = ops.cast(mask, "int32")
        count, total = ops.cumsum(valid, axis=1) - valid, ops.sum(valid, axis=1)
    return count + ops.expand_dims(start, 1), start + total


def samples_in_step(attention: ScoringMixin) -> bool:
    """Return True if a step may sample randomly, as a `Dropout` layer in a hook does.

    The generators of the mixin itself sample before the loop.
    """
    if not attention.non_trainable_variables:
        return False
    own = [getattr(one, "_seed_generator", None) for one in attention._members()]
    before_loop = {id(x.state) for x in own if x is not None}
    return any(id(x) not in before_loop for x in generator_states(attention))
