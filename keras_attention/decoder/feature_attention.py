"""Attention over the series that drive another one, at every step of an encoder."""

from typing import Any, Unpack

import keras
from keras import tree

from keras_attention._spec import (
    Description,
    Spec,
    check_bool,
    check_choice,
    check_int,
    raise_value_error,
)
from keras_attention._typing import LayerOptions, Shape, Tensor
from keras_attention.attention.checked_layer import CheckedLayer, take_dtype
from keras_attention.attention.scoring import NORMALIZERS
from keras_attention.backend import leaves, ops, swap_steps, where_valid
from keras_attention.decoder._cells import (
    as_states,
    check_cells,
    check_output,
    dropout_masks,
    output_size,
    state_sizes,
    with_constant_weights,
)
from keras_attention.ops.masks import zero_masked
from keras_attention.ops.matmul import cast
from keras_attention.ops.random import scan_with_random_state

__all__ = ["FeatureAttention"]


@keras.saving.register_keras_serializable(package="keras_attention")
class FeatureAttention(CheckedLayer):
    """An encoder that weighs several series at every step (Qin et al., 2017).

        e[b,t,k] = v . tanh(W s[b,t-1] + U x[b,:,k] + b[k])        the whole history of series k
        a[b,t,:] = softmax of e[b,t,:] over the valid k
        s[b,t]   = cell(a[b,t,:] * x[b,t,:], s[b,t-1])

    This is the first stage of the dual-stage model, DA-RNN. The second is an `AttentionRNN` with
    `BahdanauAttention` over the encoded steps. In W s, s is the whole state of the cell: for an
    LSTM both its vectors, side by side.

    Sizes: B samples, T steps, D series, H features of the cell, S of its states, U units.

    Args:
        cell: a Keras RNN cell (`GRUCell`, `LSTMCell`, ...).
        units: U, the width in which states and histories are compared.
        use_bias: whether each series has a bias b[k]. Without, as in the paper, the layer tells the
            series apart by their histories alone.
        normalizer: see `ScoringMixin`.
        unroll: whether to unroll the loop.

    Weights:
        query_kernel: W, `(S, U)`. key_kernel: U, `(T, U)`. score_vector: v, `(U,)`.
        bias: b, `(D, U)`, with `use_bias`.

    Call arguments:
        inputs: x, `(B, T, D)`. T must be known and is the same in every call, because U has a row
            for each step.
        mask: `(B, T, D)` boolean, False where a value is missing, or `(B, T)` for whole steps. A
            missing value has a weight of zero, and counts as zero in the history of its series. A
            step without any value keeps the state; its output and its weights are zero.
        return_attention_scores: whether to return the weights too.
        training: whether the dropout of the cell is active.

    Returns:
        Outputs of the cell `(B, T, H)`; with `return_attention_scores` also the weights a
        `(B, T, D)`. At each step they sum to one.

    Raises:
        ValueError: `cell` is not an RNN cell; `units` is missing or not a positive integer;
            `inputs` is not of rank 3, or has another size than the layer was built for; T is not
            known; the mask is not boolean or has another shape.

    Example:
        >>> import keras, numpy
        >>> from keras_attention import FeatureAttention
        >>> encoder = FeatureAttention(keras.layers.LSTMCell(7), 5)
        >>> encoded, weights = encoder(numpy.ones((2, 11, 3)), return_attention_scores=True)
        >>> encoded.shape, weights.shape
        (TensorShape([2, 11, 7]), TensorShape([2, 11, 3]))

    Reference: https://arxiv.org/abs/1704.02971, section 3.2, without masks and bias.
    """

    CALL = Spec("inputs: float[B T D]", "mask: bool[B T D] | bool[B T]?")

    def __init__(
        self,
        cell: keras.layers.Layer,
        units: int,
        use_bias: bool = True,
        normalizer: str = "softmax",
        unroll: bool = False,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        take_dtype(kwargs, cell)
        super().__init__(**kwargs)
        wanted = "a Keras RNN cell with a `state_size`, such as keras.layers.LSTMCell(64)"
        # A list would be a stack, which keras.layers.StackedRNNCells makes.
        check_cells(self.name, "cell", (cell,) if isinstance(cell, (list, tuple)) else cell, wanted)
        self.cell = cell
        self.units = check_int(self.name, "units", units)
        self.use_bias = check_bool(self.name, "use_bias", use_bias)
        self.normalizer = check_choice(self.name, "normalizer", normalizer, tuple(NORMALIZERS))
        self.unroll = check_bool(self.name, "unroll", unroll)
        self.supports_masking = True

    def build(self, inputs_shape: Shape) -> None:
        self._sizes = self._check_shape(inputs_shape)
        (batch, *_), steps, features = tuple(inputs_shape or ()), self._sizes["T"], self._sizes["D"]
        size = sum(tree.flatten(state_sizes(self.cell)))
        self.query_kernel = self.add_weight((size, self.units), name="query_kernel")
        self.key_kernel = self.add_weight((steps, self.units), name="key_kernel")
        self.score_vector = self.add_weight((self.units,), name="score_vector", autocast=False)
        self.bias = None
        if self.use_bias:
            shape = features, self.units
            self.bias = self.add_weight(shape, "zeros", name="bias", autocast=False)
        if not self.cell.built:
            self.cell.build((batch, features))

    def call(
        self,
        inputs: Tensor,
        mask: Tensor = None,
        return_attention_scores: bool = False,
        training: bool | None = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        batch, _, features = ops.shape(inputs)
        steps_mask = None
        if mask is not None:
            mask = ops.convert_to_tensor(mask)
            mask = ops.expand_dims(mask, 2) if len(mask.shape) == 2 else mask
            mask = ops.broadcast_to(mask, ops.shape(inputs))
            inputs = zero_masked(inputs, mask)
            steps_mask = ops.any(mask, axis=-1)
        inputs = cast(inputs, self.compute_dtype)
        histories = self.project(ops.transpose(inputs, (0, 2, 1)), self.key_kernel)
        if self.bias is not None:
            histories = ops.add(histories, self.bias)
        vector = cast(self.score_vector, self.score_dtype)

        def step(states, x):
            values, allowed, valid = x
            query = self.project(ops.concatenate(leaves(states), axis=-1), self.query_kernel)
            hidden = ops.tanh(ops.expand_dims(query, 1) + histories)
            weights = NORMALIZERS[self.normalizer](ops.sum(hidden * vector, axis=-1), allowed)
            output, new = self.cell(values * cast(weights, values.dtype), states)
            check_output(self.name, self.cell, output)
            return where_valid(valid, as_states(self.cell, new), states), (output, weights)

        # A cell may compute in another dtype than the layer.
        dtype = getattr(self.cell, "compute_dtype", self.compute_dtype)
        flat = [ops.zeros((batch, n), dtype) for n in tree.flatten(state_sizes(self.cell))]
        states = as_states(self.cell, flat)
        steps = tuple(None if x is None else swap_steps(x) for x in (inputs, mask, steps_mask))
        with dropout_masks(self.cell, batch, features):
            _, (outputs, weights) = with_constant_weights(
                self, lambda: scan_with_random_state(step, states, steps, self, self.unroll)
            )
        outputs = cast(zero_masked(swap_steps(outputs), steps_mask), self.compute_dtype)
        if not return_attention_scores:
            return outputs
        return outputs, cast(swap_steps(weights), self.compute_dtype)

    def compute_mask(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, inputs: Tensor, mask: Tensor = None
    ) -> Tensor:
        """Return a mask that is True for the steps that have a value."""
        return mask if mask is None or len(mask.shape) == 2 else ops.any(mask, axis=-1)

    def compute_output_shape(self, inputs_shape: Shape) -> Shape:
        self._check_shape(inputs_shape)
        return (*tuple(inputs_shape or ())[:2], output_size(self.cell))

    def _check_shape(self, shape: Any) -> dict[str, int]:
        """Return the sizes that the layer is built for, which include the number of steps."""
        sizes = self.CALL.check_shapes(self.name, {"inputs": shape})
        steps = shape[1]
        if not isinstance(steps, int) or steps < 1:
            expected = "the number of steps of `inputs` must be known, and at least one"
            raise_value_error(
                self.name, expected, Description(tuple(shape)), "Give it to keras.Input."
            )
        return {**sizes, "T": steps}
