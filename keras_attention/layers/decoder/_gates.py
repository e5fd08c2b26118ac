"""GRU and LSTM cells as products, which the loop of a decoder knows, and gates."""

import keras
from keras import ops

from keras_attention.ops._graphs import value_of
from keras_attention.ops._loops import leaves, pack_like
from keras_attention.ops._parts import Part, products, project_steps, stored_transposed


class _Gated:
    """A cell whose gates follow from products.

    Args:
        cell: the Keras cell.
        inputs: the inputs of all steps, `(T, B, D)`; None for an upper cell.
        keep: the dropout of the inputs, `(B, features)`, or None.
    """

    def __init__(self, cell, inputs, keep):
        self.cell = cell
        weights = cell.kernel, cell.recurrent_kernel, cell.bias
        kernel, self.recurrent, self.bias = (
            None if x is None else ops.cast(value_of(x), cell.compute_dtype) for x in weights
        )
        size = 0 if inputs is None else inputs.shape[-1]
        known, self.keep = (None, None) if keep is None else (keep[:, :size], keep[:, size:])
        lower = kernel[size:] if kernel.shape[0] > size else None
        bias = self.input_bias()
        if inputs is None:
            self.parts = self.make_parts(lower, bias, ())
        else:
            inputs = inputs if known is None else inputs * known
            self.parts = self.make_parts(lower, None, self.project(inputs, kernel[:size], bias))

    def widened(self, x):
        """Gates run in at least float32. Products, their sums and states keep the compute dtype."""
        return ops.cast(x, "float64" if self.cell.compute_dtype == "float64" else "float32")

    def rounded(self, x):
        return ops.cast(x, self.cell.compute_dtype)


class _GRU(_Gated):
    """z, r = s(x + h W), n = tanh(x_n + r (h W)_n) or tanh(x_n + (r h) W_n), h' = n + z (h - n)."""

    def input_bias(self):
        return self.bias[0] if self.bias is not None and self.cell.reset_after else self.bias

    def project(self, inputs, kernel, bias):
        return _two_products(inputs, kernel, bias, 2 * self.cell.units)

    def make_parts(self, lower, bias, added):
        gates = 2 * self.cell.units
        if self.cell.reset_after:
            own = None if self.bias is None else self.bias[1]
            return [_gru_products(lower, self.recurrent, bias, own, gates, added)]
        kernels = self.recurrent[:, :gates], self.recurrent[:, gates:]
        first = _gru_products(lower, kernels[0], bias, None, gates, added)
        return [first, products([kernels[1]])]

    def step(self, call, below, state):
        hidden = state[0] if isinstance(state, (list, tuple)) else state
        found = call(self.parts[0], *below, hidden)
        gates, new, *inner = map(self.widened, found)
        update, reset = map(self.cell.recurrent_activation, ops.split(gates, 2, axis=-1))
        if not self.cell.reset_after:
            (more,) = call(self.parts[1], self.rounded(reset * self.widened(hidden)))
            new = self.cell.activation(ops.add(new, self.widened(more)))
        else:
            new = self.cell.activation(ops.add(new, reset * inner[0]))
        hidden = self.rounded(new + update * (self.widened(hidden) - new))
        return hidden, [hidden] if isinstance(state, (list, tuple)) else hidden


def _gru_products(lower, recurrent, bias, own_bias, gates, added):
    """The part of a GRU: the gates z and r; the input of n; with reset after, the state for n.

    Args:
        lower, bias: of the input of a step; None without one.
        recurrent, own_bias: of the state.
        gates: the columns of z and r.
        added: see `Part`.
    """
    structure = lower, recurrent, bias, own_bias

    def multiply(product, weights, *xs):
        lower, recurrent, bias, own_bias = pack_like(structure, weights)
        total, inner = product(xs[-1], recurrent, own_bias, gates)
        inner = [inner] if recurrent.shape[1] > gates else []
        if lower is None:
            return [total, ops.zeros_like(total[..., gates // 2 :]), *inner]
        outer, new = product(xs[0], lower, bias, gates)
        return [ops.add(total, outer), new, *inner]

    def backward(transposed, _, upstream, *xs):
        total, new, *inner = upstream
        found = [[total, new]] * (len(xs) > 1) + [[total, *inner]]
        joined = [ops.concatenate(x, axis=-1) for x in found]
        return [project_steps(x, kernel) for x, kernel in zip(joined, transposed, strict=True)]

    return Part(
        weights=leaves(structure),
        once=lambda weights, *xs: (multiply(_one_product, weights, *xs), []),
        many=lambda weights, _, *xs: multiply(_two_products, weights, *xs),
        prepare=lambda weights: [
            stored_transposed(x) for x in leaves(pack_like(structure, weights)[:2])
        ],
        backward=backward,
        added=added,
    )


def _one_product(x, kernel, bias, gates):
    """x W + b, split after the columns of z and r. Fast for one step."""
    product = _plus(project_steps(x, kernel), bias)
    return product[..., :gates], product[..., gates:]


def _two_products(x, kernel, bias, gates):
    """The same as two products. Their gradients need no tensor of all columns."""
    columns = slice(0, gates), slice(gates, None)
    return [
        _plus(project_steps(x, kernel[:, n]), None if bias is None else bias[n]) for n in columns
    ]


def _plus(x, bias):
    return x if bias is None else ops.add(x, bias)


class _LSTM(_Gated):
    """i, f, g, o = x + h W, c' = s(f) c + s(i) tanh(g), h' = s(o) tanh(c')."""

    def input_bias(self):
        return self.bias

    def project(self, inputs, kernel, bias):
        return [_plus(project_steps(inputs, kernel), bias)]

    def make_parts(self, lower, bias, added):
        return [products(leaves([lower, self.recurrent]), bias, added)]

    def step(self, call, below, state):
        hidden, memory = state
        (total,) = call(self.parts[0], *below, hidden)
        write, forget, new, read = ops.split(self.widened(total), 4, axis=-1)
        gate, activation = self.cell.recurrent_activation, self.cell.activation
        memory = gate(forget) * self.widened(memory) + gate(write) * activation(new)
        hidden = self.rounded(gate(read) * activation(memory))
        return hidden, [hidden, self.rounded(memory)]


KINDS = {keras.layers.GRUCell: _GRU, keras.layers.LSTMCell: _LSTM}
