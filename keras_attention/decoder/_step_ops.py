"""Cells and attention of a decoder step, as ops with custom gradients.

GRU and LSTM cells, and stacks of them, become products and gates; they multiply their inputs of all
steps before the loop. The decoder calls every other cell as it is.
"""

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import keras
from keras.layers import Layer

from keras_attention._typing import Nested, Tensor
from keras_attention.attention.checked_layer import as_in_a_call, float_weights, with_weights
from keras_attention.attention.scoring import as_sequence, finish
from keras_attention.attention.types import Attended, AttendOptions, DecoderAttention, Memory
from keras_attention.backend import (
    Function,
    kernel_gradient,
    leaves,
    ops,
    project,
    swap_steps,
    tree_map,
    unflatten_as,
    value_of,
    vjp,
)
from keras_attention.decoder._cells import cells_of
from keras_attention.decoder.residual_cells import ResidualRNNCells
from keras_attention.ops.masks import Masks
from keras_attention.ops.matmul import bias_gradient, materialized_transpose
from keras_attention.recurrence import AutomaticOp, Op, ProductOp


def runs_as_ops(cell: Layer, training: bool | None) -> bool:
    """Return whether the loop can run this cell, or every cell of this stack, as ops."""
    cells, known = cells_of(cell), set()
    if isinstance(cell, keras.layers.StackedRNNCells) and type(cell).call not in STACKS:
        return False
    for one in cells:
        # A subclass may compute something else around `call`.
        if type(one).call not in CELL_OPS or type(one).__call__ is not keras.Layer.__call__:
            return False
        # With `implementation=1`, which dropout of the state needs, every gate has its own dropout.
        if one.implementation != 2 and training and (one.dropout or one.recurrent_dropout):
            return False
        known |= {id(one.kernel), id(one.recurrent_kernel), id(one.bias)}
    for one in (cell, *cells):
        # By its `query` or an activation, a cell may have weights that no op knows, now or later.
        layers = [x for x in vars(one).values() if isinstance(x, keras.layers.Layer)]
        if layers or not known.issuperset(map(id, one.weights)):
            return False
    return True


class CellOps:
    """One or several cells, the lowest first.

    Args:
        cell: the Keras cell, or stacked cells.
        inputs: the inputs of all steps, `(T, B, D)`. A step may feed more features.
        training: whether dropout is active.

    Attributes:
        ops: the ops of a step, by name.
        dropout: the dropout masks of what a step feeds to each cell, `(B, features)`, or None.
    """

    def __init__(self, cell: Layer, inputs: Tensor, training: bool | None) -> None:
        cells = cells_of(cell)
        self.stacked = cells[0] is not cell
        self.residual = type(cell).call is ResidualRNNCells.call
        self.cells, self.ops = [], {}
        for n, one in enumerate(cells):
            mask = None
            if training and one.dropout > 0:  # the same mask at every step
                shape = ops.shape(inputs)[1], one.kernel.shape[0]
                mask = one.get_dropout_mask(ops.ones(shape, one.compute_dtype))
                one.reset_dropout_mask()
            op = CELL_OPS[type(one).call](f"cell {n}", one, None if n else inputs, mask)
            self.cells.append(op)
            self.ops |= op.named_ops()
        self.dropout = [op.dropout for op in self.cells]

    def step(self, call, inputs, feed, states, dropout):
        """Run one step; return the output of the last cell, and the new states.

        Args:
            call: calls an op by its name.
            inputs: None, because the ops hold the products of the inputs of all steps.
            feed: the features that the step appends to its inputs, or None.
            states: the states of the cells. dropout: as the attribute.
        """
        states = states if self.stacked else [states]
        below, new = feed, []
        for op, mask, state in zip(self.cells, dropout, states, strict=True):
            fed = [] if below is None else [below if mask is None else below * mask]
            hidden, state = op.step(call, fed, state)
            below = ops.add(below, hidden) if self.residual and new else hidden
            new.append(state)
        return below, new if self.stacked else new[0]


class _Kernels:
    """The weights of a GRU or LSTM cell; products of the inputs are computed before the loop.

    Args:
        cell: the Keras cell.
        inputs: the inputs of all steps, `(T, B, D)`; None for an upper cell.
        dropout: the dropout mask of the inputs, `(B, features)`, or None.

    Attributes:
        feed, feed_bias: the kernel and the bias of what each step feeds, or None.
        state, state_bias: the kernel and the bias of the state. With `reset_after`, a GRU has one
            bias for its inputs and one for its state.
        dropout: the dropout mask of what each step feeds, or None.
    """

    def __init__(self, cell, inputs, dropout):
        weights = [cell.kernel, cell.recurrent_kernel, cell.bias]
        weights = tree_map(lambda x: ops.cast(value_of(x), cell.compute_dtype), weights)
        kernel, self.state, self.feed_bias = weights
        self.state_bias, self.inputs = None, inputs
        if self.feed_bias is not None and getattr(cell, "reset_after", False):
            self.feed_bias, self.state_bias = self.feed_bias[0], self.feed_bias[1]
        size = 0 if inputs is None else inputs.shape[-1]
        self.feed = kernel[size:] if kernel.shape[0] > size else None
        self.dropout = None if dropout is None else dropout[:, size:]
        if inputs is not None:
            self.inputs = inputs if dropout is None else inputs * dropout[:, :size]
            self.kernel, self.bias, self.feed_bias = kernel[:size], self.feed_bias, None

    def input_projections(self, *ends):
        """Multiply the inputs of all steps by blocks of columns, which end at `ends`."""
        if self.inputs is None:
            return []
        kernels = ops.split(self.kernel, list(ends), axis=1)
        biases = [None] * len(kernels) if self.bias is None else ops.split(self.bias, list(ends))
        return [
            _plus(project(self.inputs, kernel, time_major=True), bias)
            for kernel, bias in zip(kernels, biases, strict=True)
        ]


def _plus(x, bias):
    return x if bias is None else ops.add(x, bias)


def _upcast(cell, x):
    """Cast to at least float32, for gates. Products, their sums and states keep their dtype."""
    return ops.cast(x, "float64" if cell.compute_dtype == "float64" else "float32")


class GRUOp(Op):
    """The products of a GRU, of which `step` makes gates and the new state.

        z, r = s(x + h W), n = tanh(x_n + r (h W)_n) or tanh(x_n + (r h) W_n), h' = n + z (h - n)

    The results are z and r before the sigmoid, the input's part of n and, with `reset_after`, the
    state's part of n. Without it, (r h) W_n is an op of its own.

    Args:
        name: the name of the op. cell, inputs, dropout: see `_Kernels`.
    """

    def __init__(self, name: str, cell: Layer, inputs: Tensor, dropout: Tensor) -> None:
        self.name, self.cell, self.gates = name, cell, 2 * cell.units
        kernels = _Kernels(cell, inputs, dropout)
        self.dropout, self.reset_op = kernels.dropout, None
        state = kernels.state
        if not cell.reset_after:
            state, new = state[:, : self.gates], state[:, self.gates :]
            self.reset_op = ProductOp([new])
        self.structure = kernels.feed, state, kernels.feed_bias, kernels.state_bias
        # The gradients of two products need no tensor of all columns.
        super().__init__(leaves(self.structure), kernels.input_projections(self.gates))

    def named_ops(self) -> dict[str, Op]:
        """Return the ops of a step, by name."""
        reset = {} if self.reset_op is None else {f"{self.name} reset": self.reset_op}
        return {self.name: self, **reset}

    def step(self, call, feed, state):
        """Return the output and the new state. `feed`: an empty list, or what the step feeds."""
        hidden = state[0] if isinstance(state, (list, tuple)) else state
        upcast = functools.partial(_upcast, self.cell)
        gates, new, *inner = map(upcast, call(self.name, *feed, hidden))
        update, reset = map(self.cell.recurrent_activation, ops.split(gates, 2, axis=-1))
        if self.reset_op is None:
            inner = reset * inner[0]
        else:
            reset = ops.cast(reset * upcast(hidden), self.cell.compute_dtype)
            inner = upcast(call(f"{self.name} reset", reset)[0])
        new = self.cell.activation(ops.add(new, inner))
        hidden = ops.cast(new + update * (upcast(hidden) - new), self.cell.compute_dtype)
        return hidden, [hidden] if isinstance(state, (list, tuple)) else hidden

    def forward(self, params, *args):
        feed, recurrent, feed_bias, state_bias = unflatten_as(self.structure, params)
        total = _plus(project(args[-1], recurrent), state_bias)
        total, inner = total[..., : self.gates], total[..., self.gates :]
        inner = [inner] if self.reset_op is None else []
        if feed is None:
            return [total, ops.zeros_like(total[..., self.gates // 2 :]), *inner], []
        outer = _plus(project(args[0], feed), feed_bias)
        return [ops.add(total, outer[..., : self.gates]), outer[..., self.gates :], *inner], []

    def prepare(self, params):
        return [*map(materialized_transpose, leaves(unflatten_as(self.structure, params)[:2]))]

    def backward(self, prepared, residuals, grad_output, *args):
        pairs = zip(self._by_kernel(grad_output), prepared, strict=True)
        return [project(ops.concatenate(grads, axis=-1), kernel) for grads, kernel in pairs]

    def grad_params(self, params, residuals, grad_output, *args):
        # Products by columns, because joined columns of all steps would be a large tensor.
        by_kernel = self._by_kernel(grad_output)
        kernels = [
            ops.concatenate([kernel_gradient(x, grad) for grad in grads], axis=-1)
            for x, grads in zip(args, by_kernel, strict=True)
        ]
        biases = [
            ops.concatenate([*map(bias_gradient, grads)], axis=-1)
            for bias, grads in zip(self.structure[2:], (by_kernel[0], by_kernel[-1]), strict=True)
            if bias is not None
        ]
        return kernels + biases

    def _by_kernel(self, grad_output):
        """Return the gradients of the products of the feed, if any, and of the state."""
        total, new, *inner = grad_output
        return [[total, new]] * (self.structure[0] is not None) + [[total, *inner]]


class LSTMOp(ProductOp):
    """The products of an LSTM, of which `step` makes gates and the new states.

        i, f, g, o = x + h W, c' = s(f) c + s(i) tanh(g), h' = s(o) tanh(c')

    Args:
        name: the name of the op. cell, inputs, dropout: see `_Kernels`.
    """

    def __init__(self, name: str, cell: Layer, inputs: Tensor, dropout: Tensor) -> None:
        self.name, self.cell = name, cell
        kernels = _Kernels(cell, inputs, dropout)
        self.dropout = kernels.dropout
        products = leaves([kernels.feed, kernels.state])
        super().__init__(products, kernels.feed_bias, kernels.input_projections())

    def named_ops(self) -> dict[str, Op]:
        """Return the ops of a step, by name."""
        return {self.name: self}

    def step(self, call, feed, state):
        """Return the output and the new states. `feed`: an empty list, or what the step feeds."""
        hidden, memory = state
        (total,) = call(self.name, *feed, hidden)
        write, forget, new, read = ops.split(_upcast(self.cell, total), 4, axis=-1)
        gate, activation = self.cell.recurrent_activation, self.cell.activation
        memory = gate(forget) * _upcast(self.cell, memory) + gate(write) * activation(new)
        hidden = gate(read) * activation(memory)
        hidden, memory = (ops.cast(x, self.cell.compute_dtype) for x in (hidden, memory))
        return hidden, [hidden, memory]


# By the call of a class, because a subclass with a call of its own may do anything.
STACKS = {keras.layers.StackedRNNCells.call, ResidualRNNCells.call}
CELL_OPS = {keras.layers.GRUCell.call: GRUOp, keras.layers.LSTMCell.call: LSTMOp}


class OutputOp(ProductOp):
    """The product of an attention's `combine`, and its activation; see `DecoderAttention`."""

    def __init__(self, kernels: list[Tensor], activation: Callable[[Tensor], Tensor]) -> None:
        super().__init__(kernels)
        self.activation = activation

    def step(self, call: Function, query: Tensor, context: Tensor) -> Tensor:
        """Return the output of the attention."""
        (total,) = call("output", *(query, context)[-self.count :])
        return self.activation(total)


class AttentionOp(AutomaticOp):
    """The attention of one step: `forward(params, query, state, noise, position)` is `Attended`.

    The parameters are the keys, the values and the mask of the memory, as 0 and 1, and the weights
    of the layer.

    Args:
        attention: the attention.
        memory: its memory.
        differentiated: whether the op has a gradient of its own. Otherwise it has no parameters,
            and `forward` reads the memory and the weights themselves.
        combine: whether the output is what `combine` returns. Otherwise it is the context.
        options: see `AttendOptions`.
    """

    def __init__(
        self,
        attention: DecoderAttention,
        memory: Memory,
        differentiated: bool = False,
        combine: bool = True,
        **options: Any,
    ) -> None:
        self.attention: Any = attention
        self.memory, self.combine, self.params, self.casts = memory, combine, [], False
        self.options = AttendOptions(Masks(memory.mask), drop=False, **options)
        if differentiated:
            self.casts = self.attention.compute_dtype != self.attention.variable_dtype
            # Cast here, the parameters are not cast at every step. Where the loop adds their
            # gradients up, they keep the dtype of the variables.
            get = self._own_params
            super().__init__(get() if attention.has_state else as_in_a_call(self.attention, get))
            self.sums_in_loop = self.sums_in_loop and attention.has_state

    def _own_params(self):
        mask = tree_map(lambda x: ops.cast(x, self.attention.score_dtype), self.memory.mask)
        memory = leaves((self.memory.key, self.memory.value, mask))
        return [*memory, *map(value_of, float_weights(self.attention))]

    def call(self, name: str, *args: Nested) -> Attended:
        """Attend without a gradient of its own, in place of the `call` of `recur`."""
        return self.forward([], *args)[0]

    def forward(self, params, *args, residuals=None, calls=True):
        if calls and (self.casts or residuals is not None):  # a gradient has residuals
            again = functools.partial(self.forward, params, *args, residuals=residuals, calls=False)
            return as_in_a_call(self.attention, again, self.options.training)
        (query, state, noise, position), memory = args, self.memory
        scope = contextlib.nullcontext()
        if params:
            count = len(leaves(memory))
            key, value, mask = unflatten_as(tuple(memory), params[:count])
            memory = Memory(key, value, tree_map(lambda x: x > 0.5, mask))
            scope = with_weights(self.attention, params[count:])
        more = {"position": position, "noise": noise, "stored": residuals}
        options = self.options._replace(masks=Masks(memory.mask), **more)
        queries, options = as_sequence(query, options)
        with scope:
            results = self.attention._attend(queries, memory, state, options)
            one_step, combine = len(query.shape) == 2, self.combine  # or all, in `grad_params`
            attended = finish(self.attention, queries, memory, results, options, one_step, combine)
        return attended, results[3]

    def grad_params(self, params, residuals, grad_output, *args):
        if self.attention.has_state:
            return super().grad_params(params, residuals, grad_output, *args)
        # The query of one step has an axis of its own; the queries of all steps are a sequence.
        residuals, args, grad_output = tree_map(swap_steps, (residuals, args, grad_output))
        residuals = tree_map(functools.partial(ops.squeeze, axis=2), residuals)

        def run(params):
            return self.forward(params, *args, residuals=residuals)[0], None

        return vjp(run, (params,), grad_output)[0][0]
