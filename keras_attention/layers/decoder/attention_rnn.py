"""Attention inside a recurrent decoder."""

import keras
from keras import ops, tree

from keras_attention._checks import (
    UNROLLED,
    check_bool,
    check_choice,
    check_sequences,
    check_width,
    shape_of,
)
from keras_attention.layers._calls import CheckedLayer, check_mask
from keras_attention.layers._reading import drop_memory
from keras_attention.layers.decoder._cells import (
    BoundCell,
    DropoutMasks,
    as_states,
    output_size,
    query_of,
    query_size,
    run_at_least_once,
    state_sizes,
    with_constant_weights,
)
from keras_attention.layers.decoder._checks import (
    check_batch_size,
    check_output,
    check_parts,
    check_states,
    check_step,
    refuse_changes,
)
from keras_attention.ops._gradients import repeated
from keras_attention.ops._xla import compiling
from keras_attention.ops.masks import blanked

__all__ = ["AttentionRNN"]

# Positions travel through the loop as two digits: bfloat16 counts to 256 only.
DIGIT = 128


@keras.saving.register_keras_serializable(package="keras_attention")
class AttentionRNN(CheckedLayer, keras.layers.Layer):
    """A recurrent decoder that attends to a memory at every step.

        c_i = attention(s_{i-1}, memory)          query="previous" (Bahdanau et al., 2015)
        s_i = cell([x_i; c_i], s_{i-1})           output s_i

        s_i = cell(x_i, s_{i-1})                  query="current" (Luong et al., 2015)
        h_i = attention(s_i, memory)              output h_i
        s_i = cell([x_i; h_{i-1}], s_{i-1})       instead, with `input_feeding`; h_0 = 0

    s stands for the whole state of the cell where the cell uses it, and for its output (of the
    last of stacked cells) where it is the query or the output. With
    `LuongAttention(units=...)` h is the attentional vector; otherwise it is the context.
    Keys are projected once a call. Without a recurrence through the attention (query="current"
    and no input feeding) all steps are attended at once, after the loop.

    Sizes: B samples, T steps, D features, Tk memory steps, Dv memory features, H the output of
    the cell, A the output of the attention (Dv, or its `units`).

    Args:
        cell: a Keras RNN cell (`GRUCell`, `LSTMCell`, ...) or a list of them, stacked. With
            query="previous", the output of the cell must be its first state, as it is in those of
            Keras, or the cell must have a method `query(states)` that returns the query.
        attention: a layer built on `ScoringMixin`.
        query: "previous" or "current", as above. By default what the paper of the attention has:
            "current" for a `LuongAttention`, and with input feeding; "previous" otherwise.
        input_feeding: whether h_i is also an input of the next step; with query="current".
        output_mode: "cell" (H), "attention" (A) or "concat" (A + H, attention first). By default
            "cell" for query="previous", "attention" for query="current".
        return_state: whether to return the last states too.
        unroll: whether to unroll the loop; needs a static T, at most 1000.

    Call arguments:
        sequences: x, `(B, T, D)`.
        memory: `(B, Tk, Dv)`, keys and values in one.
        initial_state: the states of the cell, one tensor or a list; zeros if not given. The fed
            vector of input feeding may follow as the last one.
        sequences_mask: `(B, T)` boolean; where False the state stays, output and weights are zero.
        memory_mask: `(B, Tk)` boolean; steps where it is False are not attended to. Both masks
            come by themselves from masking layers.
        return_attention_scores: also return the weights, as they are before dropout.
        training: whether dropout is active. Inside the recurrence the dropout of the attention
            drops the same memory steps for the whole sequence, as Keras cells do.

    Returns:
        Outputs `(B, T, ...)`; with `return_state` a list of outputs and the state of every cell
        (itself a list for a stacked cell of several states), and of input feeding the fed vector;
        with `return_attention_scores` the weights `(B, T, Tk)` as the last item.

    Raises:
        ValueError: `cell` or `attention` is of another kind; input feeding with
            query="previous"; no memory; ranks, batch sizes or states do not agree.

    Example:
        >>> import keras, numpy
        >>> from keras_attention import AttentionRNN, BahdanauAttention
        >>> decoder = AttentionRNN(keras.layers.GRUCell(7), BahdanauAttention(5))
        >>> words, encoded = numpy.ones((2, 3, 11)), numpy.ones((2, 13, 17))
        >>> outputs, weights = decoder(words, encoded, return_attention_scores=True)
        >>> outputs.shape, weights.shape
        (TensorShape([2, 3, 7]), TensorShape([2, 3, 13]))

    References: https://arxiv.org/abs/1409.0473, appendix A.2; https://arxiv.org/abs/1508.04025,
    sections 3 and 3.3.
    """

    def __init__(
        self,
        cell,
        attention,
        query=None,
        input_feeding=False,
        output_mode=None,
        return_state=False,
        unroll=False,
        **kwargs,
    ):
        cells = list(cell) if isinstance(cell, (list, tuple)) else [cell]
        if kwargs.get("dtype") is None and cells and not isinstance(cells[0], type):
            kwargs["dtype"] = getattr(cells[0], "dtype_policy", None)
        super().__init__(**kwargs)
        check_parts(self.name, self.compute_dtype, cell, attention)
        if isinstance(cell, (list, tuple)):
            cell = keras.layers.StackedRNNCells(cells, dtype=self.dtype_policy)
        self.cell = cell
        self.attention = attention
        self.input_feeding = check_bool(self.name, "input_feeding", input_feeding)
        if query is None:
            query = "current" if input_feeding else attention.decoder_query
        self.query = check_choice(self.name, "query", query, ("previous", "current"))
        if input_feeding and query == "previous":
            raise ValueError(
                f'{self.name}: `input_feeding=True` goes with query="current"; with '
                'query="previous" the context is an input of the cell already.'
            )
        default = "cell" if query == "previous" else "attention"
        self.output_mode = check_choice(
            self.name,
            "output_mode",
            default if output_mode is None else output_mode,
            ("cell", "attention", "concat"),
        )
        self.return_state = check_bool(self.name, "return_state", return_state)
        self.unroll = check_bool(self.name, "unroll", unroll)
        self.supports_masking = True

    def build(self, sequences_shape, memory_shape=None):
        self._check_shapes(sequences_shape, memory_shape)
        batch, steps, features = sequences_shape
        if self.unroll and steps is None:
            raise ValueError(
                f"{self.name}: `unroll=True` needs sequences of a known number of steps; received "
                f"{tuple(sequences_shape)}. Give it in keras.Input, or leave `unroll` out."
            )
        self._input_size, self._memory_size = features, memory_shape[-1]
        if not self.attention.built:
            self.attention.build((batch, self._query_size), tuple(memory_shape))
        self._attention_size = self.attention.output_size(self._query_size, memory_shape[-1])
        if not self.cell.built:
            self.cell.build((batch, features + self._attention_size * self._recurs))

    def call(
        self,
        sequences,
        memory=None,
        initial_state=None,
        sequences_mask=None,
        memory_mask=None,
        return_attention_scores=False,
        training=None,
    ):
        self._check_shapes(shape_of(sequences), shape_of(memory))
        check_width(self.name, "sequences", sequences.shape, self._input_size)
        check_width(self.name, "memory", memory.shape, self._memory_size)
        check_mask(self.name, "sequences_mask", sequences_mask, [tuple(sequences.shape)[:2]])
        check_mask(self.name, "memory_mask", memory_mask, [tuple(memory.shape)[:2]])
        prepared = self.prepare(memory, memory_mask)
        states = self.get_initial_state(ops.shape(sequences)[0], initial_state)
        # Masked steps must not influence anything, NaN included.
        inputs = blanked(sequences, sequences_mask), prepared, states, sequences_mask
        run = self._attend_inside if self._recurs else self._attend_after
        outputs, weights, states = run_at_least_once(
            lambda *inputs: run(*inputs, return_attention_scores, training), *inputs
        )
        results = [outputs, *states] if self.return_state else [outputs]
        if return_attention_scores:
            results.append(weights)
        return results if len(results) > 1 else outputs

    def prepare(self, memory, memory_mask=None):
        """The memory made ready for `step`, its keys projected: a `Memory`.

        Here the mask does not come by itself: give the one that the encoder's input has, such as
        `embedding.compute_mask(ids)`.
        """
        return self.attention.prepare(memory, value_mask=memory_mask)

    def get_initial_state(self, batch_size, initial_state=None):
        """The list of states before the first `step`.

        Args:
            batch_size: B. initial_state: as in a call; zeros if not given.
        """
        self._check_built()
        check_batch_size(self.name, batch_size)
        sizes, count = self._state_sizes
        given = [] if initial_state is None else tree.flatten(initial_state)
        check_states(self.name, "initial_state", given, sizes, count, sequences=batch_size)
        zeros = [ops.zeros((batch_size, size), self.compute_dtype) for size in sizes[len(given) :]]
        states = [*given, *zeros]
        return [*as_states(self.cell, states[:count]), *states[count:]]

    def step(self, inputs, states, memory, position=None):
        """One step of decoding; step by step equals a whole call, dropout inactive.

        Args:
            inputs: x_i, `(B, D)`.
            states: the list from `get_initial_state`, or from the step before.
            memory: from `prepare`.
            position: i, an integer or `(B,)`, for an attention that counts steps (local-m); others
                ignore it.

        Returns:
            `(output, states, weights)`: `(B, ...)`, a list, `(B, Tk)`.
        """
        self._check_built()
        count = len(state_sizes(self.cell)) + self.input_feeding
        check_step(self.name, inputs, self._input_size, states, count, memory)
        sizes, count = self._state_sizes
        batch = memory.value.shape[0]
        check_states(self.name, "states", tree.flatten(states), sizes, count, memory=batch)
        return self._step(inputs, states, memory, position)

    def _step(self, inputs, states, memory, position, return_attention_scores=True):
        count = len(state_sizes(self.cell)) + self.input_feeding
        options = {"return_attention_scores": return_attention_scores}
        if self.attention.uses_position:
            options["position"] = position
        if self.query == "previous":
            query = query_of(self.cell, states)
            attended, _, weights = self._attend(query, memory, **options)
            hidden, states = self.cell(ops.concatenate([inputs, attended], axis=-1), states)
            check_output(self.name, self.cell, hidden, states)
            fed = []
        else:
            states, fed = states[: count - self.input_feeding], states[count - self.input_feeding :]
            hidden, states = self.cell(ops.concatenate([inputs, *fed], axis=-1), states)
            check_output(self.name, self.cell, hidden)
            attended, _, weights = self._attend(hidden, memory, **options)
            fed = [attended] if self.input_feeding else []
        return self._output(hidden, attended), [*as_states(self.cell, states), *fed], weights

    def _attend(self, query, memory, **options):
        with refuse_changes(self.name, self.attention), repeated():
            return self.attention.attend(query, memory, **options)

    def _attend_inside(self, sequences, memory, states, mask, return_scores, training):
        if training:
            memory = drop_memory(self.attention, memory)
        width = sequences.shape[-1] + self._attention_size
        if self.attention.uses_position:
            position = ops.arange(ops.shape(sequences)[1])
            digits = ops.stack([position // DIGIT, position % DIGIT], axis=-1)
            digits = ops.broadcast_to(digits, (*ops.shape(sequences)[:2], 2))
            sequences = ops.concatenate([sequences, ops.cast(digits, sequences.dtype)], axis=-1)

        def step(inputs, states):
            position = None
            if self.attention.uses_position:
                digits = ops.cast(inputs[:, -2:], "int32")
                inputs, position = inputs[:, :-2], digits[:, 0] * DIGIT + digits[:, 1]
            output, states, weights = self._step(inputs, states, memory, position, return_scores)
            if return_scores:
                output = ops.concatenate([output, ops.cast(weights, output.dtype)], axis=-1)
            return output, states

        fed = [self._attention_size] * self.input_feeding
        cell = BoundCell(step, [*state_sizes(self.cell), *fed], self.compute_dtype)
        with (
            DropoutMasks(self.cell, ops.shape(sequences)[0], width),
            compiling(True if training else None),
        ):
            outputs, states = with_constant_weights(
                self, lambda: self._loop(cell, sequences, states, mask)
            )
        if not return_scores:
            return outputs, None, states
        size = self._output_size(self._attention_size)
        weights = outputs[:, :, size:]
        # A slice of a last axis that is not known forgets its size.
        outputs = ops.reshape(outputs[:, :, :size], (-1, ops.shape(outputs)[1], size))
        return outputs, weights, states

    def _attend_after(self, sequences, memory, states, mask, return_scores, training):
        hidden, states = with_constant_weights(
            self, lambda: self._loop(self.cell, sequences, states, mask)
        )
        check_output(self.name, self.cell, hidden)
        attended, _, weights = self._attend(
            hidden,
            memory,
            query_mask=mask,
            return_attention_scores=return_scores,
            training=training,
        )
        return self._output(hidden, attended), weights, states

    def _loop(self, cell, sequences, states, mask):
        loop = keras.layers.RNN(
            cell,
            return_sequences=True,
            return_state=True,
            unroll=self.unroll,
            zero_output_for_mask=True,
            dtype=self.dtype_policy,
            name=f"{self.name}_loop",
        )
        outputs, *states = loop(sequences, initial_state=states, mask=mask)
        # An unrolled loop on JAX does not look at `zero_output_for_mask`.
        return blanked(outputs, mask), states

    def _output(self, hidden, attended):
        if self.output_mode == "concat":
            return ops.concatenate([attended, hidden], axis=-1)
        return hidden if self.output_mode == "cell" else attended

    @property
    def _recurs(self):
        return self.query == "previous" or self.input_feeding

    @property
    def _query_size(self):
        if self.query == "current":
            return output_size(self.cell)
        return query_size(self.cell)

    def _output_size(self, attended):
        hidden = output_size(self.cell)
        return {"cell": hidden, "attention": attended}.get(self.output_mode, hidden + attended)

    @property
    def _state_sizes(self):
        """The sizes of all states in a flat list, and the number of those of the cell."""
        sizes = tree.flatten(state_sizes(self.cell))
        return [*sizes, *[self._attention_size] * self.input_feeding], len(sizes)

    def _check_built(self):
        if not self.built:
            raise ValueError(
                f"{self.name}: the layer has no weights yet. Call it once, or its build(), before "
                "decoding."
            )

    def _check_shapes(self, sequences_shape, memory_shape):
        shapes = {"sequences": sequences_shape, "memory": memory_shape}
        check_sequences(self.name, "layer(sequences, memory)", **shapes)
        steps = sequences_shape[1]
        if self.unroll and isinstance(steps, int) and steps > UNROLLED:
            raise ValueError(
                f"{self.name}: `unroll=True` copies the loop for each step, at most {UNROLLED}; "
                f"received {tuple(sequences_shape)}. Leave `unroll` out."
            )

    def compute_output_shape(self, sequences_shape, memory_shape=None, initial_state_shape=None):
        self._check_shapes(sequences_shape, memory_shape)
        batch, steps, _ = sequences_shape
        attended = self.attention.output_size(self._query_size, memory_shape[-1])
        outputs = (batch, steps, self._output_size(attended))
        if not self.return_state:
            return outputs
        states = tree.map_structure(lambda size: (batch, size), state_sizes(self.cell))
        return [outputs, *states, *[(batch, attended)] * self.input_feeding]

    def compute_output_spec(self, *args, **kwargs):
        # By tracing: what is returned depends on return_attention_scores.
        return keras.Operation.compute_output_spec(self, *args, **kwargs)

    def get_config(self):
        return {
            **super().get_config(),
            "cell": keras.saving.serialize_keras_object(self.cell),
            "attention": keras.saving.serialize_keras_object(self.attention),
            "query": self.query,
            "input_feeding": self.input_feeding,
            "output_mode": self.output_mode,
            "return_state": self.return_state,
            "unroll": self.unroll,
        }

    @classmethod
    def from_config(cls, config):
        config = dict(config)
        for name in {"cell", "attention"} & config.keys():
            config[name] = keras.saving.deserialize_keras_object(config[name])
        return super().from_config(config)
