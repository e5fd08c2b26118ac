"""What a decoder runs at every step, as sites of a recurrence: its cells and its attention.

GRU and LSTM cells, and stacks of them, become products and gates; they multiply their inputs of all
steps before the loop. The decoder calls every other cell as it is.
"""

import functools
from collections.abc import Callable
from typing import Any

import keras

from keras_attention._typing import Nested, Tensor
from keras_attention.attention.checked_layer import as_in_a_call, float_weights, with_weights
from keras_attention.attention.types import Attended, Memory
from keras_attention.backend import leaves, ops, swap_steps, tree_map, unflatten_as, value_of, vjp
from keras_attention.decoder._cells import cells_of
from keras_attention.decoder.residual_cells import ResidualRNNCells
from keras_attention.ops.matmul import kernel_gradient, stored_transposed, sum_of_rows
from keras_attention.ops.matmul import project as multiply
from keras_attention.recurrence import Site, automatic, product


def has_sites(cell: Any, training: bool | None) -> bool:
    """Whether the loop can run this cell, or every cell of this stack, as sites."""
    cells, of_sites = cells_of(cell), set()
    if isinstance(cell, keras.layers.StackedRNNCells) and type(cell).call not in STACKS:
        return False
    for one in cells:
        if type(one).call not in KINDS:
            return False
        # With `implementation=1`, which dropout of the state needs, every gate has its own dropout.
        if one.implementation != 2 and training and (one.dropout or one.recurrent_dropout):
            return False
        of_sites |= {id(one.kernel), id(one.recurrent_kernel), id(one.bias)}
    for one in (cell, *cells):
        # By its `query` or an activation, a cell may have weights that no site knows, now or later.
        if not of_sites.issuperset(map(id, one.weights)):
            return False
        if any([isinstance(x, keras.layers.Layer) for x in vars(one).values()]):
            return False
    return True


class CellSites:
    """One or several cells, the lowest first.

    Args:
        cell: the Keras cell, or stacked cells.
        inputs: the inputs of all steps, `(T, B, D)`. A step may add features to them.
        training: whether dropout is active.

    Attributes:
        sites: the sites of a step, by name.
        keeps: the dropout of what a step feeds to each cell, `(B, features)`, or None.
    """

    def __init__(self, cell: Any, inputs: Tensor, training: bool | None) -> None:
        cells = cells_of(cell)
        self.stacked = cells[0] is not cell
        self.residual = type(cell).call is ResidualRNNCells.call
        self.cells, self.sites = [], {}
        for n, one in enumerate(cells):
            # The factors of the inputs of a cell, the same at every step.
            keep = None
            if training and one.dropout > 0:
                shape = ops.shape(inputs)[1], one.kernel.shape[0]
                keep = one.get_dropout_mask(ops.ones(shape, one.compute_dtype))
                one.reset_dropout_mask()
            kind = KINDS[type(one).call]
            self.cells.append(kind(f"cell {n}", one, None if n else inputs, keep))
            self.sites |= self.cells[-1].sites
        self.keeps = [one.keep for one in self.cells]

    def __call__(
        self, call: Any, keeps: list[Tensor | None], input_feed: Tensor | None, states: Nested
    ) -> tuple[Tensor, Nested]:
        """One step: the output of the last cell, and the new states. The sites hold the inputs."""
        states = states if self.stacked else [states]
        below, new = input_feed, []
        for cell, keep, state in zip(self.cells, keeps, states, strict=True):
            dropped = below if below is None or keep is None else below * keep
            hidden, state = cell.step(call, [] if dropped is None else [dropped], state)
            below = ops.add(below, hidden) if self.residual and new else hidden
            new.append(state)
        return below, new if self.stacked else new[0]


class _Gated:
    """A cell whose gates follow from products.

    Args:
        name: the name of its site.
        cell: the Keras cell.
        inputs: the inputs of all steps, `(T, B, D)`; None for an upper cell.
        keep: the dropout of the inputs, `(B, features)`, or None.
    """

    def __init__(self, name, cell, inputs, keep):
        self.name, self.cell = name, cell
        weights = tree_map(value_of, [cell.kernel, cell.recurrent_kernel, cell.bias])
        kernel, self.recurrent, bias = tree_map(self.rounded, weights)
        size = 0 if inputs is None else inputs.shape[-1]
        grad_inputs, self.keep = (None, None) if keep is None else (keep[:, :size], keep[:, size:])
        lower = kernel[size:] if kernel.shape[0] > size else None
        # With `reset_after`, a GRU has one bias for its inputs and one for its state.
        self.own_bias = None
        if bias is not None and getattr(cell, "reset_after", False):
            bias, self.own_bias = bias[0], bias[1]
        added = ()
        if inputs is not None:
            inputs = inputs if grad_inputs is None else inputs * grad_inputs
            bias, added = None, self.project(inputs, kernel[:size], bias)
        self.sites = self.make_sites(lower, bias, added)

    def upcast(self, x):
        """Gates run in at least float32. Products, their sums and states keep the compute dtype."""
        return ops.cast(x, "float64" if self.cell.compute_dtype == "float64" else "float32")

    def rounded(self, x):
        return ops.cast(x, self.cell.compute_dtype)


class _GRU(_Gated):
    """z, r = s(x + h W), n = tanh(x_n + r (h W)_n) or tanh(x_n + (r h) W_n), h' = n + z (h - n)."""

    def project(self, inputs, kernel, bias):
        # The gradients of two products need no tensor of all columns.
        columns = slice(0, 2 * self.cell.units), slice(2 * self.cell.units, None)
        return [
            _plus(multiply(inputs, kernel[:, n]), None if bias is None else bias[n])
            for n in columns
        ]

    def make_sites(self, lower, bias, added):
        gates = 2 * self.cell.units
        if self.cell.reset_after:
            products = _gru_products(lower, self.recurrent, bias, self.own_bias, gates, added)
            return {self.name: products}
        kernels = self.recurrent[:, :gates], self.recurrent[:, gates:]
        return {
            self.name: _gru_products(lower, kernels[0], bias, None, gates, added),
            f"{self.name} reset": product([kernels[1]]),
        }

    def step(self, call, below, state):
        hidden = state[0] if isinstance(state, (list, tuple)) else state
        gates, new, *inner = map(self.upcast, call(self.name, *below, hidden))
        update, reset = map(self.cell.recurrent_activation, ops.split(gates, 2, axis=-1))
        if not self.cell.reset_after:
            (more,) = call(f"{self.name} reset", self.rounded(reset * self.upcast(hidden)))
            new = self.cell.activation(ops.add(new, self.upcast(more)))
        else:
            new = self.cell.activation(ops.add(new, reset * inner[0]))
        hidden = self.rounded(new + update * (self.upcast(hidden) - new))
        return hidden, [hidden] if isinstance(state, (list, tuple)) else hidden


def _gru_products(lower, recurrent, bias, own_bias, gates, added):
    """The site of a GRU: z and r before the sigmoid, the input's part of n, the state's part of n.

    The state's part of n is there with `reset_after`.

    Args:
        lower, bias: the kernel and the bias of the step's own input, or None.
        recurrent, own_bias: the kernel and the bias of the state.
        gates: the columns of z and r.
        added: see `Site`.
    """
    structure = lower, recurrent, bias, own_bias

    def apply(weights, *xs):
        lower, recurrent, bias, own_bias = unflatten_as(structure, weights)
        total = _plus(multiply(xs[-1], recurrent), own_bias)
        total, inner = total[..., :gates], total[..., gates:]
        inner = [inner] if recurrent.shape[1] > gates else []
        if lower is None:
            return [total, ops.zeros_like(total[..., gates // 2 :]), *inner], []
        outer = _plus(multiply(xs[0], lower), bias)
        return [ops.add(total, outer[..., :gates]), outer[..., gates:], *inner], []

    def columns(grad_output):
        """The gradients of the products of the input and of the state, in their columns."""
        total, new, *inner = grad_output
        return [[total, new]] * (lower is not None) + [[total, *inner]]

    def backward(transposed, _, grad_output, *xs):
        pairs = zip(columns(grad_output), transposed, strict=True)
        return [multiply(ops.concatenate(x, axis=-1), kernel) for x, kernel in pairs]

    def grad_params(weights, _, grad_output, *xs):
        # Products by columns, because joined columns of all steps would be a large tensor.
        grad_columns = columns(grad_output)
        kernels = [
            ops.concatenate([kernel_gradient(x, y) for y in ys], axis=-1)
            for x, ys in zip(xs, grad_columns, strict=True)
        ]
        biases = [
            ops.concatenate([*map(sum_of_rows, ys)], axis=-1)
            for b, ys in zip((bias, own_bias), [grad_columns[0], grad_columns[-1]], strict=True)
            if b is not None
        ]
        return kernels + biases

    return Site(
        weights=leaves(structure),
        apply=apply,
        backward=backward,
        grad_params=grad_params,
        prepare=lambda weights: [
            *map(stored_transposed, leaves(unflatten_as(structure, weights)[:2]))
        ],
        added=added,
    )


def _plus(x, bias):
    return x if bias is None else ops.add(x, bias)


class _LSTM(_Gated):
    """i, f, g, o = x + h W, c' = s(f) c + s(i) tanh(g), h' = s(o) tanh(c')."""

    def project(self, inputs, kernel, bias):
        return [_plus(multiply(inputs, kernel), bias)]

    def make_sites(self, lower, bias, added):
        return {self.name: product(leaves([lower, self.recurrent]), bias, added)}

    def step(self, call, below, state):
        hidden, memory = state
        (total,) = call(self.name, *below, hidden)
        write, forget, new, read = ops.split(self.upcast(total), 4, axis=-1)
        gate, activation = self.cell.recurrent_activation, self.cell.activation
        memory = gate(forget) * self.upcast(memory) + gate(write) * activation(new)
        hidden = self.rounded(gate(read) * activation(memory))
        return hidden, [hidden, self.rounded(memory)]


# By the call of a class, because a subclass with a call of its own may do anything.
STACKS = {keras.layers.StackedRNNCells.call, ResidualRNNCells.call}
KINDS = {keras.layers.GRUCell.call: _GRU, keras.layers.LSTMCell.call: _LSTM}


def attention_sites(
    decoder: Any, memory: Memory, return_scores: bool, training: bool | None
) -> tuple[dict[str, Site], Callable[..., Attended]]:
    """The sites of the attention: "attention", and "combine" if the attention has such a site.

    The weights of "attention" are the keys, the values and the mask of the memory, as numbers, and
    the weights of the layer.

    Returns:
        The sites, and a function that attends with them in one step:
        `read(call, noise, query, state, position)`.
    """
    attention, count = decoder.attention, len(leaves(memory))
    combining = attention._combine_site()

    def run(weights, stored, query, state, noise, position):
        key, value, mask = unflatten_as(tuple(memory), weights[:count])
        mask = tree_map(lambda x: x > 0.5, mask)

        def attend():
            with with_weights(attention, weights[count:]):
                return attention._attend(
                    query,
                    Memory(key, value, mask),
                    state,
                    position=position,
                    return_attention_scores=return_scores,
                    training=training,
                    noise=noise,
                    drop=False,
                    combine=combining is None,
                    stored=stored,
                )

        return as_in_a_call(attention, attend)

    def grad_params(weights, stored, grad_output, *arguments):
        # The query of one step has an axis of its own; the queries of all steps are a sequence.
        stored, arguments, grad_output = tree_map(swap_steps, (stored, arguments, grad_output))
        stored = tree_map(functools.partial(ops.squeeze, axis=2), stored)

        def function(weights):
            return run(weights, stored, *arguments)[0], None

        return vjp(function, (weights,), grad_output)[0][0]

    def weights():
        mask = tree_map(lambda x: ops.cast(x, attention.score_dtype), memory.mask)
        return [*leaves((*memory[:2], mask)), *map(value_of, float_weights(attention))]

    def read(call, noise, query, state, position):
        position = position if attention.uses_position else None
        attended = call("attention", query, state, noise, position)
        if combining is None:
            return attended
        return attended._replace(output=combining[1](call, query, attended.output))

    if attention.has_state:
        # The loop adds up their gradients, in the dtype of the variables.
        sites = {"attention": automatic(weights(), run)}
    else:
        # Cast here, the weights are not cast at every step.
        sites = {"attention": automatic(as_in_a_call(attention, weights), run, grad_params)}
    return sites if combining is None else {**sites, "combine": combining[0]}, read
