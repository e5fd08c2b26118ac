"""A decoder whose attention is outside of every recurrence."""

from collections.abc import Iterable, Sequence
from typing import Unpack

import keras

from keras_attention._spec import Description, raise_value_error
from keras_attention._typing import LayerOptions, Nested, Shape, Tensor
from keras_attention.attention.checked_layer import take_dtype
from keras_attention.attention.scoring import ScoringMixin, attend_masked
from keras_attention.attention.types import DecoderState, Memory
from keras_attention.backend import compiling, execution_context, ops, swap_steps, tree_map
from keras_attention.decoder._cells import as_states, output_size, state_sizes
from keras_attention.decoder._step_ops import CellOps, runs_as_ops
from keras_attention.decoder.base_decoder import Decoder
from keras_attention.ops.masks import Masks, zero_masked
from keras_attention.recurrence import recur

__all__ = ["DecoderStack"]

RNNS = (
    "a list of at least two recurrent layers of Keras with return_sequences=True, such as "
    "[keras.layers.LSTM(256, return_sequences=True) for _ in range(4)]"
)


@keras.saving.register_keras_serializable(package="keras_attention")
class DecoderStack(Decoder):
    """Stacks recurrent layers, of which the first is the query and the others read the context.

        s^1 = rnn_1(x)
        c_i = attention(s_i^1, memory)
        s^2 = rnn_2([s^1; c])
        s^n = s^{n-1} + rnn_n([s^{n-1}; c])       n > 2

    The output is s^N, the last. No recurrence contains the attention. So in training each layer
    runs over all steps at once, and the attention reads the memory once for all steps. On an
    H200 with JAX, a training step took 0.28 of the time of plain code with the attention in the
    loop. The layers may use cuDNN, but `use_cudnn=False` was faster there. `step` decodes step by
    step, as `AttentionRNN` does.

    Sizes: B samples, T steps, D features, Tk memory steps of Dv features, H_n units of layer n,
    A features of the attention (Dv, or its `units`).

    Args:
        rnns: at least two recurrent layers of Keras, such as `keras.layers.LSTM`, with
            `return_sequences=True`. From the second on they have the same number of units, H.
        attention: a layer built on `ScoringMixin` or `RecurrentScoringMixin`. One with a state
            runs in a loop of its own.

    Call arguments:
        sequences: x, `(B, T, D)`.
        memory: `(B, Tk, Dv)`, both keys and values.
        initial_state: the states of all layers, nested or flat: for LSTM layers h_1, c_1, h_2, c_2
            and so on; defaults to zeros.
        sequences_mask: `(B, T)` boolean; a step where it is False keeps the state, and its output
            and weights are zero.
        memory_mask: `(B, Tk)` boolean; steps where it is False are not attended to. Pass it: from
            Keras 3.16 on, masks do not propagate through recurrent layers.
        return_attention_scores: whether to return the weights too, as they are before dropout.
        training: whether dropout is active.

    Returns:
        Outputs `(B, T, H)`; with `return_attention_scores` also weights `(B, T, Tk)`.

    Raises:
        ValueError: an argument has the wrong type; the units of the layers differ from the second
            on; ranks, batch sizes or states do not agree.

    Example:
        >>> import keras, numpy
        >>> from keras_attention import BahdanauAttention, DecoderStack
        >>> rnns = [keras.layers.LSTM(7, return_sequences=True) for _ in range(4)]
        >>> decoder = DecoderStack(rnns, BahdanauAttention(5))
        >>> words, encoded = numpy.ones((2, 3, 11)), numpy.ones((2, 13, 17))
        >>> outputs, weights = decoder(words, encoded, return_attention_scores=True)
        >>> outputs.shape, weights.shape
        (TensorShape([2, 3, 7]), TensorShape([2, 3, 13]))

    Reference: https://arxiv.org/abs/1609.08144, section 3. There the query is the output of the
    first layer at the step before, so its context can also be an input of the first layer. Here, as
    in later implementations of GNMT, it is the output of the same step.
    """

    def __init__(
        self,
        rnns: Iterable[keras.layers.RNN],
        attention: ScoringMixin,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        rnns = list(rnns) if isinstance(rnns, Iterable) else [rnns]
        take_dtype(kwargs, next(iter(rnns), None))
        super().__init__(**kwargs)
        check_rnns(self.name, rnns)
        self.rnns = rnns
        self._take_attention(attention, "recurrent layers", [("rnns", x) for x in rnns])
        self.supports_masking = True

    def build(self, sequences_shape: Shape, memory_shape: Shape = None) -> None:
        size = output_size(self.rnns[0].cell)
        batch, steps, width = self._build_attention(size, sequences_shape, memory_shape)
        for rnn in self.rnns:
            if not rnn.built:
                rnn.build((batch, steps, width))
            width = output_size(rnn.cell) + self._attention_size

    def _unroll(self, sequences, memory, state, mask, scores_wanted, training):
        """Run all steps; return None for the last state, which no call returns."""
        sequences, back = ops.cast(sequences, self.compute_dtype), None
        if mask is not None:
            # With the valid steps first, no layer needs a mask, which cuDNN may not accept: later
            # steps do not change earlier ones.
            forth, back = _valid_first(mask)
            sequences = ops.take_along_axis(sequences, forth, axis=1)
            mask = ops.squeeze(ops.take_along_axis(ops.expand_dims(mask, 2), forth, axis=1), 2)

        def run(rnn, inputs, states):
            return run_rnn(rnn, inputs, states, training), None

        outputs, _ = run(self.rnns[0], sequences, state.cells[0])
        count = ops.arange(ops.shape(sequences)[1], dtype="int32")
        attended = attend_masked(
            self.attention,
            outputs,
            memory,
            state.attention,
            Masks(query=mask),
            position=ops.expand_dims(state.position, 1) + count,
            return_attention_scores=scores_wanted,
            training=training,
        )
        outputs, _ = self._run_upper(run, outputs, attended.output, state.cells[1:])
        outputs, weights = tree_map(lambda x: zero_masked(x, mask), (outputs, attended.weights))
        if back is not None:
            outputs, weights = tree_map(
                lambda x: ops.take_along_axis(x, back, axis=1), (outputs, weights)
            )
        return outputs, weights, None

    def _run_upper(self, run, outputs, context, states):
        """Run the upper layers on the outputs and the context; return their states too."""
        new = []
        for n, (rnn, state) in enumerate(zip(self.rnns[1:], states, strict=True)):
            hidden, state = run(rnn, ops.concatenate([outputs, context], axis=-1), state)
            outputs = ops.add(outputs, hidden) if n else hidden
            new.append(state)
        return outputs, new

    def _step(
        self, inputs: Tensor, state: DecoderState, memory: Memory
    ) -> tuple[Tensor, DecoderState, Tensor]:
        def run(rnn, inputs, states):
            output, states = rnn.cell(inputs, states)
            return output, as_states(rnn.cell, states)

        inputs, position = ops.cast(inputs, self.compute_dtype), state.position
        outputs, first = run(self.rnns[0], inputs, state.cells[0])
        attended = attend_masked(
            self.attention, outputs, memory, state.attention, position=position
        )
        outputs, new = self._run_upper(run, outputs, attended.output, state.cells[1:])
        state = DecoderState([first, *new], None, attended.state, position + 1)
        return outputs, state, attended.weights

    @property
    def _state_sizes(self) -> list:
        return [state_sizes(rnn.cell) for rnn in self.rnns]

    def compute_output_shape(
        self, sequences_shape: Shape, memory_shape: Shape = None, initial_state_shape: Nested = None
    ) -> Shape:
        shapes = {"sequences": sequences_shape, "memory": memory_shape}
        self.CALL.check_shapes(self.name, shapes)
        return (*tuple(sequences_shape or ())[:-1], output_size(self.rnns[-1].cell))


def run_rnn(
    rnn: keras.layers.RNN, sequences: Tensor, states: Nested, training: bool | None
) -> Tensor:
    """Return the outputs of a recurrent layer at all steps, which are all valid."""
    if _uses_keras_call(rnn, sequences, training):
        outputs = rnn(sequences, initial_state=states, training=training)
        return outputs[0] if rnn.return_state else outputs
    cell = CellOps(rnn.cell, swap_steps(sequences), training)

    def step(call, states, _, dropout):
        hidden, states = cell.step(call, None, None, states, dropout)
        return states, hidden

    with compiling(True if training else None):
        options = {"training": bool(training)}
        _, outputs = recur(step, cell.ops, states, None, cell.dropout, **options)
    return swap_steps(outputs)


def _uses_keras_call(rnn, sequences, training):
    """Return True to call a Keras layer itself, which may use cuDNN on a GPU."""
    if execution_context(sequences).device == "gpu" and getattr(rnn, "use_cudnn", False):
        return True
    kinds = keras.layers.RNN, keras.layers.LSTM, keras.layers.GRU
    known = any(
        type(rnn).call is kind.call and type(rnn).inner_loop is kind.inner_loop for kind in kinds
    )
    special = rnn.unroll or rnn.activity_regularizer is not None
    return special or not known or not runs_as_ops(rnn.cell, training)


def _valid_first(mask):
    """Return indices `(B, T, 1)` that move valid steps first, in order, and their inverse."""
    count = ops.cast(mask, "int32")
    valid, masked = ops.cumsum(count, axis=1), ops.cumsum(1 - count, axis=1)
    position = ops.where(mask, valid, valid[:, -1:] + masked) - 1
    return ops.expand_dims(ops.argsort(position, axis=1), 2), ops.expand_dims(position, 2)


def check_rnns(layer: str, rnns: Sequence[keras.layers.RNN]) -> None:
    """Check the recurrent layers of a stack."""
    wrong = [x for x in rnns if not getattr(x, "return_sequences", False)]
    wrong += [x for x in rnns if not isinstance(x, keras.layers.RNN)]
    if wrong or len(rnns) < 2:
        raise_value_error(layer, f"`rnns` must be {RNNS}", rnns)
    if len({id(x) for x in rnns}) < len(rnns):
        raise_value_error(
            layer, "`rnns` must not hold one layer more than once", rnns, "Make each."
        )
    for option in ("go_backwards", "stateful"):
        if any(getattr(x, option) for x in rnns):
            expected = "`rnns` must hold stateless layers that run forwards"
            raise_value_error(layer, expected, Description(f"{option}=True"), "Leave it out.")
    sizes = [output_size(x.cell) for x in rnns[1:]]
    if len(set(sizes)) > 1:
        expected = "`rnns` must have the same number of units from the second on, because their "
        raise_value_error(layer, f"{expected}outputs are added", Description(f"{sizes} units"))
